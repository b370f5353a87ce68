#!/bin/sh
# Fails if tests/FAULTS.txt names a test that does not exist, or leaves out a fault of the project's
# list where that is present beside the repository.
#
# SPDX-License-Identifier: MIT
set -eu

table=tests/FAULTS.txt
list=${ATTN_SHARED:-../shared}/design/FAULTS.md
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

sed -n 's/^[ \t]*Test(\([a-z_]*\), *\([A-Za-z0-9_]*\).*/\1::\2/p' tests/*.c | sort -u >"$temporary/tests"
grep -v '^#' $table | awk 'NF' >"$temporary/rows"
awk '{ print $1 }' "$temporary/rows" | sort >"$temporary/ids"

failures=0
fail() {
    echo "$*"
    failures=$((failures + 1))
}
twice=$(uniq -d "$temporary/ids")
[ -z "$twice" ] || fail "$table has more than one row for: $twice"

# One name on each line: a test, a file, or nothing where the fault is for later.
awk '$2 == "later:" && NF > 2 { next } NF < 2 { print $1, "nothing" } { for (i = 2; i <= NF; i++) print $1, $i }' \
    "$temporary/rows" >"$temporary/names"
while read -r id name; do
    case $name in
    *::*) grep -q -x "$name" "$temporary/tests" || fail "$id: there is no test $name" ;;
    *) [ -e "$name" ] || fail "$id: there is no $name" ;;
    esac
done <"$temporary/names"

# A test named after a fault is in the row of that fault.
grep '^faults::' "$temporary/tests" >"$temporary/named"
while read -r name; do
    id=${name#faults::}
    id=${id%%_*}
    grep -q "^$id .*$name\( \|\$\)" "$temporary/rows" || fail "$table: $name is not in the row of $id"
done <"$temporary/named"

if [ -r "$list" ]; then
    sed -n 's/^| *\([A-Z][0-9][0-9]*\) *|.*/\1/p' "$list" | sort >"$temporary/listed"
    missing=$(comm -23 "$temporary/listed" "$temporary/ids")
    [ -z "$missing" ] || fail "$table lacks: $missing"
else
    echo "skipped: whether all faults of $list are there, which is not"
fi
[ $failures = 0 ]
