#!/bin/bash
# test/test_train.sh: build/train from end to end, on a corpus that it makes: learning, resuming after every kind of
# stop, thread counts, run.minutes, and what a run leaves in its directory. (What a user can do wrong
# is in test_train_errors.sh.) Equal states are compared byte by byte.
# deeper: signals 1 to 31, each before the first update, in training, in the last save and in the last validation
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"

# ---- one straight run of 40 steps, and what it leaves behind

straight() { # FAMILY
    train "$1" "$1"
    [ ! -s "$work/$1.err" ]
    well_formed "$1" 40
}

leaves_files() {
    local dir=$runs/gpt file
    for file in config.toml log.txt loss.svg samples.txt metrics.jsonl report.html; do [ -s "$dir/$file" ]; done
    grep -q '^steps = 40' "$dir/config.toml"
    grep -q '<svg' "$dir/loss.svg"
    grep -q 'step *40/40' "$dir/log.txt"
    [ "$(sed '/^step  *1\/40/q' "$work/gpt.out" | wc -l)" -le 25 ]
    grep '^== step' "$dir/samples.txt" | cmp - <(printf '== step %d, sample 0\n' 10 20 30 40)
    value val step "$dir/metrics.jsonl" | cmp - <(printf '%s\n' 10 20 30)
    value end step "$dir/metrics.jsonl" | cmp - <(echo 40)
    find "$dir/checkpoints" -name 'step_*' -printf '%f\n' | cmp - <(echo step_00000040)
}

page_of_a_run() {
    local page=$runs/gpt/report.html
    grep -qF "$(grep '"event":"end"' "$runs/gpt/metrics.jsonl")" "$page"
    "$BUILD/show" plot "$runs/gpt" --html "$work/again.html" | grep -qx "$work/again.html"
    cmp <(sed 's/"dir":.*"config"//' "$page") <(sed 's/"dir":.*"config"//' "$work/again.html")
}

# TensorBoard's files, by a stand-in for the library that prints.
board_files() {
    printf '%s\n' 'class SummaryWriter:' '    def __init__(self, folder): print(folder)' '    def __enter__(self): return self' \
        '    def __exit__(self, *_): pass' '    def add_scalar(self, tag, value, step, walltime): print(tag, value, step)' >"$work/tensorboardX.py"
    PYTHONPATH=$work PYTHONDONTWRITEBYTECODE=1 python3 scripts/tensorboard.py "$runs/gpt" >"$work/board"
    [ "$(head -n 1 "$work/board")" = "$runs/gpt/tensorboard" ]
    [ "$(sed -n 's/^train\/loss //p' "$work/board" | cut -d ' ' -f 1)" = "$(value train loss "$runs/gpt/metrics.jsonl")" ]
    grep -q "^val/loss $(value end val_loss "$runs/gpt/metrics.jsonl") 40$" "$work/board"
    [ "$(grep -c '^time/forward_ms ' "$work/board")" = 40 ]
}

# The rate that was used is the schedule's: warm-up over 10 steps, then half a cosine down to a tenth at step 40.
follows_schedule() {
    value train lr "$runs/gpt/metrics.jsonl" | awk '{
        k = NR - 1; pi = atan2(0, -1)
        lr = k < 10 ? 3e-3 * (k + 1) / 10 : 3e-4 + 2.7e-3 * (1 + cos(pi * (k - 10) / 30)) / 2
        d = $1 - lr
        if (!((d < 0 ? -d : d) <= 1e-8 * lr)) { print "step " NR ": " $1 " instead of " lr; bad = 1 }
    } END { exit bad || NR != 40 }'
}

# The written config.toml is the whole configuration: run again from it alone, everything comes out the same.
resolved_config_runs() {
    cp "$runs/gpt/config.toml" "$work/resolved.toml"
    train resolved resolved
    same_state gpt resolved 40
    cmp <(history gpt) <(history resolved)
    cmp "$runs/gpt/samples.txt" "$runs/resolved/samples.txt"
}

