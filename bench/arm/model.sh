#!/bin/sh
# What the NEON kernels should cost on Arm CPUs, said by models on any machine:
#
# - instructions that a call executes, counted by a QEMU plugin;
# - cycles of the inner loops of the two products as llvm-mca schedules them, against those that the
#   multiply-adds alone would take.
#
# Usage: model.sh FOLDER GCC [CLANG...]: FOLDER has calls, count_instructions.so, and in gcc/ and
# clang/ the objects of src/neon. Tools that are missing are named, and what they would say left out.
#
# SPDX-License-Identifier: MIT
set -eu

folder=$1
here=$(dirname "$0")
cpus='cortex-a55 cortex-a76 neoverse-n1 neoverse-v2'

have() {
    command -v "$1" >/dev/null 2>&1
}
first_of() {
    for tool in "$@"; do
        if have "$tool"; then
            echo "$tool"
            return
        fi
    done
}

echo 'Models, not measurements: no Arm CPU took part in any of these figures.'

# ---- Instructions ------------------------------------------------------------------------------

# count ARGUMENTS...: instructions of one call by function, most first, without start-up.
count() {
    for calls in 1 2; do
        qemu-aarch64 -cpu max -plugin "$folder/count_instructions.so,out=$folder/count.$calls" \
            "$folder/calls" $calls "$@"
    done
    awk 'NR == FNR { once[$1] += $2; next } { n[$1] += $2 }
         END { for (f in n) if (n[f] > once[f]) print n[f] - once[f], f }' \
        "$folder/count.1" "$folder/count.2" | sort -rn
}

# instructions TITLE FMAS ARGUMENTS...
instructions() {
    title=$1 fmas=$2
    shift 2
    count "$@" >"$folder/counts"
    awk -v title="$title" -v fmas="$fmas" '
        $2 == "total" { total = $1; next }
        listed < 4 { list = list sprintf("    %-30s %9d\n", $2, $1); listed++ }
        END {
            printf "%s: %d, %.2f times its %d multiply-adds; most of them in\n%s", title, total,
                total / fmas, fmas, list
        }' "$folder/counts"
}

echo
if ! have qemu-aarch64; then
    echo 'Instructions: left out, qemu-aarch64 is missing (apt-get install qemu-user)'
elif [ ! -x "$folder/calls" ]; then
    echo 'Instructions: left out, there is no compiler for AArch64 (apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)'
elif ! qemu-aarch64 -plugin "$folder/count_instructions.so,out=$folder/count.1" "$folder/calls" 0 1 1 1 1 1 0 \
    2>"$folder/qemu.log"; then
    echo "Instructions: left out, $(qemu-aarch64 --version | sed 1q) does not take the plugin:"
    sed 's/^/    /' "$folder/qemu.log"
else
    echo "Instructions of a call ($(qemu-aarch64 --version | sed 1q), objects of $(sed 1q "$folder/gcc/settings" | cut -d')' -f1)))"
    echo
    # Multiply-adds on vectors of 4: pairs of row and key, times twice the features, by 4.
    instructions 'prefill, 1 head, 256 x 256, 64 features' $((256 * 256 * 128 / 4)) 1 1 256 256 64 0
    instructions 'decode, 32 heads on 8, 512 keys, 128 features' $((32 * 512 * 256 / 4)) 32 8 1 512 128 0
fi

# ---- Cycles of inner loops -----------------------------------------------------------------------

mca=${LLVM_MCA:-$(first_of llvm-mca-21 llvm-mca-20 llvm-mca-19 llvm-mca-18 llvm-mca-17 llvm-mca)}
objdump=$(first_of aarch64-linux-gnu-objdump llvm-objdump objdump)

# cycles CPU ASSEMBLY: of one turn.
cycles() {
    $mca -mtriple=aarch64 -mcpu="$1" -iterations=1000 "$2" 2>/dev/null |
        awk '/^Total Cycles/ { print $3 / 1000 }'
}

# loop COMPILER TITLE OBJECT FUNCTION: a row of the table.
loop() {
    $objdump -d --no-show-raw-insn "$folder/$1/src/neon/$3.o" |
        awk -v name="$4" -f "$here/loop.awk" >"$folder/loop.s"
    n=$(grep -c '^fml' "$folder/loop.s" || true)
    printf '%-6s %-24s %4d of %4d' "$1" "$2" "$n" "$(wc -l <"$folder/loop.s")"
    for cpu in $cpus; do
        echo "$n" "$(cycles "$cpu" "$folder/loop.s")" "$(cycles "$cpu" "$folder/fmas.s")" | awk '{
            if (NF < 3 || $2 == 0) printf " %18s", "-"
            else printf " %10.1f (%3.0f %%)", $2, 100 * $3 * $1 / 24 / $2
        }'
    done
    echo
}

echo
if [ -z "$mca" ]; then
    echo 'Inner loops: left out, llvm-mca is missing (apt-get install llvm-19)'
    exit
fi
echo "Cycles of a turn of the inner loops, and the part that the multiply-adds alone would take ($mca, $($mca --version | awk '/LLVM version/ { print "LLVM " $NF }'))"
echo
# 24 multiply-adds that do not wait for each other.
awk 'BEGIN { for (i = 0; i < 24; i++) printf "fmla v%d.4s, v28.4s, v30.s[%d]\n", i, i % 4 }' >"$folder/fmas.s"
printf '%-6s %-24s %12s' '' '' multiply-adds
printf ' %18s' $cpus
echo
for compiler in gcc clang; do
    if [ ! -e "$folder/$compiler/src/neon/qk_tile.o" ]; then
        echo "$compiler: left out, no such compiler for AArch64"
        continue
    fi
    loop $compiler 'QK, 4 rows x 16 keys' qk_tile qk_4x4
    loop $compiler 'PV, 4 rows x 16 columns' pv_tile pv_strided_4x4
    loop $compiler 'QK, 5 rows x 16 keys' qk_tile qk_5x4
    loop $compiler 'exp, 16 weights' softmax_rows exponentials
done
