#!/bin/bash
# dev/cuda_on_cpu/gpu.sh: compiles every CUDA file with nvcc, warnings as errors, and reports what each kernel takes:
# registers, static shared memory, bytes spilled. Needs no GPU; scripts/gpu_check.sh is for a machine that has one.
#
# usage: gpu.sh [ARCHITECTURE...]      sm_80 sm_90, unless given
#
# NVCC is nvcc of the PATH, else of /usr/local/cuda, unless set. ONLY, an extended regular expression, picks files by
# their names, in a look at some kernels: ONLY='flash|attention'. JOBS compile side by side, one a core unless set.
#
# A kernel that spills registers is a failure, and so is an attention kernel that has none in the report: then nobody
# has looked. The report of all kernels goes to $BUILD/cuda_registers.txt; the attention kernels' is printed, and kept
# as a table in runs/attention_registers.md where both files were compiled: ONLY='src/ops/(attention|flash)'.
set -u
cd "$(dirname "$0")/../.." || exit 1
here=dev/cuda_on_cpu
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
build=${BUILD:-build}
command -v "$nvcc" >/dev/null 2>&1 || { echo 'skip gpu.sh (no nvcc)'; exit 0; }
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu.XXXXXX") || exit 1
trap 'kill $(jobs -rp) 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
[ $# != 0 ] || set -- sm_80 sm_90
failed=0
mkdir -p "$build"

verdict() { # STATUS NAME LOG: 0 is ok; otherwise LOG says why
    if [ "$1" = 0 ]; then echo "ok $2"
    else
        echo "not ok $2"
        sed 's/^/  /' "$3" | head -n 20
        failed=1
    fi
}

# One line a kernel: file, architecture, kernel, registers, static shared bytes, bytes of spill stores and loads.
kernels() { # FILE ARCHITECTURE LOG
    c++filt <"$3" | awk -v file="$1" -v arch="$2" '
        /Compiling entry function/ {
            name = $0
            sub(/.*Compiling entry function ./, "", name)
            gsub(/\(anonymous namespace\)::/, "", name)
            sub(/^void /, "", name)
            sub(/\(.*/, "", name)
            gsub(/__nv_bfloat16/, "bf16", name); gsub(/__half/, "fp16", name); gsub(/ >/, ">", name)
            spill = 0
        }
        / bytes spill stores, / { # of the kernel, or of a function that it calls
            for (i = 2; i < NF; i++) if ($i == "bytes" && $(i + 1) == "spill") spill += $(i - 1)
        }
        / Used [0-9]+ registers/ {
            shared = 0
            for (i = 3; i <= NF; i++) if ($i ~ /^smem/) shared = $(i - 2)
            match($0, /Used [0-9]+/)
            printf "%s\t%s\t%s\t%d\t%d\t%d\n", file, arch, name, substr($0, RSTART + 5, RLENGTH - 5), shared, spill
        }'
}

flags=(-std=c++17 -O2 -lineinfo -Isrc -I. -Werror all-warnings -Xcompiler -Wall,-Wextra)
compile() { # NUMBER FILE ARCHITECTURE
    "$nvcc" "${flags[@]}" -arch="$3" -Xptxas -v -x cu -c "$2" -o "$work/$1.o" >"$work/$1.log" 2>&1
    echo $? >"$work/$1.status"
    rm -f "$work/$1.o"
}
n=0 list=()
for arch; do
    for file in src/*/*.cu dev/attention/*.cu \
        $here/tests/{unit,conformance,conversions,attention_kernels,table,blas,speed}.cu; do
        grep -qE "${ONLY:-.}" <<<"$file" || continue
        if grep -q '<nccl.h>' "$file" && ! echo '#include <nccl.h>' | "$nvcc" -x cu -E - >/dev/null 2>&1; then
            echo "skip $file (no nccl.h)"
            continue
        fi
        list+=("$file $arch")
        compile $n "$file" "$arch" &
        n=$((n + 1))
        [ "$(jobs -rp | wc -l)" -lt "${JOBS:-$(nproc)}" ] || wait -n
    done
done
wait
for ((i = 0; i < n; i++)); do
    read -r file arch <<<"${list[i]}"
    verdict "$(cat "$work/$i.status")" "$file compiles for $arch" "$work/$i.log"
    kernels "$file" "$arch" "$work/$i.log" >>"$work/report"
done

shown() { # of the report's lines: in columns
    printf '%-52s %-6s %9s %7s %6s\n' kernel arch registers shared spill
    awk -F '\t' '{ printf "%-52s %-6s %9d %7d %6d\n", $3, $2, $4, $5, $6 }'
}
attention() { grep -P '^src/ops/(attention|flash)\.cu\t' "$work/report"; }
shown <"$work/report" >"$build/cuda_registers.txt"
awk -F '\t' '$6 > 0' "$work/report" | shown >"$work/spilled"
[ "$(wc -l <"$work/spilled")" = 1 ]
verdict $? "no kernel spills registers ($(wc -l <"$work/report") kernels: $build/cuda_registers.txt)" "$work/spilled"
attention | shown
for arch; do
    for expected in flash:flash_forward_kernel flash:flash_backward_kernel attention:attention_; do
        file=src/ops/${expected%:*}.cu
        grep -qE "${ONLY:-.}" <<<"$file" || continue
        attention | grep -qP "^\Q$file\E\t$arch\t${expected#*:}" || echo "no ${expected#*:} for $arch" >>"$work/missing"
    done
done
[ ! -e "$work/missing" ]
verdict $? 'every attention kernel is in the report' "$work/missing"
# For the chapter: of bf16 and of whole tiles, a column an architecture.
table() {
    local archs=("$@")
    printf '| kernel |%s static shared memory | spilled bytes |\n' "$(printf ' registers, %s |' "${archs[@]}")"
    printf '|---|%s---:|---:|\n' "$(printf -- '---:|%.0s' "${archs[@]}")"
    attention | awk -F '\t' -v list="${archs[*]}" '
        $3 !~ /fp16|, 16,/ {
            if (!($3 in shared)) name[++n] = $3
            registers[$3, $2] = $4
            if ($5 >= shared[$3]) shared[$3] = $5
            if ($6 >= spill[$3]) spill[$3] = $6
        }
        END {
            count = split(list, arch, " ")
            for (i = 1; i <= n; i++) {
                line = "| `" name[i] "` |"
                for (k = 1; k <= count; k++) line = line " " registers[name[i], arch[k]] " |"
                print line " " shared[name[i]] + 0 " | " spill[name[i]] + 0 " |"
            }
        }'
}
if [ $failed = 0 ] && [ "$(attention | cut -f 1 | sort -u | wc -l)" = 2 ]; then
    mkdir -p runs && table "$@" >runs/attention_registers.md
fi
exit $failed