threads_agree() { # FAMILY
    train "$1" "$1-threads" --run.threads=2
    same_state "$1" "$1-threads" 40
    cmp <(history "$1") <(history "$1-threads")
}

seed_matters() {
    train gpt seed --run.seed=7
    well_formed seed 40
    if cmp "$(checkpoint gpt 40)/model.safetensors" "$(checkpoint seed 40)/model.safetensors"; then return 1; fi
}

# MFU is tokens a second as a part of run.peak's; a peak of 0 is measured.
mfu_of_a_peak() {
    of_rate() { paste -d ' ' <(value train mfu "$runs/$1/metrics.jsonl") <(value train tok_s "$runs/$1/metrics.jsonl") |
        awk 'NR == 1 { print $1 / $2 }'; }
    train gpt peak-4000 --run.stop_at=2 --run.peak=4000 # no step of any processor beats these
    train gpt peak-2000 --run.stop_at=2 --run.peak=2000
    train gpt measured --run.stop_at=2 --run.peak=0
    close_to "$(of_rate peak-2000)" "$(awk -v a="$(of_rate peak-4000)" 'BEGIN { print 2 * a }')" 1e-4
    less 0 "$(value train mfu "$runs/measured/metrics.jsonl" | head -n 1)"
    grep -q "GFLOP/s on this model's shapes" "$work/measured.out"
    grep -q ' 2000 GFLOP/s by run.peak' "$work/peak-2000.out"
}

# With data.shuffle = false the first steps read the front of the text, however much follows it.
reads_in_order() {
    head -c 30000 "$work/text/train.txt" >"$work/front.txt"
    "$BUILD/prepare" tokens --train "$work/front.txt" --val-file "$work/text/val.txt" --tokenizer "$work/data" \
        --out "$work/front"
    train gpt order --data.shuffle=false --run.stop_at=5
    train gpt front --data.shuffle=false --run.stop_at=5 --data.train="$work/front/train_*.bin"
    same_state order front 5
    if cmp <(history order | head -n 5) <(history gpt | head -n 5); then return 1; fi # that one is shuffled
}

# Rows of whole documents: another batch than a cut one, and the same after a stop.
packs_documents() {
    local packed=(--data.document_mask=true --data.packing=best_fit --run.steps=6 --run.eval_every=0)
    train gpt packed "${packed[@]}"
    train gpt packed-half "${packed[@]}" --run.stop_at=3
    train gpt packed-half "${packed[@]}" --ckpt.resume=true
    grep -qE '^resumed: after step [0-9]+ of this run$' "$work/packed-half.out"
    same_state packed packed-half 6
    cmp <(history packed) <(history packed-half)
    train gpt masked "${packed[@]}" --data.packing=cut
    if cmp <(history packed | head -n 1) <(history masked | head -n 1); then return 1; fi
}

# ---- stopping and going on

# 20 steps and 20 more are 40 steps. (The straight run's validation at step 20 is a `val` line; the stopped
# run's was its `end`, which is dropped when it goes on.)
resumes() { # FAMILY
    local run=$1-half
    train "$1" "$run" --run.stop_at=20
    well_formed "$run" 20
    train "$1" "$run" --ckpt.resume=true
    same_state "$1" "$run" 40
    well_formed "$run" 40
    value resume step "$runs/$run/metrics.jsonl" | cmp - <(echo 20)
    grep -q '^# resume = "true"' "$runs/$run/config.toml" # another run begins from it anew
    cmp <(history "$1" | grep -v '"val","step":20,') <(history "$run")
    cmp "$runs/$1/samples.txt" "$runs/$run/samples.txt"
}

# The lowest validation loss so far, that of step 10, is in the checkpoint of a run that resumed after it.
best_is_carried_on() {
    train gpt best --run.stop_at=15
    train gpt best --run.stop_at=18 --ckpt.resume=true
    close_to "$(sed -n 's/.*"best_val": *\([^,}]*\).*/\1/p' "$(checkpoint best 18)/manifest.json")" \
        "$(value val val_loss "$runs/best/metrics.jsonl")" 1e-8
}

