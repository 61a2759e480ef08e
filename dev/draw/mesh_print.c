// mesh_print: replicas one after another; a row is a stage, a column is one tp rank of one cp rank. Then the first
// members of the first groups of each kind.
#include "dev/draw/mesh_print.h"

void mesh_print(MeshShape s, FILE *out)
{
    int width = 3, wide;
    for (int n = mesh_size(s); n >= 100; n /= 10) width++;
    wide = s.tp * (width + 1) > 5 ? s.tp * (width + 1) : 5; // columns of one cp rank
    fprintf(out, "%d ranks = dp %d x pp %d x cp %d x tp %d, ep %d within dp x cp\n", mesh_size(s), s.dp, s.pp, s.cp,
            s.tp, s.ep);
    fprintf(out, "rank = ((dp*%d + pp)*%d + cp)*%d + tp\n", s.pp, s.cp, s.tp);
    for (int d = 0; d < s.dp; d++) {
        fprintf(out, "\ndp %d", d);
        if (s.ep > 1) fprintf(out, s.cp > 1 ? "   experts: parts" : "   experts: part");
        for (int c = 0; s.ep > 1 && c < s.cp; c++)
            fprintf(out, " %d", mesh_replica(s, (MeshPlace){.dp = d, .cp = c}) % s.ep);
        if (s.ep > 1) fprintf(out, " of %d", s.ep);
        fprintf(out, "\n%6s", "");
        for (int c = 0; c < s.cp; c++) fprintf(out, " | cp %-*d", wide - 4, c);
        fprintf(out, " |\n");
        for (int p = 0; p < s.pp; p++) {
            fprintf(out, "pp %-3d", p);
            for (int c = 0; c < s.cp; c++) {
                fprintf(out, " |");
                for (int t = 0; t < s.tp; t++)
                    fprintf(out, " %*d", width, mesh_rank(s, (MeshPlace){.dp = d, .pp = p, .cp = c, .tp = t}));
                fprintf(out, "%*s", wide - s.tp * (width + 1), "");
            }
            fprintf(out, " |\n");
        }
    }
    fprintf(out, "\n");
    enum { SHOWN = 8 };
    int size = mesh_size(s), members[size];
    for (int g = 0; g < MESH_GROUPS; g++) {
        int n_groups = 0, n = 0;
        if (g >= MESH_SHARDS && !mesh_hybrid(s)) continue;
        fprintf(out, "%-16s", mesh_group_name((MeshGroup)g));
        for (int r = 0; r < size; r++) {
            int k = mesh_members(s, r, (MeshGroup)g, members);
            if (!k || members[0] != r || n_groups++ >= SHOWN) continue;
            fprintf(out, " {");
            for (int i = 0; i < k && i < SHOWN; i++) fprintf(out, "%s%d", i ? " " : "", members[i]);
            fprintf(out, k > SHOWN ? " ..}" : "}");
            n = k;
        }
        fprintf(out, n_groups > SHOWN ? " ..  (%d of %d)\n" : "  (%d of %d)\n", n_groups, n);
    }
}
