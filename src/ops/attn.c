// attn: where queries and keys stand, and which sees which. See attn.h.
//
// A row of a piece stands at start + row, and behind a cut at start + row + jump: two stretches without gaps. All that
// follows asks for positions in the sequence and never for rows, so a piece answers as the whole would.
//
// The invariant: a block lies in one document, in one stretch and in one of s.blocks. So its rows are neighbours in the
// sequence, and the keys that they see begin at one place.
#include "ops/attn.h"

#include "base/check.h"
#include "ops/dev_cpu.h"

#include <math.h>

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t attn_first_key(AttnShape s, size_t b, size_t t)
{
    return s.first ? (size_t)s.first[b * s.Tq + t] : 0;
}

static size_t position(AttnShape s, size_t t)
{
    return s.q_start + t + (t >= s.q_cut ? s.q_jump : 0);
}

// How many of n rows, of which row i stands at start + i, from `cut` on at start + i + jump, stand before pos.
static size_t before(size_t pos, size_t start, size_t cut, size_t jump, size_t n)
{
    size_t i = pos > start ? pos - start : 0;
    if (jump && i > cut) i = i > cut + jump ? i - jump : cut;
    return min_size(i, n);
}

size_t attn_keys_before(AttnShape s, size_t pos)
{
    return before(pos, s.k_start, s.k_cut, s.k_jump, s.Tk);
}

size_t attn_rows_before(AttnShape s, size_t pos)
{
    return before(pos, s.q_start, s.q_cut, s.q_jump, s.Tq);
}

size_t attn_block_start(AttnShape s, size_t c)
{
    return c * s.T / (size_t)s.blocks;
}

// The first row of the stretch without gaps that row t is in, or of its block of s.blocks.
static size_t stretch_start(AttnShape s, size_t t)
{
    if (!s.blocks) return s.q_jump && t >= s.q_cut ? s.q_cut : 0;
    size_t pos = position(s, t), c = pos * (size_t)s.blocks / s.T;
    while (attn_block_start(s, c + 1) <= pos) c++;
    return t - min_size(t, pos - attn_block_start(s, c));
}

bool attn_starts_block(AttnShape s, size_t b, size_t t)
{
    size_t first = attn_first_key(s, b, t), stretch = stretch_start(s, t), pos = position(s, stretch);
    size_t start = stretch + (first > pos ? first - pos : 0);
    return t == stretch || (t - start) % ATTENTION_ROWS == 0 || first != attn_first_key(s, b, t - 1);
}

AttnBlock attn_block_at(AttnShape s, size_t b, size_t h, size_t q0)
{
    bool cuts = s.first || s.q_jump || s.blocks;
    size_t most = min_size(ATTENTION_ROWS, s.Tq - q0), rows = cuts ? 1 : most, pos = position(s, q0);
    while (rows < most && !attn_starts_block(s, b, q0 + rows)) rows++;
    check(attn_first_key(s, b, q0) <= pos); // a query sees itself
    size_t first = attn_keys_before(s, attn_first_key(s, b, q0));
    return (AttnBlock){.b = b, .h = h, .q0 = q0, .rows = rows, .pos = pos, .first = first};
}

size_t attn_q_offset(AttnShape s, AttnBlock blk)
{
    return (blk.b * s.Tq + blk.q0) * s.ldq + blk.h * s.D;
}

size_t attn_out_offset(AttnShape s, AttnBlock blk)
{
    return ((blk.b * s.Tq + blk.q0) * s.H + blk.h) * s.D;
}

size_t attn_lse_offset(AttnShape s, AttnBlock blk)
{
    return (blk.b * s.H + blk.h) * s.Tq + blk.q0;
}

size_t attn_kv_offset(AttnShape s, size_t b, size_t h)
{
    return b * s.Tk * s.ldkv + h / (s.H / s.G) * s.D;
}

float attn_scale_of(AttnShape s)
{
    return s.scale > 0 ? s.scale : 1 / sqrtf((float)s.D);
}

size_t attn_visible(AttnShape s, AttnBlock blk, size_t r, size_t k0, size_t w)
{
    size_t end = attn_keys_before(s, blk.pos + r + 1);
    return end <= k0 ? 0 : min_size(end - k0, w);
}

void attn_keep_row(float *keep, AttnShape s, AttnBlock blk, size_t r, size_t k0, size_t n)
{
    size_t Tq = s.T ? s.T : s.Tq, Tk = s.T ? s.T : s.Tk, row = s.T ? blk.pos + r : blk.q0 + r;
    uint64_t at = (((s.drop.first + blk.b) * s.H + blk.h) * Tq + row) * Tk + s.k_start;
    uint32_t word[4], limit = dev_cpu_dropout_limit(s.drop);
    float kept = 1 / (1 - s.drop.p);
    for (size_t j = 0; j < n;) { // stretches of keys without gaps
        bool second = s.k_jump && k0 + j >= s.k_cut;
        size_t end = second || !s.k_jump ? n : min_size(n, s.k_cut - k0);
        uint64_t i = at + k0 + j + (second ? s.k_jump : 0);
        while (j < end) {
            rng_words(s.drop.rng, i / 4, word);
            for (size_t w = i % 4; w < 4 && j < end; w++, j++, i++) keep[j] = word[w] >= limit ? kept : 0;
        }
    }
}
