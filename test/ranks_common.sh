# test/ranks_common.sh: build/train on several ranks of this machine. Sourced behind test/train_common.sh.
launcher=$(command -v mpiexec.mpich || command -v mpiexec || ls /usr/lib64/mpich/bin/mpiexec)
budget=4000 # milliseconds: starting, and failing within 2 s
# MPICH keeps some memory until the process ends.
export LSAN_OPTIONS="suppressions=$PWD/test/lsan.supp:print_suppressions=0"

# ranks N CONFIG NAME [OPTION...]: as train, on N ranks
ranks() {
    local n=$1 file=$work/$2.toml name=$3
    shift 3
    timeout -k 10 120 "$launcher" -n "$n" "$BUILD/train" "$file" --run.name="$name" "$@" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null
}
