#!/bin/bash
# test/test_parity.sh: a few of the layouts of `make parity`; one test is one layout. `make test-long`: an eleventh of them.
# deeper: an eleventh of all layouts
[ -n "${TEST_LONG:-}" ] && exec "$(dirname "$0")/parity.sh" --quick
exec "$(dirname "$0")/parity.sh" --quick --only full
