#!/bin/bash
# test/test_honest_pairs.sh: of 60 pairs of runs that compute the same (test/honest_pairs.sh), build/diff calls none different.
# long: a hundred small runs, some on four ranks
exec "$(dirname "$0")/honest_pairs.sh" 60
