#!/bin/bash
# test/test_data_programs.sh: build/prepare filter, build/prepare dedup and build/prepare one after the other, on a corpus that is made
# here, packed and not: the documents that reach the shards are the ones that should, and the counts add up.
#
# The corpus is like a crawl: good pages, pages that are too short, pages of signs, copies with other white space, and
# copies with another last word. Which is which is known, so every count is.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=test/data_common.sh
. test/data_common.sh

good=40 short=7 signs=5 copies=9 near=6
all=$((good + short + signs + copies + near))
# $1: web.jsonl (every page, as lines of JSON, with a bad line and a blank one in between), good.txt (the good pages
# alone, as text). A page that is bad or a copy follows every good one until they are used up.
make_corpus() { # FOLDER
    awk -v good=$good -v short=$short -v signs=$signs -v copies=$copies -v near=$near -v folder="$1" '
    function word(  k) { x = (x * 69069 + 1) % 4294967296; return w[int(x / 65536) % n + 1] }
    function page(length_, line_end,   i, t) {
        for (i = 1; i <= length_; i++) t = t word() (i == length_ ? "." : i % 12 == 0 ? "." line_end : " ")
        return t
    }
    function put(text, kind) { printf "{\"id\": %d, \"kind\": \"%s\", \"text\": \"%s\"}\n", id++, kind, text >web }
    BEGIN {
        web = folder "/web.jsonl"; txt = folder "/good.txt"; x = 7
        n = split("the of and that with have river stone water morning letter garden paper window summer mountain " \
                  "answer evening people story children house winter market bread music silver harbour forest " \
                  "bridge caf\303\251 \320\262\320\276\320\264\320\260", w, " ")
        for (d = 0; d < good; d++) {
            text = page(120, "\\n")
            put(text, "good")
            plain = text; gsub(/\\n/, "\n", plain)
            printf "%s%s", plain, d < good - 1 ? "<|endoftext|>" : "" >txt
            if (d < short) put(page(49, " "), "short")
            if (d < signs) { signs_text = ""; for (i = 0; i < 60; i++) signs_text = signs_text "#### "; put(signs_text, "signs") }
            if (d < copies) { copy = text; gsub(/\\n/, "  \\t", copy); put(toupper(substr(copy, 1, 1)) substr(copy, 2), "copy") }
            else if (d < copies + near) { copy = text; sub(/[^ ]*$/, "tail.", copy); put(copy, "near") }
            if (d == 3) print "{\"id\": broken" >web
            if (d == 4) print "" >web
        }
    }'
}

