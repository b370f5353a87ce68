#!/bin/sh
# Draws what a benchmark run measured.
#
# Usage: plot.sh JSON FOLDER [PEERS]: the JSON of a run with limit/, attn/, length/ and modifier/ (or of
# several, in one argument), where to put the pictures, and a table of times of other libraries (see
# peers.gp).
#
# SPDX-License-Identifier: MIT
set -eu

json=$1 folder=$2 peers=${3-}
here=$(dirname "$0")
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
mkdir -p "$folder"

# shellcheck disable=SC2086 # a list of files
awk -f "$here/table.awk" $json >"$temporary/table"
awk -v context=1 -f "$here/table.awk" $json >"$temporary/caption"
isas=$(sed -n 's,^limit/\([^/]*\)/multiply-add.*,\1,p' "$temporary/table")
[ -n "$isas" ] || { echo "plot.sh: $json has no limit/*/multiply-add" >&2 && exit 1; }

# part NAME PATTERN SED: the rows whose names match, the names edited.
part() {
    grep "$2" "$temporary/table" | sed "$3" >"$temporary/$1"
}
# draw NAME FIXED: NAME.svg by NAME.gp, which finds its files in `data` and the kernel sets in `isas`.
# gnuplot's own name for the picture says nothing and its comments would change with its version.
draw() {
    gnuplot -e "data = '$temporary'; isas = '$(echo $isas)'" \
        -e "set terminal svg size $2 dynamic font 'sans-serif,13' background rgb 'white' name '$1'" \
        "$here/common.gp" "$here/$1.gp" >"$temporary/$1.svg"
    mv "$temporary/$1.svg" "$folder/$1.svg"
    echo "$folder/$1.svg"
}

for isa in $isas; do
    for dim in 64 128; do
        part "length-$isa-$dim" "^length/$isa/d$dim/" 's,^length/.*/,,'
    done
    part "attn-$isa" "^attn/$isa/" 's,^attn/[^/]*/[^/]*/,,'
    part "modifier-$isa" "^modifier/$isa/" 's,^modifier/[^/]*/,,'
    part "peak-$isa" "^limit/$isa/multiply-add" 's,^.*/,,'
    part "read-$isa" "^limit/$isa/read-128MiB" 's,^.*/,,'
done
draw length 760,480
draw roofline 760,560
draw modifiers 760,480
if [ -n "$peers" ] && [ -s "$peers" ]; then
    cp "$peers" "$temporary/peers"
    # A caption of its own: comment lines.
    sed -n 's/^# *//p' "$peers" >"$temporary/caption"
    draw peers 900,520
fi