resume_when_finished() {
    train gpt gpt-half --ckpt.resume=true
    same_state gpt gpt-half 40
    well_formed gpt-half 40
}

# Without a checkpoint, auto starts a new run; true refuses, and leaves no files.
resume_of_nothing() {
    local status=0
    train gpt fresh --ckpt.resume=true || status=$?
    [ $status = 1 ]
    grep -q "^error: $runs/fresh: ckpt.resume = true, but there is no checkpoint (try --ckpt.resume=auto" "$work/fresh.err"
    [ ! -e "$runs/fresh" ]
    train gpt fresh --ckpt.resume=auto --run.stop_at=20
    train gpt fresh --ckpt.resume=auto
    same_state gpt fresh 40
    value resume step "$runs/fresh/metrics.jsonl" | cmp - <(echo 20)
}

# A second start without a flag is a new run beside the first, says so first, and leaves the first as it is. So does a
# third, and one after a run that died before its first checkpoint.
a_name_is_taken() {
    local kept n
    train gpt taken --run.stop_at=2
    kept=$(find "$runs/taken" -type f -exec cksum {} + | sort)
    for n in 2 3; do
        train gpt taken --run.stop_at=1
        head -n 1 "$work/taken.out" | grep -qE "^$runs/taken holds a run already: this new one is $runs/taken-$n \(--ckpt.resume=true"
        grep -q "^name = \"taken-$n\".*taken is taken" "$runs/taken-$n/config.toml"
        [ -d "$(checkpoint "taken-$n" 1)" ]
        well_formed "taken-$n" 1
    done
    [ "$(find "$runs/taken" -type f -exec cksum {} + | sort)" = "$kept" ]
    rm -r "$runs/taken-2/checkpoints" # as a run that died
    kept=$(find "$runs/taken-2" -type f -exec cksum {} + | sort)
    train gpt taken-2 --run.stop_at=1
    head -n 1 "$work/taken-2.out" | grep -qE "^$runs/taken-2 holds a run already: this new one is $runs/taken-2-2$"
    [ "$(find "$runs/taken-2" -type f -exec cksum {} + | sort)" = "$kept" ]
    train gpt taken-2 --run.stop_at=1 --ckpt.resume=auto # begins again, in its place
    [ -d "$(checkpoint taken-2 1)" ]
    well_formed taken-2 1
    printf '%s\n' '[ckpt]' 'resume = true' | cat "$work/gpt.toml" - >"$work/resumed.toml" # as a word, without quotes
    train resumed taken --run.stop_at=3
    value resume step "$runs/taken/metrics.jsonl" | cmp - <(echo 2)
}

# Goes on with run NAME up to a step, does the same without a stop, and compares.
goes_on() { # FAMILY NAME STEP
    train "$1" "$2" --run.steps=1000000 --run.stop_at="$3" --ckpt.resume=true
    train "$1" "$2-straight" --run.steps=1000000 --run.stop_at="$3"
    same_state "$2" "$2-straight" "$3"
    well_formed "$2" "$3"
}

# A run writes through no link and waits for no pipe; what lies there is named. A link to a folder may stay.
refuses_links() {
    local name
    mkdir -p "$runs/linked" "$work/elsewhere"
    ln -s "$work/elsewhere" "$runs/linked/checkpoints"
    for name in log.txt metrics.jsonl samples.txt; do
        ln -s "$work/elsewhere/file" "$runs/linked/$name"
        ! train gpt linked --run.stop_at=1
        grep -q "^error: $runs/linked/$name: a symbolic link, where a run writes a plain file" "$work/linked.err"
        rm "$runs/linked/$name" && mkfifo "$runs/linked/$name"
        ! timeout 30 "$BUILD/train" "$work/gpt.toml" --run.name=linked --run.stop_at=1 2>"$work/linked.err" </dev/null
        grep -q "^error: $runs/linked/$name: a pipe, where" "$work/linked.err"
        rm "$runs/linked/$name"
    done
    [ ! -e "$work/elsewhere/file" ]
    train gpt linked --run.stop_at=1
    [ -d "$work/elsewhere/step_00000001" ]
}

