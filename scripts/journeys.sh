#!/bin/bash
# scripts/journeys.sh [NAME...]: makes the journeys of doc/journeys.md: runs/journeys/NAME.md, all of them or those
# named. They are measured here, and `make docs` inserts them. The journey of CUDA compiles the kernels, which takes
# minutes.
set -euo pipefail
cd "$(dirname "$0")/.." || exit 1
one='build/train tiny --run.steps=2'
ddp='mpiexec -n 2 build/train tiny --run.steps=2'
data=runs/stories/data
mkdir -p runs/journeys

journey() { # NAME RUN [BASE]
    [ -z "$wanted" ] || [[ " $wanted " = *" $1 "* ]] || return 0
    RUN=$2 BASE=${3:-} MARKDOWN=1 scripts/journey.sh >"runs/journeys/$1.tmp"
    mv "runs/journeys/$1.tmp" "runs/journeys/$1.md"
}

wanted="$*"
journey one "$one"
journey ddp "$ddp" "$one"
journey zero "$ddp --parallel.zero=3" "$ddp"
journey tp "$ddp --parallel.tp=2" "$ddp"
journey cp "$ddp --parallel.cp=2" "$ddp"
journey pipeline "$ddp --parallel.pp=2" "$ddp"
journey ckpt "build/train tiny --run.steps=4 --run.stop_at=2 && build/train tiny --run.steps=4 --ckpt.resume=true" "$one"
journey bpe "build/prepare tokens --train $data/train.txt --val-file $data/val.txt --vocab 1024 --out runs/tokens"
journey cuda "build/train_gpu_on_cpu tiny --run.steps=2" "$one"
