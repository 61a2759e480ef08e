# test/data_common.sh: what the end-to-end tests of the data programs share. Sourced after set -u, in the repository
# root.
BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/data.XXXXXX") || exit 1
unset OMP_NUM_THREADS
export OMP_WAIT_POLICY=passive LC_ALL=C
trap '[ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

pipefail=1
# shellcheck source=test/passes_common.sh
. test/passes_common.sh

# A corpus like a crawl in $work/in: $good pages, $short that are too short, $copies and $near copies, $seen with pieces of
# an evaluation set (test.txt), 400 to a file, one of them packed; and $books. Then recipe.toml, with all stages.
make_corpus() {
    mkdir -p "$work/in/web"
    awk -v out="$work/in/web" -v good=$good -v short=$short -v copies=$copies -v near=$near -v seen=$seen '
        function word(k) { return substr("abcdefghijklmnopqrstuvwxyz", 1 + int(k / 7) % 20, 3 + k % 5) }
        function page(n, i, text) { # 60 to 179 words, the first of which is a number that no other page has
            text = "page" n
            for (i = 0; i < 60 + (n * 37) % 120; i++)
                text = text " " word(int(rand() * 140)) substr("abcdefghi", 1 + int(rand() * 9), 1)
            return text "."
        }
        function question(i) {
            return "the question of the examination begins with a dozen of words and ends with number " i
        }
        function put(text, file) {
            file = int(k / 400)
            k++
            printf "{\"text\":\"%s\"}\n", text > (out "/" file ".jsonl")
        }
        BEGIN {
            srand(7)
            for (i = 0; i < good; i++) {
                text[i] = page(i)
                put(text[i])
                if (i < short) put("too short " i)
                if (i < copies) { copy = text[i]; gsub(/ /, "  ", copy); put(copy) }
                if (i >= 100 && i < 100 + near) put(text[i] " Read more of this on page " i ".")
                if (i >= 200 && i < 200 + seen) put(page(10000 + i) " " question(i - 200))
            }
            for (i = 0; i < seen; i++) print question(i) > (out "/../../test.txt")
        }'
    gzip "$work/in/web/1.jsonl"
    awk -v n=$books 'BEGIN { srand(3); for (i = 0; i < n; i++) { if (i) printf "<|endoftext|>"
        printf "book%d", i
        for (k = 0; k < 300; k++) printf " ver%c%c", 97 + int(rand() * 26), 97 + int(rand() * 20) } }' \
        >"$work/in/book.txt"
    cat >"$work/recipe.toml" <<END
[recipe]
out = "out"
unit = 0.4
seed = 11
[source.web]
path = "in/web"
weight = 3
[source.book]
path = "in/book.txt"
[filter]
rules = "guide"
[dedup]
exact = true
near = true
threshold = 0.7
ngram = 5
[contamination]
evaluation = "test.txt"
[tokenizer]
vocab = 700
[shards]
val = 0.05
tokens = 80000
END
}