# at MOMENT NAME: starts run NAME and waits until it is there; sets pid
at() {
    case $1 in
    before) # it has opened the pipe, and waits for what is in it
        mkfifo "$work/$2.floor"
        launch gpt "$2" --run.stop_at=3 --data.floor="$work/$2.floor"
        exec 3>"$work/$2.floor"
        return ;;
    train) launch gpt "$2" --run.steps=1000000 --run.stop_at=2000 --run.eval_every=1 ;;
    save) launch gpt "$2" --run.stop_at=3 --run.eval_every=0 --run.fault=slowdisk:step=3,seconds=0.5 ;;
    val) launch gpt "$2" --run.stop_at=3 --run.eval_every=0 --eval.stride=1 --eval.tokens=20000 --sample.count=0 ;; # a window a token
    esac
    case $1 in
    train) wait_for_step "$2" 5 "$pid" ;;
    save) wait_for_step "$2" 3 "$pid" ;;
    val) until grep -qs '"event":"save"' "$runs/$2/metrics.jsonl"; do kill -0 "$pid"; sleep 0.02; done ;;
    esac
}

# What each signal does, as train.md says: one that asks ends the run after its step (or batch of an evaluation) with a
# checkpoint, or before the first update at once, for there is nothing to save yet. It says so once, and the command
# that it prints goes on at that step. A fault ends it, and it begins again. Others change nothing.
signal_at() { # MOMENT SIGNAL
    local run=$1-$2 status=0 want=0 said=1 step words='stopped by a signal after step'
    at "$1" "$run"
    kill -s "$2" "$pid"
    case $2 in
    STOP | TSTP | TTIN | TTOU | CHLD | CONT | URG | XFSZ | WINCH)
        case $2 in STOP | T[ST]??) sleep 0.2; kill -s CONT "$pid" ;; esac
        if [ "$1" = train ]; then kill "$pid"; else said=0; fi ;;
    ILL | TRAP | ABRT | BUS | FPE | KILL | SEGV | SYS) said=0 want=$((128 + $(kill -l "$2"))) ;;
    PIPE) ;; # what it stands for is seen at a line that is written
    *) [ "$1" != before ] || said=0 want=$((128 + $(kill -l "$2"))) ;;
    esac
    if [ "$1" = before ]; then
        cat "$work/text/floor.json" >&3 || true
        exec 3>&-
    fi
    wait "$pid" || status=$?
    [ $status = $want ]
    [ "$(cat "$work/$run.out" "$work/$run.err" | sed -n "/^$words/p" | wc -l)" = $said ]
    [ -z "$(find "$runs/" -path "*/$run/*.tmp" ! -path '*/checkpoints/*')" ]
    if [ $want = 0 ]; then [ ! -s "$runs/$run/lock" ]; fi
    rm -f "$work/$run.floor" && cp "$work/text/floor.json" "$work/$run.floor"
    step=$(value save step "$runs/$run/metrics.jsonl" 2>/dev/null | tail -n 1) || true
    [ $want != 0 ] || [ -d "$(checkpoint "$run" "$step")" ]
    local on=(train gpt "$run" --ckpt.resume=auto --run.steps=1000000 --eval.tokens=100 --sample.count=0)
    if [ $said = 1 ]; then
        [ "$(sed -n "s/^$words \([0-9]*\);.*/\1/p" "$work/$run".[oe][ur][tr])" = "$step" ]
        mapfile -t line < <(sed -n "/^$words/{ n; p; }" "$work/$run".[oe][ur][tr])
        on=(eval "${line[0]} --run.steps=1000000 --eval.stride=16 --eval.tokens=100 >$work/$run.out")
    fi
    "${on[@]}" --run.stop_at=$((step + 2))
    [ "${step:-0}" = 0 ] || grep -q "^resumed: after step $step of this run" "$work/$run.out"
    well_formed "$run" $((step + 2))
    if [ "$1" = train ] && [ $said = 1 ]; then goes_on gpt "$run" $((step + 3)); fi
}

