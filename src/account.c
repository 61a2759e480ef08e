// account: the memory door's counters as JSON. See account.h.
//
// A run writes them once, after its first step: by then it holds everything that it ever will (the door is
// sealed from there on), so one number per tag is the whole truth, and needs no sampling over time.
//
// The invariant: every tag stands in the object under the name that mem_tag_name gives it, those without a
// byte too, so a reader may subtract two accounts key by key. Bytes are JSON integers, exact up to 2^63.
//
// Rejected: reading the peak from the operating system (VmHWM). It holds libraries, page rounding and
// whatever the allocator keeps, and no plan can predict it to the byte.
#include "account.h"

#include "check.h"
#include "disk.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *memory(const Mem *mem)
{
    json_t *object = json_object();
    int failed = !object;
    for (int tag = 0; tag < MEM_TAGS; tag++)
        failed |= json_object_set_new(object, mem_tag_name((MemTag)tag),
                                      json_integer((json_int_t)mem->tag_bytes[tag]));
    failed |= json_object_set_new(object, "total", json_integer((json_int_t)mem->bytes));
    failed |= json_object_set_new(object, "peak", json_integer((json_int_t)mem->peak));
    if (failed) die("account: no memory for the table");
    return object;
}

// As text with a newline behind it; takes the object.
static char *text_of(json_t *object)
{
    char *json = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    char *text = json ? malloc(strlen(json) + 2) : NULL;
    if (!text) die("account: no memory for the table");
    sprintf(text, "%s\n", json);
    free(json);
    json_decref(object);
    return text;
}

void account_print(const Mem *mem, FILE *out)
{
    char *text = text_of(memory(mem));
    fputs(text, out);
    free(text);
}

void account_write(const Mem *mem, const char *path)
{
    char *text = text_of(json_pack("{s:o}", "memory", memory(mem)));
    if (!disk_replace_file(path, text, strlen(text))) die("%s: cannot be written: %s", path, strerror(errno));
    free(text);
}
