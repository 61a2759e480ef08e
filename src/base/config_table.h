// config_table: the rows behind config.h, for the config files themselves.
#ifndef CONFIG_TABLE_H
#define CONFIG_TABLE_H
#include <stdbool.h>
#include <stddef.h>

#include "base/config.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CONFIG_INTEGER, CONFIG_NUMBER, CONFIG_BOOL, CONFIG_STRING, CONFIG_CHOICE } ConfigType;

typedef struct {
    const char *name; // "section.key"
    ConfigType type;
    size_t offset;        // of the member in Config
    const char *def;      // default, as text; NULL: always derived, nobody sets it
    const char *allowed;  // an interval "[0, 1)", or choices "cosine|constant"
    const char *unit;     // "" when it has none
    const char *needs;    // "model.position=rope", "sample.temperature>0": otherwise no effect; "" always
    const char *help;
} ConfigKey;

// All rows, in the order in which they are printed; the rows of a section stand together.
const ConfigKey *config_table(int *n_keys);
// The row of that name, or -1; the row whose name is nearest by edit distance, or -1 when none is near.
int config_table_find(const char *name);
int config_table_nearest(const char *name);
// The known section nearest to that name (equal to it when it is one); *n its length: it is not terminated.
const char *config_table_section(const char *name, int *n);
// Levenshtein distance: the fewest insertions, deletions and replacements that turn a into b.
int config_table_distance(const char *a, const char *b);

// Reads text into the member and returns true; or returns false with the reason in why, and changes nothing.
// `quoted` says that a file had the value in quotes.
bool config_table_parse(const ConfigKey *key, Config *cfg, const char *text, bool quoted,
                        char *why, size_t why_size);
// The member as text that config_table_parse reads back to the same value, without quotes.
void config_table_format(const ConfigKey *key, const Config *cfg, char *out, size_t size);
// "integer", or "gelu, swiglu": what kind of value the row takes.
void config_table_describe(const ConfigKey *key, char *out, size_t size);

// ">= 0", "in [0, 1)": the numbers that the row takes; "" when it takes any.
void config_table_range(const ConfigKey *key, char *out, size_t size);

// True when the key has an effect on this configuration. If not, needed is the row it depends on.
bool config_table_has_effect(const ConfigKey *key, const Config *cfg, int *needed);

// Parses text into the row's member, unless a stronger source has set it, and notes the origin. False with
// the reason in why when the value is not allowed.
bool config_table_set(Config *cfg, int row, const char *text, bool quoted, ConfigSource source,
                      const char *where, char *why, size_t why_size);
// Reads the [model] section of the preset into the keys that are still at their defaults.
void config_table_load_preset(Config *cfg, const char *name);
// The names of all presets as "tiny, stories, ..."; "none found" when their directory is not there.
void config_table_list_presets(char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
