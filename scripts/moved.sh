#!/bin/sh
# scripts/moved.sh: what the earlier programs of build/ are now: it is copied to each of their names.
name=${0##*/} build=${0%/*}
case $name in
dedup | filter) now="prepare $name" ;;
tokenize) now='prepare tokenizer' ;;
*) now="show $name" ;;
esac
echo "error: $name: it is a command of another program now: $build/$now $*" >&2
exit 2
