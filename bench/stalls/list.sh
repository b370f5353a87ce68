#!/bin/sh
# Lists loads that wait for narrower stores (waiting_loads.c) in calls of several shapes, by source
# line, with the AVX2 kernels.
#
# Usage: list.sh FOLDER: FOLDER has calls (linked statically, at fixed addresses) and
# waiting_loads.so. Exits with 1 if there are such loads.
#
# SPDX-License-Identifier: MIT
set -eu

folder=$1
calls=50
found=0

for tool in qemu-x86_64 addr2line; do
    if ! command -v $tool >/dev/null 2>&1; then
        echo "bench-stalls: $tool is missing: make deps-all"
        exit 1
    fi
done

place_of() {
    addr2line -sfe "$folder/calls" "$1" | paste -sd ' ' | sed 's/ (discriminator.*//'
}

# shape TITLE ARGUMENTS...
shape() {
    title=$1
    shift
    ATTN_ISA=avx2 qemu-x86_64 -cpu max \
        -plugin "$folder/waiting_loads.so,out=$folder/loads,least=$calls" "$folder/calls" $calls "$@"
    if [ ! -s "$folder/loads" ]; then
        echo "$title: none"
        return
    fi
    found=1
    echo "$title: loads that wait, for each call"
    while read -r times load load_bytes store store_bytes; do
        echo "    $((times / calls)): $load_bytes bytes in $(place_of "$load")," \
            "after a store of $store_bytes bytes in $(place_of "$store")"
    done <"$folder/loads"
}

echo 'Loads that wait for a narrower store, AVX2 kernels on an emulated CPU:'
shape 'the smallest call' 1 1 1 1 8 0
shape '8 heads, 16 by 16, d 64' 8 8 16 16 64 0
shape '4 heads, 64 by 64, d 64, causal' 4 4 64 64 64 1
shape '2 heads, 100 rows on 1100 keys, d 64, causal' 2 2 100 1100 64 1
shape '4 heads, 197 by 197, d 15' 4 4 197 197 15 0
shape 'decode, 8 heads, 512 keys, d 64' 8 8 1 512 64 0
shape 'decode, 8 heads on 2, 1100 keys, d 128' 8 2 1 1100 128 0
exit $found
