#!/bin/bash
# test/test_crash.sh: a few of each of `make crash`.
# long: kills, stops, flipped bits and moves of whole runs
exec "$(dirname "$0")/crash.sh" --quick