# nohup: the run goes on.
ignores_hangup() {
    local pid
    trap '' HUP
    launch gpt nohup --run.steps=1000000 --run.stop_at=20000
    wait_for_step nohup 5 "$pid"
    kill -s HUP "$pid"
    wait_for_step nohup 50 "$pid"
    kill "$pid"
    wait "$pid"
    grep -q '^stopped by a signal' "$work/nohup.out"
}

# `build/train ... | head`: the run ends as by a signal, with a checkpoint, and says on standard error how to go on.
nobody_reads() {
    local step status
    "$BUILD/train" "$work/gpt.toml" --run.name=head --run.steps=1000000 --run.stop_at=20000 --run.log_every=1 2>"$work/head.err" </dev/null |
        head -n 30 >"$work/head.out"
    status=${PIPESTATUS[0]}
    [ "$status" = 0 ]
    step=$(value end step "$runs/head/metrics.jsonl")
    [ "$step" -gt 0 ] && [ "$step" -lt 20000 ]
    [ -d "$(checkpoint head "$step")" ]
    grep -q "^stopped by a signal after step $step; to go on:" "$work/head.err"
}

# kill -9 leaves what was on disk at that moment; here the left-overs of the worst moments are added.
kill_is_survived() { # FAMILY NAME [OPTION...]
    local run=$1-$2 pid status=0
    launch "$1" "$run" --run.steps=1000000 --run.stop_at=2000 --run.save_every=5 --run.eval_every=1 "${@:3}"
    wait_for_step "$run" 12 "$pid"
    kill -KILL "$pid"
    wait "$pid" || status=$?
    [ $status = 137 ]
    printf '{"event":"train","step":99' >>"$runs/$run/metrics.jsonl"
    mkdir "$runs/$run/checkpoints/step_00999999.tmp"
    goes_on "$1" "$run" $(($(value save step "$runs/$run/metrics.jsonl" | tail -n 1) + 8))
    [ ! -e "$runs/$run/checkpoints/step_00999999.tmp" ]
}

# The last save fails for lack of room: status 1, said so; the checkpoint before is whole, and the run can go on.
failed_save_is_said() {
    local status=0
    train gpt full --run.stop_at=10
    (
        trap '' XFSZ
        ulimit -f 200 # blocks of 1024 bytes; the weights take more
        train gpt full --run.stop_at=20 --ckpt.resume=true
    ) || status=$?
    [ $status = 1 ]
    grep -q 'NOT saved' "$work/full.out"
    find "$runs/full/checkpoints" -name 'step_*' -printf '%f\n' | cmp - <(echo step_00000010)
    train gpt full --ckpt.resume=true
    same_state gpt full 40
}

# Saves in the background: the same bytes, committed by the time the run ends; a later step reports a failure, and the
# run goes on.
saves_beside_training() {
    local status=0 step
    train gpt beside --ckpt.async=true --run.save_every=1 --ckpt.keep=3 --ckpt.keep_every=10
    same_state gpt beside 40
    ls -d "$runs/beside/checkpoints"/step_*[0-9] | sed 's/.*step_0*//' | cmp - <(printf '%d\n' 10 20 30 38 39 40)
    value save step "$runs/beside/metrics.jsonl" | cmp - <(seq 40) # every one, in order, each once
    grep -q ' MB in .* s (.* MB/s), training stood still for ' "$work/beside.out"
    train gpt beside-full --ckpt.async=true --run.stop_at=10
    (
        trap '' XFSZ
        ulimit -f 200
        train gpt beside-full --ckpt.async=true --run.save_every=5 --run.stop_at=20 --ckpt.resume=true
    ) || status=$?
    [ $status = 1 ]
    for step in 15 20; do grep -q "checkpoint of step $step NOT saved: .*File too large" "$work/beside-full.out"; done
    find "$runs/beside-full/checkpoints" -name 'step_*' -printf '%f\n' | cmp - <(echo step_00000010)
    train gpt beside-full --ckpt.resume=true
    same_state gpt beside-full 40
}

