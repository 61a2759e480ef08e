#!/bin/bash
# test/test_parity.sh: a seventh of the layouts of `make parity`; one test is one layout.
exec "$(dirname "$0")/parity.sh" --quick
