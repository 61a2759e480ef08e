// prepare: the commands of build/prepare that have a file of their own.
//
// Each takes its command line, argv[0] being its name, and returns the exit status.
#ifndef PREPARE_H
#define PREPARE_H

int prepare_dedup(int argc, char **argv);
int prepare_filter(int argc, char **argv);
int prepare_tokenizer(int argc, char **argv);

// How filter and dedup are told what a corpus is: CorpusOptions *c, const char *format, size_t max_document in MiB.
#define PREPARE_CORPUS(c, format, max_document)                                                                        \
    OPTION(TEXT, "--format", "NAME", "auto (by its name), text, jsonl, parquet or warc [auto]", &format),              \
    OPTION(TEXT, "--field", "NAME", "member of a JSON line, or column of Parquet, that is the text [text]",            \
           &(c)->field),                                                                                               \
    OPTION(TEXT, "--separator", "TEXT", "between documents of a text file [" TOKENIZER_EOT "]", &(c)->separator),      \
    OPTION(TEXT, "--separator-line", "TEXT", "instead: a line that holds only this", &(c)->line),                      \
    OPTION(SWITCH, "--strict", NULL, "a bad line of JSONL is an error, not left out", &(c)->strict),                   \
    OPTION(SIZE, "--max-document", "MIB", "a longer line of JSONL is left out, a longer text is an error [64]",        \
           &max_document, .least = 1, .most = CORPUS_MOST_MIB)

#endif