# ---- run.minutes: measuring leaves no trace; the length is kept, can be repeated to the bit, and grows with the minutes

minutes() {
    local n
    train gpt minutes --run.steps=0 --run.minutes=0.2 --run.stop_at=3
    n=$(value start steps "$runs/minutes/metrics.jsonl")
    [ "$n" -gt 6 ]
    sed 's/^\[run\]/&\nminutes = 500/' "$work/gpt.toml" >"$work/both.toml" # steps that are given win
    train both minutes-straight --run.steps="$n" --run.stop_at=3
    [ "$(value pace steps "$runs/minutes-straight/metrics.jsonl" | wc -l)" = 0 ]
    same_state minutes minutes-straight 3
    train gpt minutes --run.steps=0 --run.minutes=500 --run.stop_at=6 --ckpt.resume=true
    value resume steps "$runs/minutes/metrics.jsonl" | cmp - <(echo "$n")
}

minutes_kept() {
    local n scored file=$runs/kept/metrics.jsonl
    sed '/^eval_every/d; /^decay_steps/d; /^sample_every/d; /^tokens = 1000$/d' "$work/gpt.toml" >"$work/paced.toml"
    local experts=(--model.experts=4 --moe.balance=bias --model.activation=swiglu) # whose biases the updates that are timed move
    train paced kept --run.steps=0 --run.minutes=0.03 "${experts[@]}" --eval.stride=1 # scoring all would take longer
    scored=$(value start eval_tokens "$file")
    [ "$scored" -gt 0 ]
    cp "$runs/kept/config.toml" "$work/template.toml"
    train template template --run.stop_at=1 # a run of as many minutes
    grep -q '^minutes = 0.03 ' "$runs/template/config.toml"
    sed '/^minutes/d' "$work/template.toml" >"$work/steps.toml"
    train steps template-steps --run.steps=7
    grep -q '^# decay_steps = 7  # derived' "$runs/template-steps/config.toml"
    n=$(value train step "$file" | tail -n 1)
    [ "$(value pace steps "$file" | tail -n 1)" = "$n" ]
    value val step "$file" | awk 'END { exit NR < 1 || NR > 9 }' # at the tenths; a slow step may pass several
    train paced kept --run.steps=0 --run.minutes=0.05 --ckpt.resume=true "${experts[@]}" --eval.stride=1
    [ "$(value resume eval_tokens "$file")" = "$scored" ]
    less "$n" "$(value train step "$file" | tail -n 1)"
    train paced again --run.steps=0 --run.minutes=0.05 --run.pace="$file" --run.peak=0.001 "${experts[@]}"
    same_state kept again "$(value train step "$file" | tail -n 1)"
    value train mfu "$runs/again/metrics.jsonl" | awk '$1 > 1 { exit 1 }' # whatever the peak was thought to be
}

# ---- learning

# No model that ignores context can have a lower loss than the entropy of the scored tokens' own frequencies, so a loss
# below that was learned from context. The shard's tokens follow a header of 1024 bytes, 2 bytes each; the
# first one is not scored.
unigram_entropy() {
    od -An -v -tu2 -w2 -j1026 "$work/data/val_000000.bin" | awk '
        { count[$1 + 0]++ }
        END { for (t in count) h -= count[t] * log(count[t] / NR); printf "%.6f\n", h / NR }'
}

