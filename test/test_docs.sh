#!/bin/bash
# circle: docs
# test/test_docs.sh: the generated tables of README.md and doc/ say what the code says.
cd "$(dirname "$0")/.." || exit 1
if log=$(scripts/docs.sh --check 2>&1); then
    echo 'ok generated tables are current'
else
    echo 'not ok generated tables are current'
    printf '%s\n' "$log" | sed 's/^/  /'
    exit 1
fi
