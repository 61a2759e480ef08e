# test/lsan.sh: which leaks are not ours. Sourced, from the repository root, by run.sh and by tests that run ranks under a sanitizer.
export LSAN_OPTIONS="suppressions=$PWD/test/lsan.supp:print_suppressions=0"
export HWLOC_PLUGINS_PATH=/dev/null # hwloc unloads its plugins; what they leak then has no name to suppress
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" # waiting_ranks.so may stand before its runtime
