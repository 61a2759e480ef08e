#!/bin/bash
# test/test_crash.sh: a few of each of `make crash`.
# deeper: more kills
exec "$(dirname "$0")/crash.sh" --quick
