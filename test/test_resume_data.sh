#!/bin/bash
# test/test_resume_data.sh: a run of build/train that is resumed on other data says so, but not on the same data in
# other files; ranks whose files differ end the job.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"

options=(--run.steps=8 --run.sample_every=0 --sample.count=0 --run.eval_every=0 --run.save_every=4)
resume() { # NAME [OPTION...]: the first four steps of `begun`, and four more
    cp -r "$runs/begun" "$runs/$1"
    train gpt "$1" "${options[@]}" --ckpt.resume=true "${@:2}"
}
says_so() { # NAME
    grep -q '"event":"warn","step":4,.*"text":"other training data than the checkpoint.s: .*from their sample 64"' \
        "$runs/$1/metrics.jsonl"
    grep -q 'other training data' "$runs/$1/log.txt"
}

other_files_same_tokens() {
    train gpt straight "${options[@]}"
    train gpt begun "${options[@]}" --run.stop_at=4
    mkdir "$work/cut" "$work/raw"
    "$BUILD/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --tokenizer "$work/data" \
        --shard-tokens 20000 --out "$work/cut"
    [ -e "$work/cut/train_000001.bin" ]
    tail -c +1025 "$work/data/train_000000.bin" >"$work/raw/train.bin"
    resume same
    resume cut --data.train="$work/cut/train_*.bin"
    resume raw --data.train="$work/raw/train.bin:uint16"
    local name
    for name in same cut raw; do
        same_state straight $name 8
        if grep -q '"event":"warn"' "$runs/$name/metrics.jsonl"; then return 1; fi
    done
}

# The text of which losses are taken must not be learned: said, under any name, and the run goes on.
val_among_train() {
    mkdir "$work/both"
    ln "$work/data/val_000000.bin" "$work/both/train_1.bin"
    cp "$work/data/train_000000.bin" "$work/both/train_0.bin"
    train gpt both "${options[@]}" --run.stop_at=1 --data.train="$work/both/train_*.bin"
    grep -q "\"event\":\"warn\",.*data.val: $work/data/val_000000.bin is also among data.train" "$runs/both/metrics.jsonl"
    grep -c also "$runs/begun/log.txt" | grep -qx 0
}

# One token of many, at the end of the file, where no step of this run reads.
other_tokens() {
    cp -r "$work/data" "$work/changed"
    local file=$work/changed/train_000000.bin
    [ "$(tail -c 2 "$file" | od -An -tu2)" -ne 300 ]
    head -c -2 "$work/data/train_000000.bin" >"$file"
    printf '\x2c\x01' >>"$file"
    resume changed --data.train="$file"
    says_so changed
    train gpt changed "${options[@]}" --run.steps=9 --ckpt.resume=true --data.train="$file" # the new data are its own now
    [ "$(grep '"event":"warn"' "$runs/changed/metrics.jsonl" | grep -c 'than the checkpoint')" = 1 ]
    # A first start notices too, by the manifest: training or validation tokens, not in a copy without one, nor by an old one.
    shards() { train gpt "$1" "${options[@]}" --run.stop_at=1 --data.train="$2" --data.val="$3"; }
    warned() { grep -q "\"event\":\"warn\",.*\"text\":\"$2: other tokens than prepare wrote" "$runs/$1/metrics.jsonl"; }
    cp "$file" "$work/changed/val_000000.bin"
    shards replaced "$work/changed/train_*.bin" "$work/data/val_*.bin"
    warned replaced "$file"
    shards val "$work/data/train_*.bin" "$work/changed/val_*.bin"
    warned val "$work/changed/val_000000.bin"
    "$BUILD/prepare" show "$runs/replaced" 2>&1 >"$work/shown" | grep -q "^warn: $file: other tokens than prepare wrote"
    sed -i '/"hashes"/,/]/d' "$work/changed/manifest.json"
    shards old "$work/changed/train_*.bin" "$work/data/val_*.bin"
    rm "$work/changed/manifest.json"
    shards bare "$work/changed/train_*.bin" "$work/data/val_*.bin"
    if warned old "$file" || warned bare "$file"; then return 1; fi
}

other_order() {
    resume order --data.shuffle=false
    says_so order
    resume packed --data.packing=best_fit --data.document_mask=true
    says_so packed
    "$BUILD/prepare" train-tokenizer --input "$work/text/val.txt" --vocab 512 --out "$work/other"
    resume tokenizer --data.tokenizer="$work/other"
    says_so tokenizer
}

# A source's weight, and a source's name, from which its order is drawn.
other_mixture() {
    mixture() { # FILE WEIGHT NAME
        printf '[source.%s]\npath = "%s"\nweight = %s\n' a "$work/data/train_*.bin" "$2" "$3" "$work/data/val_*.bin" 1 >"$work/$1"
    }
    mixture first.toml 3 b
    mixture again.toml 3.0 b
    mixture weight.toml 2 b
    mixture name.toml 3 c
    rm -r "$runs/begun"
    train gpt begun "${options[@]}" --run.stop_at=4 --data.train="$work/first.toml"
    resume again --data.train="$work/again.toml"
    if grep -q 'other training data' "$runs/again/metrics.jsonl"; then return 1; fi
    resume weight --data.train="$work/weight.toml"
    says_so weight
    resume name --data.train="$work/name.toml"
    says_so name
}

# Each rank in a folder of its own, with a file of the same name, as on two machines.
ranks_with_other_files() {
    local which status=0
    "$BUILD/prepare" train-tokenizer --input "$work/text/val.txt" --vocab 512 --out "$work/another"
    for which in train val tokenizer; do
        rm -rf "$work/at0" "$work/at1"
        mkdir "$work/at0"
        cp "$work/data/"{train_000000.bin,val_000000.bin,tokenizer.json} "$work/at0"
        cp -r "$work/at0" "$work/at1"
        if [ $which = tokenizer ]; then cp "$work/another/tokenizer.json" "$work/at1"
        else cp "$work/changed/train_000000.bin" "$work/at1/${which}_000000.bin"; fi
        # shellcheck disable=SC2016
        "$launcher" -n 2 bash -c 'cd "$1/at$PMI_RANK" && shift && exec "$@"' - "$work" "$(realpath "$BUILD")/train" \
            "$work/gpt.toml" --run.name=differ --data.train=train_000000.bin --data.val=val_000000.bin --data.tokenizer=. \
            >"$work/out" 2>"$work/err" </dev/null || status=$?
        cat "$work/err"
        [ $status != 0 ]
        [ "$(grep -c 'error: ' "$work/err")" = 1 ]
        if [ $which = tokenizer ]; then grep -q '^rank 1: error: .: another tokenizer than rank 0 reads' "$work/err"
        else grep -q "^rank 1: error: ${which}_000000.bin: other tokens than rank 0 reads under that name" "$work/err"; fi
    done
    [ ! -e "$runs/differ/metrics.jsonl" ]
}

launcher=$(command -v mpiexec.hydra || command -v mpiexec)
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'the same tokens in other files: a straight run' other_files_same_tokens
passes 'a file for training and validation: a warning' val_among_train
passes 'another token: a warning, once' other_tokens
passes 'another order, packing, tokenizer' other_order
passes 'another mixture' other_mixture
passes 'ranks with other files end the job' ranks_with_other_files
exit $failed