learns() { # FAMILY
    local file=$runs/$1-learns/metrics.jsonl loss floor entropy tokens bytes
    train "$1" "$1-learns" --model.context=32 --batch.tokens=512 --run.steps="$steps" --optim.decay_steps="$steps" --eval.tokens=0 --run.eval_every=0 \
        --data.floor="$work/text/floor.json" --run.sample_every=0 --run.threads=2
    well_formed "$1-learns" "$steps"
    loss=$(value end val_loss "$file") floor=$(value end floor_loss "$file")
    entropy=$(unigram_entropy)
    less "$loss" "$entropy"
    less "$(value train loss "$file" | tail -n 1)" "$entropy"
    less "$(awk -v f="$floor" 'BEGIN { print f * 0.999 }')" "$loss"
    # bits per byte = nats per token * tokens / (bytes ln 2); the bytes are those between the stories' separators
    tokens=$(($(wc -c <"$work/data/val_000000.bin") / 2 - 513))
    bytes=$(sed -n '/"val"/,$s/.*"bytes": *\([0-9]*\).*/\1/p' "$work/text/floor.json")
    bits() { awk -v nats="$1" -v n="$tokens" -v b="$bytes" 'BEGIN { printf "%.9f", nats * n / b / log(2) }'; }
    close_to "$(value end val_bpb "$file")" "$(bits "$loss")" 1e-6
    close_to "$(value end floor_bpb "$file")" "$(bits "$floor")" 1e-6
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
sed -i 's/^context = 32/context = 16/; s/^tokens = 512/tokens = 256/' "$work/gpt.toml" "$work/llama.toml"
for family in gpt llama; do
    [ $family = gpt ] && steps=150 || steps=80
    passes "$family: 40 steps" straight $family
    passes "$family: 20 steps + resume + 20 are 40, byte for byte" resumes $family
    passes "$family: threads do not change a bit" threads_agree $family
    passes "$family: learns context" learns $family
done
passes 'a run leaves its files' leaves_files
passes 'the phases of a step add up' phases_add_up gpt data_ms forward_ms backward_ms optim_ms
passes 'the page of a run' page_of_a_run
if command -v python3 >/dev/null; then passes 'files for TensorBoard' board_files; else echo 'skip TensorBoard (no python3)'; fi
passes 'the learning rate follows the schedule' follows_schedule
passes 'the written config repeats the run' resolved_config_runs
passes 'another seed, another run' seed_matters
passes 'MFU is a fraction of run.peak' mfu_of_a_peak
passes 'data.shuffle = false reads in order' reads_in_order
passes 'rows of whole documents' packs_documents
passes 'the best validation loss is carried on' best_is_carried_on
passes 'resuming a finished run changes nothing' resume_when_finished
passes 'resuming where nothing was: refused, or begun' resume_of_nothing
passes 'a second start takes a new folder' a_name_is_taken
passes 'links and pipes in the folder are refused' refuses_links
hangup=HUP
if [ $((0x$(sed -n 's/^SigIgn:[[:space:]]*//p' /proc/$$/status) & 1)) = 1 ]; then hangup=; echo 'skip SIGHUP (this script ignores it: nohup)'; fi
for row in before:"$hangup" train:"$hangup" train:INT val:TERM save:USR1; do
    [ -z "${row#*:}" ] || passes "SIG${row#*:}, ${row%:*}" signal_at "${row%:*}" "${row#*:}"
done
for ((number = 1; number <= 31; number++)); do
    for moment in before train save val; do
        [ -d "$runs/$moment-$(kill -l $number)" ] || deeper passes "signal $number, $moment" signal_at $moment "$(kill -l $number)"
    done
done
passes 'nohup: SIGHUP is ignored' ignores_hangup
passes 'a pipe that nobody reads any more: saves, exit 0' nobody_reads
passes 'SIGKILL, resume' kill_is_survived gpt KILL
passes 'SIGKILL with saves on their way, resume' kill_is_survived gpt KILL-async --ckpt.async=true
passes 'a save that fails is said and does no harm' failed_save_is_said
passes 'saves beside training are the same' saves_beside_training
passes 'run.minutes: measuring leaves no trace' minutes
passes 'run.minutes are kept, repeated to the bit, and added to' minutes_kept
exit $failed