# ends_in_error STATUS WORDS COMMAND...: that status, and one line of stderr: "error: " and WORDS in it.
ends_in_error() {
    local status=$1 words=$2 got=0
    shift 2
    "$@" >"$work/out" 2>"$work/err" || got=$?
    cat "$work/err"
    [ $got = "$status" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q "^error: .*$words" "$work/err"
}

ends_with() { local got=0; "${@:2}" || got=$?; [ $got = "$1" ]; } # STATUS COMMAND...
filter() { "$BUILD/prepare" filter "$@"; }
dedup() { "$BUILD/prepare" dedup --threads 2 "$@"; }
tokens() { "$BUILD/prepare" tokens --vocab 400 --val 0.25 "$@"; }
same_shards() { # A B: the same tokenizer and tokens
    local file
    for file in tokenizer.json train_000000.bin val_000000.bin; do cmp "$1/$file" "$2/$file"; done
    [ ! -e "$1/train_000001.bin" ] && [ ! -e "$2/train_000001.bin" ]
}

pipeline() { # INPUT FOLDER [OPTION OF FILTER...]
    local input=$1 folder=$2
    shift 2
    mkdir -p "$folder"
    filter "$input" --out "$folder/kept.jsonl" "$@" >"$folder/filter.txt" 2>"$folder/filter.err"
    dedup "$folder/kept.jsonl" --write "$folder/unique.jsonl" --removed "$folder/removed.txt" >"$folder/dedup.txt"
    tokens --input "$folder/unique.jsonl" --out "$folder/data" 2>"$folder/prepare.txt"
}

counts_add_up() {
    pipeline "$work/web.jsonl" "$work/run"
    cd "$work/run"
    cat filter.txt dedup.txt prepare.txt
    local kept=$((all - short - signs))
    grep -q "^1 file, $all documents, " filter.txt
    grep -q "^1 bad lines left out$" filter.txt
    grep -q "web.jsonl:[0-9]*: left out: not JSON" filter.err
    [ "$(wc -l <kept.jsonl)" = $kept ]
    [ "$(tail -n 1 filter.txt)" = "$all documents in, $((short + signs)) removed, $kept kept, 0 of them edited" ]
    [ "$(awk '$1 == "gopher.words" { print $(NF - 3) }' filter.txt)" = $short ]
    [ "$(awk '$1 ~ /^(gopher|guide)\./ { n += $(NF - 3) } END { print n }' filter.txt)" = $((short + signs)) ]
    [ "$(awk '$1 == "exact" { print $2, $3, $4 }' dedup.txt)" = "$kept $copies $((kept - copies))" ]
    [ "$(awk '$1 == "near" { print $2, $3, $4 }' dedup.txt)" = "$((kept - copies)) $near $good" ]
    [ "$(wc -l <removed.txt)" = $((copies + near)) ]
    [ "$(wc -l <unique.jsonl)" = $good ]
    grep -q "^input: 1 file, $good documents, " prepare.txt
    # Bytes of text: those of the good pages, from the first program to the last.
    local bytes=$(($(wc -c <"$work/good.txt") - 13 * (good - 1)))
    grep -q "^input: 1 file, $good documents, $bytes bytes$" prepare.txt
    [ "$(awk '$1 == "train:" || $1 == "val:" { docs += $2; bytes += $4 } END { print docs, bytes }' prepare.txt)" = "$good $bytes" ]
}

# The pages that were left are the good ones, in order: the shards are those of the good pages given as text, for other
# numbers of threads too.
result_is_the_good_pages() {
    OMP_NUM_THREADS=3 tokens --input "$work/good.txt" --threads 5 --out "$work/text"
    same_shards "$work/text" "$work/run/data"
    # A document begins with end-of-text, the last id: as many of them as documents, and none is split.
    local eot part n_train n_val
    eot=$(grep -o '"eot": [0-9]*' "$work/text/manifest.json" | grep -o '[0-9]*')
    for part in train val; do
        tail -c +1025 "$work/text/${part}_000000.bin" | od -An -v -tu2 -w2 | awk -v e="$eot" '$1 == e { n++ } END { print n + 0 }'
    done >"$work/eot"
    { read -r n_train; read -r n_val; } <"$work/eot"
    [ $((n_train + n_val)) = $good ] && [ "$n_train" -gt 0 ] && [ "$n_val" -gt 0 ]
}

# More text than prepare takes at a time (16 MiB): the pages 600 times over give their tokens 600 times over.
large_input_is_read_in_parts() {
    local i
    "$BUILD/prepare" tokens --input "$work/good.txt" --val 0 --tokenizer "$work/text" --out "$work/once"
    for ((i = 0; i < 600; i++)); do
        cat "$work/good.txt"
        printf '<|endoftext|>'
    done | "$BUILD/prepare" tokens --input - --val 0 --tokenizer "$work/text" --out "$work/large"
    tail -c +1025 "$work/once/train_000000.bin" >"$work/body"
    for ((i = 0; i < 600; i++)); do cat "$work/body"; done >"$work/bodies"
    tail -c +1025 "$work/large/train_000000.bin" | cmp - "$work/bodies"
    grep '"documents": 24000,' "$work/large/manifest.json"
}

# Packed input, standard input and folders give the same bytes; the manifest describes the content, not the packing.
packed_is_the_same() { # PROGRAM SUFFIX
    local packer=$1 end=$2 dir=$work/$2
    mkdir -p "$dir/folder/inner"
    "$packer" -c "$work/web.jsonl" >"$dir/web.jsonl.$end"
    pipeline "$dir/web.jsonl.$end" "$dir/run"
    same_shards "$dir/run/data" "$work/run/data"
    "$packer" -c "$work/run/unique.jsonl" >"$dir/unique.jsonl.$end"
    tokens --input "$dir/unique.jsonl.$end" --out "$dir/data"
    same_shards "$dir/data" "$work/run/data"
    [ "$(grep -E '"(bytes|xxh3_128)":' "$dir/data/manifest.json")" = "$(grep -E '"(bytes|xxh3_128)":' "$work/run/data/manifest.json")" ]
    tokens --input - --format jsonl --out "$dir/stdin" <"$dir/unique.jsonl.$end"
    mkfifo "$dir/pipe.jsonl"
    cat "$dir/unique.jsonl.$end" >"$dir/pipe.jsonl" &
    tokens --input "$dir/pipe.jsonl" --out "$dir/piped"
    same_shards "$dir/piped" "$work/run/data"
    same_shards "$dir/stdin" "$work/run/data"
    # Half of the pages in one file, the others as text further down; in the order of their names.
    head -n 20 "$work/run/unique.jsonl" | "$packer" -c >"$dir/folder/a.jsonl.$end"
    awk -v RS='<[|]endoftext[|]>' 'NR > 20 { printf "%s<|endoftext|>", $0 }' "$work/good.txt" |
        "$packer" -c >"$dir/folder/inner/b.txt.$end"
    tokens --input "$dir/folder" --out "$dir/mixed"
    same_shards "$dir/mixed" "$work/run/data"
    dedup --exact "$dir/folder" | grep "^exact  *$good  *0  *$good$"
    dedup --exact --format jsonl /dev/stdin <"$dir/unique.jsonl.$end" | grep "^exact  *$good  *0  *$good$" # a pipe has no name
    dedup "$dir/web.jsonl.$end" --exact --write "$dir/exact.jsonl" | grep "^exact  *$all  *$((copies + signs - 1)) "
    grep -q '"kind": "short"' "$dir/exact.jsonl" # whole lines, with their other fields
    [ "$(sed 's/.*kept/kept/' "$dir/run/removed.txt")" = "$(sed 's/.*kept/kept/' "$work/run/removed.txt")" ]
}

# They are the last of the vocabulary.
special_tokens() {
    local more=(--special-tokens '[UNK],[PAD]')
    "$BUILD/prepare" train-tokenizer --vocab 400 --input "$work/good.txt" --out "$work/marked" "${more[@]}"
    grep -q '"id": *399, *"content": *"\[PAD\]"' <(tr -d '\n' <"$work/marked/tokenizer.json")
    printf 'a[PAD]' | "$BUILD/prepare" encode --tokenizer "$work/marked" - >"$work/ids" # text that spells one is text
    ! tr ' ' '\n' <"$work/ids" | grep -qx 399
    local list
    for list in '[PAD],[PAD]' '[PAD],'; do
        ! "$BUILD/prepare" train-tokenizer --vocab 400 --input "$work/good.txt" --out "$work/no" --special-tokens "$list" 2>"$work/err"
        grep -qE "^error: --special-tokens: '.*' is (a token already|empty)" "$work/err"
    done
}

tokenizer_reads_the_same() {
    "$BUILD/prepare" train-tokenizer --vocab 400 --input - --format jsonl --out "$work/tok" <"$work/run/unique.jsonl"
    "$BUILD/prepare" train-tokenizer --vocab 400 --input "$work/good.txt" --out "$work/tok_text"
    cmp "$work/tok/tokenizer.json" "$work/tok_text/tokenizer.json"
    gzip -c "$work/good.txt" >"$work/good.txt.gz"
    "$BUILD/prepare" encode --special --tokenizer "$work/tok" "$work/good.txt.gz" >"$work/ids"
    "$BUILD/prepare" encode --special --tokenizer "$work/tok" - <"$work/good.txt" | cmp - "$work/ids"
    "$BUILD/prepare" decode --tokenizer "$work/tok" "$work/ids" | cmp - "$work/good.txt"
}

# Broken input is mended and counted, and never stops a preparation, unless asked to.
broken_input_is_counted() {
    printf '{"body": "one \377 two"}\n{"text": "x"}\n[1]\n{"body": "three\\u0000"}\n{"body": " "}\n' >"$work/bad.jsonl"
    ends_with 3 tokens --input "$work/bad.jsonl" --field body --val 0 --out "$work/bad" 2>"$work/err"
    cat "$work/err"
    grep -q '^warning: .*bad.jsonl: 3 of 4 documents are lost: 2 bad lines, 0 too long, 1 with ill-formed UTF-8' "$work/err"
    grep -q "bad.jsonl:2: left out: no field 'body'" "$work/err"
    grep -q '^2 bad lines left out, 1 empty documents left out, 1 ill-formed sequences replaced, 1 NUL replaced$' "$work/err"
    grep -q '^train: 2 documents, 19 bytes, ' "$work/err"
    ends_in_error 1 "bad.jsonl:2: no field 'body'" "$BUILD/prepare" tokens --strict --input "$work/bad.jsonl" --field body --out "$work/bad"
    printf 'a\n\nb\n' | tokens --input - --separator-line '' --val 0 --out "$work/bad" 2>&1 | grep '^train: 2 documents, 4 bytes'
    gzip -c "$work/good.txt" | head -c 900 >"$work/cut.txt.gz"
    mkdir -p "$work/empty"
    refuses_both() { # COMMAND...
        ends_in_error 1 'cut.txt.gz: byte 900: the gzip data end too early' "$@" "$work/cut.txt.gz"
        ends_in_error 1 'empty: no file in it' "$@" "$work/empty"
    }
    refuses_both "$BUILD/prepare" filter
    refuses_both "$BUILD/prepare" dedup
    refuses_both "$BUILD/prepare" tokens --out "$work/bad" --input
}

# A few KB that unpack to a document above --max-document: a line of JSON is left out, a text ends every program.
long_documents_are_bounded() {
    local dir=$work/long program
    mkdir -p "$dir"
    { head -c 1500000 /dev/zero | tr '\0' a; } >"$dir/long.txt"
    gzip -c "$dir/long.txt" >"$dir/text.gz"
    { printf '{"text": "'; cat "$dir/long.txt"; printf '"}\n{"text": "short"}\n'; } | gzip >"$dir/lines.jsonl.gz"
    printf '[recipe]\nout = "recipe"\n[source.a]\npath = "lines.jsonl.gz"\n[shards]\nval = 0\n' >"$dir/lines.toml"
    sed 's/lines.jsonl/text/' "$dir/lines.toml" >"$dir/text.toml"
    for program in "prepare filter --max-document @SIZE @INPUT" "prepare dedup --max-document @SIZE @INPUT" \
        "prepare tokens --out @DIR/tokens --vocab 257 --val 0 --max-document @SIZE --input @INPUT" \
        "prepare train-tokenizer --out @DIR/tokenizer --vocab 257 --max-document @SIZE --input @INPUT" \
        "prepare tokenizer count --tokenizer @DIR/../text --max-document @SIZE @INPUT" "prepare @RECIPE --tokenizer.vocab=257 --recipe.max_document=@SIZE"; do
        ends_with 3 long_document "$program" 1 lines.jsonl.gz # one of two is lost
        grep -E '^1 lines too long|too_long 1$' "$dir/log"
        grep 'jsonl.gz:1: left out: the line is longer than 1048576 bytes (raise .*max.document)' "$dir/log"
        long_document "$program" 2 lines.jsonl.gz
        if grep 'too.long' "$dir/log"; then return 1; fi
        if long_document "$program" 1 text.gz; then return 1; fi
        tail -n 1 "$dir/log" | grep '^error: .*text.gz:*1*: .*longer than 1048576 bytes (.*raise .*max.document)'
    done
    for program in encode decode; do
        ends_in_error 1 'text.gz: longer than 1048576 bytes (raise --max-document)' \
            "$BUILD/prepare" $program --tokenizer "$work/text" --max-document 1 "$dir/text.gz"
    done
    ends_in_error 1 'longer than 1048576 bytes' "$BUILD/prepare" tokenizer decode --tokenizer "$work/text" --max-document 1 "$dir/text.gz"
    # Without the option: 64 MiB.
    for ((i = 0; i < 45; i++)); do cat "$dir/text.gz"; done >"$dir/bomb.gz"
    ends_in_error 1 'bomb.gz:1: document 1 is longer than 67108864 bytes (is the separator right? If it is, raise --max-document)' \
        "$BUILD/prepare" filter "$dir/bomb.gz"
}

long_document() { # PROGRAM SIZE INPUT: the program with the two in it; its output in $work/long/log
    local command status=0
    read -ra command <<<"$1" # the names of folders come after that: they may have spaces
    command=("${command[@]/@SIZE/$2}")
    command=("${command[@]/@INPUT/"$work/long/$3"}")
    command=("${command[@]/@RECIPE/"$work/long/${3%%.*}.toml"}")
    command=("${command[@]/@DIR/"$work/long"}")
    rm -rf "$work/long/tokens" "$work/long/tokenizer" "$work/long/recipe"
    "$BUILD/${command[0]}" "${command[@]:1}" >"$work/long/log" 2>&1 || status=$?
    cat "$work/long/log"
    return $status
}

filter_options() {
    cd "$work"
    local filter
    filter=$(cd "$OLDPWD" && realpath "$BUILD/prepare")
    mkdir -p f && cd f
    # A dry run writes nothing.
    "$filter" filter "$work/web.jsonl" >dry.txt 2>/dev/null
    [ "$(ls)" = dry.txt ]
    cmp dry.txt "$work/run/filter.txt"
    # Rules, thresholds.
    "$filter" filter --rules guide.words "$work/web.jsonl" 2>/dev/null | tail -n 1 | grep "$all documents in, $short removed"
    "$filter" filter --rules guide.words --set guide.words.min=49 "$work/web.jsonl" 2>/dev/null | tail -n 1 | grep ', 0 removed'
    "$filter" filter --rules guide.words --set guide.words.max=100 "$work/web.jsonl" 2>/dev/null | tail -n 1 | grep ", $((all - signs)) removed"
    "$filter" filter --list | grep '^| gopher.words |'
    # The page has the rules and an example with its source, and loads nothing from elsewhere.
    "$filter" filter "$work/web.jsonl" --report page.html --examples 1 >/dev/null 2>&1
    grep -q '<h2 id="gopher.words">' page.html
    grep -q 'web.jsonl:2</small>' page.html
    # The first page that is too short stands on the second line: in the text too, with the value and the paper.
    grep -A1 '^by gopher.words: words (Rae et al., 2112.11446)$' dry.txt | grep "web.jsonl:2: 49, kept is 50 to 100000: [a-z ]"
    if grep -iE '<script|src=|href="http' page.html; then return 1; fi
    tail -c 10 page.html | grep '</html>'
    # Text as input is cut as everywhere else; what is written says where it comes from.
    "$filter" filter "$work/good.txt" --out kept.jsonl | tail -n 1 | grep "^$good documents in, 0 removed, $good kept"
    [ "$(wc -l <kept.jsonl)" = $good ]
    sed -n 3p kept.jsonl | grep "\"source\":\"$work/good.txt\",\"index\":2}\$"
    "$filter" filter --separator 'no such' "$work/good.txt" | tail -n 1 | grep '^1 documents in'
    # Rules that edit: what is written is what is left, and the bytes add up.
    printf 'the river and the house are here for you.\nno mark at the end of this one\nthat is of some use to people.\n' >edit.txt
    "$filter" filter --rules c4.line_end edit.txt --out edit.jsonl >edit.out
    grep '"text":"the river and the house are here for you.\\nthat is of some use to people.' edit.jsonl
    grep -v 'no mark' edit.jsonl
    [ "$(awk '$1 == "c4.line_end" { print $(NF - 1), $NF }' edit.out)" = '1 31' ]
    # Sources of a manifest.
    printf '[source.a]\npath = "%s"\n[source.b]\npath = "good.txt"\nseparator = "<|endoftext|>"\n' "$work/web.jsonl" >sources.toml
    cp "$work/good.txt" good.txt # paths are relative to the manifest's folder
    "$filter" filter --manifest sources.toml >sources.txt 2>/dev/null
    grep -q "^a: 1 file, $all documents" sources.txt
    grep -q "^b: 1 file, $good documents" sources.txt
    tail -n 1 sources.txt | grep "^$((all + good)) documents in, $((short + signs)) removed"
    # Errors: one line, and no output under its name.
    ends_in_error 2 'no input' "$filter" filter
    ends_in_error 2 "'--nonsense': no such option" "$filter" filter --nonsense 3 "$work/good.txt"
    ends_in_error 2 '\-\-out: takes a value' "$filter" filter "$work/good.txt" --out
    ends_in_error 2 'choose one' "$filter" filter "$work/good.txt" --separator x --separator-line y
    ends_in_error 2 '\-\-field: no input is JSONL' "$filter" filter "$work/good.txt" --field body --out no.jsonl
    ends_in_error 2 'guide.words.min is 100, above its max 50' "$filter" filter "$work/good.txt" --set guide.words.min=100 --set guide.words.max=50
    ends_in_error 1 'has no effect: c4.bad_words is not among the rules' "$filter" filter "$work/good.txt" --bad-words "$work/good.txt"
    [ ! -e no.jsonl.tmp ]
    ends_in_error 1 "examples: 'x'" "$filter" filter "$work/good.txt" --examples x
    ends_in_error 1 'missing: cannot read: No such file' "$filter" filter missing
    ends_in_error 1 'no/such.jsonl.tmp: cannot write' "$filter" filter "$work/good.txt" --out no/such.jsonl
    ends_in_error 1 'let the name end in .jsonl' "$filter" filter "$work/good.txt" --out kept.txt
    ends_in_error 1 'let the name end in .jsonl' "$filter" filter "$work/good.txt" --out kept.jsonl.gz
    ends_in_error 1 'web.jsonl:[0-9]*: not JSON' "$filter" filter "$work/web.jsonl" --strict --out strict.jsonl
    [ ! -e strict.jsonl ]
}

# Every output is a file of its own, and none is read as input.
outputs_stay_apart() {
    mkdir -p "$work/o/in/deep"
    cp "$work/good.txt" "$work/o/in"
    local o=$work/o
    ends_in_error 1 'same.jsonl: is being written already' "$BUILD/prepare" filter "$o/in" --out "$o/same.jsonl" --report "$o/same.jsonl"
    ends_in_error 1 'same.jsonl: is being written already' \
        "$BUILD/prepare" dedup "$o/in" --write "$o/same.jsonl" --removed "$o/in/../same.jsonl"
    ends_in_error 1 'kept.jsonl: lies in the input folder' "$BUILD/prepare" filter "$o/in" --out "$o/in/kept.jsonl"
    ends_in_error 1 'kept.jsonl: lies in the input folder' "$BUILD/prepare" dedup "$o/in" --write "$o/in/deep/kept.jsonl"
    ends_in_error 1 'no/page.html.tmp: cannot write' "$BUILD/prepare" filter "$o/in" --out "$o/kept.jsonl" --report "$o/no/page.html"
    [ ! -e "$o/same.jsonl" ] && [ ! -e "$o/kept.jsonl" ]
    # A limit on the size of files is an error like a full disk.
    too_large() { # PROGRAM ARGUMENT...
        (ulimit -f 1 && "$BUILD/$1" "${@:2}" >/dev/null 2>"$work/err") && return 1
        tail -n 1 "$work/err" | grep -q '^error: .*File too large'
    }
    too_large prepare filter "$work/web.jsonl" --out "$o/limit.jsonl"
    too_large prepare dedup "$work/run/kept.jsonl" --write "$o/limit.jsonl"
    too_large prepare tokens --input "$work/good.txt" --out "$o/limit"
    # A file may be cleaned in place; a pipe stays a pipe.
    cp "$work/run/kept.jsonl" "$o/kept.jsonl"
    dedup "$o/kept.jsonl" --write "$o/kept.jsonl" >/dev/null
    cmp "$o/kept.jsonl" "$work/run/unique.jsonl"
    mkfifo "$o/pipe.jsonl"
    cat "$o/pipe.jsonl" >"$o/read" &
    dedup "$work/run/kept.jsonl" --write "$o/pipe.jsonl" >/dev/null
    wait $!
    cmp "$o/read" "$work/run/unique.jsonl"
    [ -p "$o/pipe.jsonl" ]
}

# Documents of 3, 3, 2, 6 and 1 tokens, of which 0 begins each. Rows of 4: padded 1 + 1 + 1 + 2 + 1; packed 3 + 1 | 3 | 4 of 6 |
# 2 of 6 and 2. Rows of 8: padded 5, packed 6 + 2 | 3 + 3 + 1.
packing_beside_padding() {
    printf '\0\0\1\0\1\0\0\0\1\0\1\0\0\0\1\0\0\0\1\0\1\0\1\0\1\0\1\0\0\0' >"$work/five.bin"
    "$BUILD/show" packing "$work/five.bin:uint16" padded 4 8 | tr -s ' ' >"$work/padded"
    grep -qxF '5 documents, 15 tokens, 3.0 a document' "$work/padded"
    grep -qxF '| 4 | 6 | 62.50 % | 4 | 93.75 % | +50.0 % |' "$work/padded"
    grep -qxF '| 8 | 5 | 37.50 % | 2 | 93.75 % | +150.0 % |' "$work/padded"
}

make_corpus "$work"
passes 'packing: rows that are padded, and packed' packing_beside_padding
passes 'filter, dedup, prepare: the counts add up' counts_add_up
passes 'filter, dedup, prepare: the shards are those of the good pages as text' result_is_the_good_pages
passes 'prepare: more text than is taken at a time' large_input_is_read_in_parts
for packing in 'gzip gz' 'zstd zst'; do
    read -r packer end <<<"$packing"
    if command -v "$packer" >/dev/null 2>&1; then passes "$packer, standard input and folders: the same shards" packed_is_the_same "$packer" "$end"
    else echo "skip $packer, standard input and folders: the same shards (no program $packer)"
    fi
done
passes 'special tokens of a trained tokenizer' special_tokens
passes 'train-tokenizer, encode and decode read the same' tokenizer_reads_the_same
passes 'broken input is mended and counted' broken_input_is_counted
passes 'documents above --max-document, plain and packed' long_documents_are_bounded
passes 'filter: options, reports, errors' filter_options
passes 'filter, dedup: outputs stay apart' outputs_stay_apart
exit $failed
