#!/bin/bash
# test/test_slow_disk.sh: ckpt.on_full=save, where a checkpoint is due while two are still being written.
#
# The disk (slow_disk.c) holds the first two saves until the third is there. It is due last, and becomes the first,
# because training writes it itself. None is lost, each is saved once, all hold what they should, and the log says so.
. "$(dirname "$0")/train_common.sh"
prepare_corpus >"$work/prepare.log" 2>&1 || { cat "$work/prepare.log"; exit 1; }
cc -shared -fPIC -O1 -o "$work/slow_disk.so" test/slow_disk.c || exit 1

# LD_PRELOAD cannot name a folder with spaces in its name; LD_LIBRARY_PATH can.
saves_at_once() {
    local step
    SLOW_DISK='step_00000001 step_00000002' SLOW_DISK_UNTIL=$(checkpoint at-once 3) LD_PRELOAD=slow_disk.so \
        LD_LIBRARY_PATH=$work train gpt at-once --ckpt.async=true --ckpt.on_full=save --run.save_every=1 --ckpt.keep=0 --run.stop_at=4
    value save step "$runs/at-once/metrics.jsonl" | cmp - <(printf '%d\n' 3 1 2 4)
    grep -q 'checkpoint of step 3: written at once, in .* s, because 2 others are being written' "$work/at-once.out"
    [ "$(cat "$runs/at-once/checkpoints/latest")" = step_00000004 ]
    train gpt each --run.save_every=1 --ckpt.keep=0 --run.stop_at=4
    for step in 1 2 3 4; do same_state each at-once $step; done
}

passes 'a save that is due while two are being written' saves_at_once
exit $failed
