// override: loads shared libraries and puts their functions into a device's table. See override.h.
//
// The invariant: what can be known before the first step is refused there, with one line. A library says for which
// declarations (DEV_VERSION), which program and which storage types it was made; without this a wrong one would crash
// in the middle of a step, or, in the emulation's checker, would run unseen. And an op that was replaced and never
// called has not been judged, so the check fails.
//
// Only the device that computes is changed. The reference of numerics.check keeps the project's own op, and so do calls
// that do not go through the table of this device: in 2-byte types the CPU computes on a second, fp32 device.
//
// Rejected: the function's name alone (nothing would tell a library of another version); fp32 functions for 2-byte
// types, called between conversions (the function would not see the call that the model makes: the norm, for one,
// would never get `b`).
#include "src/check/override.h"

#include "base/check.h"
#include "base/words.h"
#include "src/check/dev_check.h"
#include "train/replicas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

// The next item of the list at *rest: the op's name and the file; false at the end. The text is cut up.
static bool next_item(char **rest, char **op, char **file)
{
    char *item = strsep(rest, ",");
    if (!item || (!*item && !*rest)) return false;
    *op = item, *file = strchr(item, ':');
    if (!*file || *file == item || !(*file)[1])
        die("numerics.override: '%s' is not OP:FILE, such as norm_forward:./mine.so", item);
    *(*file)++ = 0;
    return true;
}

static const DevOp *find(const char *name)
{
    size_t n, best = 0;
    const DevOp *op = dev_ops(&n);
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(op[i].name, name)) return &op[i];
        if (words_distance(name, op[i].name, 1000) < words_distance(name, op[best].name, 1000)) best = i;
    }
    die("numerics.override: no op '%s' (the nearest is %s; all are in src/ops/dev.h)", name, op[best].name);
}

// Returns the op.
static const DevOp *replace(Dev *dev, const char *name, const char *file, const char *target)
{
    static const char *const TYPE[] = {"fp32", "bf16", "fp16"}; // by XType
    char path[CONFIG_TEXT + 2], symbol[CONFIG_TEXT];
    const DevOp *op = find(name);
    snprintf(path, sizeof path, "%s%s", strchr(file, '/') ? "" : "./", file); // not among the system's libraries
    snprintf(symbol, sizeof symbol, "%s_override", op->name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) die("numerics.override: cannot load %s (scripts/override.sh compiles libraries)", dlerror());
    const Override *made = (const Override *)dlsym(library, symbol);
    void *entry = dlsym(library, op->name);
    if (!entry) die("numerics.override: %s has no function %s", file, op->name);
    if (!made) die("numerics.override: %s does not say OVERRIDE(%s, ...) (src/check/override.h)", file, op->name);
    if (made->version != DEV_VERSION)
        die("numerics.override: %s was compiled with version %d of src/ops/dev.h, this program with %d (compile it "
            "again)", file, made->version, DEV_VERSION);
    if (strcmp(made->target, target) != 0)
        die("numerics.override: %s is for %s, this program for %s (scripts/override.sh compiles it for either)", file,
            made->target, target);
    if (!strstr(made->types, TYPE[dev->x_type]))
        die("numerics.override: %s of %s takes %s, and this run stores %s (numerics.dtype)", op->name, file,
            made->types, TYPE[dev->x_type]);
    memcpy((char *)dev + op->at, &entry, sizeof entry);
    return op;
}

void override_apply(Dev *dev, const char *list, const char *target)
{
    char text[CONFIG_TEXT], *rest = text, *name, *file;
    bool replaced[sizeof *dev] = {false}; // by the entry's place
    for (snprintf(text, sizeof text, "%s", list); next_item(&rest, &name, &file);) {
        const DevOp *op = replace(dev, name, file, target);
        if (replaced[op->at]) die("numerics.override: %s is given twice (once is enough)", name);
        replaced[op->at] = true;
    }
}

bool override_judged(const Dev *both, const char *list, Replicas *all)
{
    char text[CONFIG_TEXT], *rest = text, *op, *file;
    const DevCheckRow *row;
    size_t n = dev_check_rows(both, &row);
    bool judged = true;
    for (snprintf(text, sizeof text, "%s", list); next_item(&rest, &op, &file);) {
        bool called = false;
        for (size_t i = 0; i < n; i++) called |= !strcmp(row[i].op, op);
        if (replicas_any(all, called)) continue;
        if (all->rank == 0)
            fprintf(stderr, "error: numerics.override: %s was never called, so it was not checked (does the model use "
                            "it?)\n", op);
        judged = false;
    }
    return judged;
}
