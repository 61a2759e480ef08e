#!/bin/bash
# test/test_monitor.sh: build/train on data with a stretch that is not text: the monitored run makes no update from
# those steps and from no other, ends with a lower loss than the run that trained on them, and is the same when it is
# stopped on the way.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"

# poison STEP STEPS KIND: from step STEP on (of 512 tokens, from 1) random tokens, or one token again and again, in
# $work/bad. A step reads one token more than it has inputs, so the stretch begins one token late.
poison() {
    local file=$work/bad/train_000000.bin first=$((512 * ($1 - 1) + 1))
    [ -d "$work/bad" ] || cp -r "$work/data" "$work/bad"
    awk -v n=$((512 * $2)) -v kind="$3" 'BEGIN {
        for (x = 1; n-- > 0;) {
            x = (x * 69069 + 1) % 4294967296
            token = kind == "one" ? 511 : int(x / 8388608)
            printf "\\%03o\\%03o", token % 256, int(token / 256)
        }
    }' >"$work/octal"
    # shellcheck disable=SC2059 # it is a format: a list of bytes
    printf "$(cat "$work/octal")" | dd of="$file" bs=1 seek=$((1024 + 2 * first)) conv=notrunc 2>/dev/null
}

brief() { # NAME [OPTION...]
    local name=$1
    shift
    train gpt "$name" --data.train="$work/bad/train_*.bin" --data.shuffle=false --run.steps=60 --optim.decay_steps=60 \
        --optim.lr=1e-3 --run.eval_every=0 --run.sample_every=0 --sample.count=0 "$@" ||
        { cat "$work/$name.err"; return 1; }
}

monitored() { brief "$@" --monitor.on_spike=skip --monitor.window=16 --monitor.max_skips=10; }

skips() { value skip step "$runs/$1/metrics.jsonl" | paste -sd ' '; }

# Steps 30 to 34 have a high loss, step 40 one of an ordinary height but with a large gradient.
only_the_bad_steps_are_skipped() {
    monitored skips --run.save_every=1 --ckpt.keep=0
    skips skips
    [ "$(skips skips)" = '30 31 32 33 34 40' ]
    local step file=$runs/skips/metrics.jsonl
    grep '"step":30,' "$file" | grep -q '"text":"loss .*standard deviations.*samples 464 to 479 skipped; look at these samples'
    grep '"step":40,' "$file" | grep -q '"text":"gradient norm .*samples 624 to 639 skipped; if it comes back, clip'
    for step in 30 31 32 33 34; do # and they left no trace
        cmp "$(checkpoint skips 29)/model.safetensors" "$(checkpoint skips "$step")/model.safetensors"
        cmp "$(checkpoint skips 29)/optim.safetensors" "$(checkpoint skips "$step")/optim.safetensors"
    done
    if cmp -s "$(checkpoint skips 29)/model.safetensors" "$(checkpoint skips 35)/model.safetensors"; then return 1; fi
    grep -q '"adam_step":54,' "$(checkpoint skips 60)/manifest.json"
    well_formed skips 60
}

# The messages name samples by numbers. The text of the first ones is the corpus' beginning.
samples_are_shown() {
    local show=("$BUILD/prepare" show "$runs/skips") text
    "${show[@]}" --sample 0 --count 40 | sed '/^== sample/d' | tr -d '\n' >"$work/shown"
    text=$(tr -d '\n' <"$work/text/train.txt" | head -c 500)
    grep -qF "<|endoftext|>$text" "$work/shown"
    grep '"step":30,' "$runs/skips/metrics.jsonl" | grep -q "build/prepare show $runs/skips --sample 464 --count 16"
    "${show[@]}" --sample 464 | grep -v '^== sample 464$' >"$work/shown"
    [ -s "$work/shown" ]
    if "${show[@]}" --sample -1 2>"$work/err"; then return 1; fi
    if "$BUILD/prepare" show "$work/nothing" 2>"$work/err"; then return 1; fi
    grep -q "nothing" "$work/err"
}

# Stopped while the windows fill, and among the skips.
resumed_run_is_a_straight_one() {
    monitored stopped --run.stop_at=10
    monitored stopped --run.stop_at=32 --ckpt.resume=true
    monitored stopped --ckpt.resume=true
    [ "$(skips stopped)" = "$(skips skips)" ]
    cmp <(history skips) <(history stopped)
    same_state skips stopped 60
    grep -q '"monitor"' "$(checkpoint stopped 60)/manifest.json"
}

unmonitored_run_ends_higher() {
    brief trusting --monitor.skip_z=0
    [ -z "$(skips trusting)" ]
    less "$(value end val_loss "$runs/skips/metrics.jsonl")" "$(value end val_loss "$runs/trusting/metrics.jsonl")"
    if grep -q '"monitor"' "$(checkpoint trusting 60)/manifest.json"; then return 1; fi
}

# Fewer skips in a row are allowed than the stretch has steps: the next step is the new level, and the run says so.
a_new_level() {
    brief level --monitor.on_spike=skip --monitor.window=16 --monitor.max_skips=3
    skips level
    [ "$(skips level | cut -d ' ' -f 1-3)" = '30 31 32' ]
    value skip step "$runs/level/metrics.jsonl" | awk '$1 > 32 && $1 < 33 + 16 { bad = 1 } END { exit bad }'
    grep -q 'step 33: loss .* accepted as the new level after 3 skips' "$runs/level/log.txt"
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
poison 30 5 random
poison 40 1 one
passes 'only the bad steps are skipped, without a trace' only_the_bad_steps_are_skipped
passes 'prepare show prints the samples that a message names' samples_are_shown
passes 'a resumed run is a straight one' resumed_run_is_a_straight_one
passes 'the run that trains on them ends higher' unmonitored_run_ends_higher
passes 'a row of spikes becomes the new level' a_new_level
exit $failed
