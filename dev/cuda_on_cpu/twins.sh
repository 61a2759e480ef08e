# dev/cuda_on_cpu/twins.sh: of which files of src/ the programs in tests/ are made, besides their own: the kernels, and the
# C files that they are compared with (their twins) or stand on. Whoever builds such a program sources it, in the
# repository's root: the tests, mutate.sh, scripts/gpu_check.sh, scripts/attention_ladder.sh.
#
# The programs: unit, attention_kernels, table (the whole op table against the CPU's), and ladder, which is
# dev/attention. All but table do without OpenBLAS: a test of kernels defines the few functions of dev_cpu.c, gemm.c and
# matmul.c that its twins call.

kernels_of() { # PROGRAM: CUDA files
    case $1 in
    attention_kernels | ladder) printf 'src/ops/%s.cu\n' attention flash elements ;;
    table) printf '%s\n' src/ops/*.cu ;;
    esac
}
twins_of() { # PROGRAM: C files. Of table only gpu_check.sh compiles them: where the library is, it is linked instead
    case $1 in
    attention_kernels) ls src/ops/attention.c src/base/{rng,check,clock}.c ;;
    ladder) ls src/base/{check,clock}.c ;;
    table) ls src/ops/*.c src/narrow/*.c src/check/dev_check*.c src/base/{check,clock,formats,params,rng}.c ;;
    esac
}
twin_objects() { # FOLDER PROGRAM: what compile_twins leaves
    twins_of "$2" | sed "s|.*/|$1/twin_|; s|c$|o|"
}
compile_twins() { # FOLDER PROGRAM...
    local file folder=$1
    shift
    for file in $(for program; do twins_of "$program"; done | sort -u); do
        ${CC:-gcc} -std=gnu11 -O1 -fopenmp-simd -Isrc -I. -c "$file" -o "$folder/twin_$(basename "$file" .c).o" || return 1
    done
}
