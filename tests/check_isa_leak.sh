#!/bin/sh
# Disassembles a build and fails if an instruction is outside the kernel set that may use it.
#
# Usage: check_isa_leak.sh BUILD, with CC the compiler that made it and CROSS its tools' prefix
#
# SPDX-License-Identifier: MIT
set -eu

build=$1
cross=${CROSS-}
cc=${CC:-cc}
[ -z "$cross" ] || cc=${cross}gcc
objdump=${cross}objdump
nm=${cross}nm
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
case $($cc -dumpmachine) in
x86_64*) machine=x86_64 ;;
aarch64*) machine=aarch64 ;;
*)
    echo "no kernel set of this machine has instructions of its own"
    exit
    ;;
esac

# What code may use: `base` is what every CPU of the machine has. A new kernel set gets a row here.
allowed() {
    case $1 in
    avx2) echo vex ;;
    avx512 | avx512_*) echo evex ;;
    neon_bf16) echo bf16 ;;
    neon_dotprod) echo dotprod ;;
    neon_i8mm) echo i8mm ;;
    baseline | cli | limits | scalar | neon) echo base ;;
    *) echo "unknown kernel set $1: add it to $0" >&2 && return 1 ;;
    esac
}

# instructions WHAT FILE [FUNCTIONS]: prints what FILE may not contain, functions that the file
# FUNCTIONS lists excepted. On x86-64, VEX and EVEX code is known by its first byte, c4, c5 or 62
# after prefixes, which no other instruction has: no list of names could be complete.
instructions() {
    $objdump -dw "$2" | awk -v what="$1" -v machine=$machine -v file="$2" -v exempt="${3-}" '
    BEGIN {
        FS = "\t"
        while (exempt != "" && (getline name < exempt) > 0) skip[name] = 1
    }
    / <.*>:$/ { split($0, part, /[<>]/); function_name = part[2]; next }
    NF < 2 || function_name in skip { next }
    { lines++ }
    machine == "x86_64" {
        bytes = $2
        while (bytes ~ /^(26|2e|36|3e|64|65|67) /) bytes = substr(bytes, 4)
        first = substr(bytes, 1, 2)
        vex = first == "c4" || first == "c5"
        evex = first == "62"
        wide = evex || $3 ~ /%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])/
        # A masked load (memory first) faults under emulators on what the mask hides: see avx2/vec.h.
        masked_load = $3 ~ /^vp?maskmov[a-z]* +[^%]/
        bad = what == "base" ? vex || wide : what == "vex" ? wide || masked_load : 0
    }
    machine == "aarch64" {
        code = $3 " " $4
        # Dot products and matrix products of i8 and bf16, half-precision arithmetic, SVE and SME;
        # bfi and its like insert bit fields.
        bad = code ~ /^([su]dot|usdot|sudot|[su]mmla|usmmla|bf[a-z0-9]*) / && \
              code !~ /^bf(i|c|m|xil) / || \
              code ~ /[ {,\[][zp][0-9]+[.\/]/ || code ~ /^(smstart|smstop|rdvl) / || \
              (code ~ /^f/ && code !~ /^fcvt/ && code ~ /[ ,](v[0-9]+\.[48]?h|h[0-9]+)/) || \
              (code ~ /^[su]cvtf/ && code ~ /[ ,](v[0-9]+\.[48]?h|h[0-9]+)/)
        if (what == "bf16" && code ~ /^bf(dot|cvtn2?) /) bad = 0
        if (what == "dotprod" && code ~ /^sdot /) bad = 0
        if (what == "i8mm" && code ~ /^smmla /) bad = 0
    }
    bad && shown++ < 3 { print file ": " function_name ": " $3 " " $4 }
    END { if (!lines) print file ": nothing to disassemble" }'
}

# symbols SET FILE: a kernel set shares no function with others by name, and runs nothing at load.
symbols() {
    $objdump -h "$2" | awk -v file="$2" '
        $2 ~ /^\.(init_array|fini_array|preinit_array|ctors|dtors|init|fini)/ {
            print file ": section " $2 " runs code at load"
        }'
    $nm "$2" | awk -v file="$2" -v set="$1" '
        $(NF - 1) ~ /^[VvWwui]$/ { print file ": weak symbol " $NF }
        NF == 3 && $2 ~ /^[A-Z]$/ && $3 !~ "^attn_[a-z0-9_]+_" set "$" {
            print file ": exports " $3
        }'
}

# ---- First: it finds what it looks for ----------------------------------------------------------

caught() {
    text=$1 # a function or a declaration
    shift
    printf '%s\n' "$text" >"$temporary/leak.c"
    $cc -O1 -c "$temporary/leak.c" -o "$temporary/leak.o"
    if [ -z "$("$@" "$temporary/leak.o")" ]; then
        echo "check_isa_leak.sh does not notice with '$*': $text"
        exit 1
    fi
}
code() { echo "void f(void) { __asm__ volatile(\"$1\"); }"; }
if [ $machine = x86_64 ]; then
    caught "$(code 'vaddps %ymm0, %ymm0, %ymm0')" instructions base
    caught "$(code 'vmovss %fs:8, %xmm1')" instructions base
    caught "$(code 'shlx %rax, %rbx, %rcx')" instructions base
    caught "$(code 'vaddps %zmm0, %zmm0, %zmm0')" instructions base
    caught "$(code 'vaddps %zmm0, %zmm0, %zmm0')" instructions vex
    caught "$(code 'kmovw %eax, %k1')" instructions vex
    caught "$(code 'vaddps %ymm17, %ymm0, %ymm0')" instructions vex
    caught "$(code 'vmaskmovps 32(%rdi), %ymm2, %ymm3')" instructions vex
else
    for leak in 'sdot v0.4s, v1.16b, v2.16b' 'fmla v0.8h, v1.8h, v2.8h' 'fadd h0, h1, h2' \
        'bfdot v0.4s, v1.8h, v2.8h' 'add z0.s, z0.s, z1.s' 'smmla v0.4s, v1.16b, v2.16b' \
        'ld1w {z0.s}, p0/z, [x0]'; do
        caught "$(code ".arch armv8.6-a+fp16+dotprod+bf16+i8mm+sve; $leak")" instructions base
        case $leak in
        bfdot*) ;;
        *) caught "$(code ".arch armv8.6-a+fp16+dotprod+bf16+i8mm+sve; $leak")" instructions bf16 ;;
        esac
    done
fi
caught '__attribute__((weak)) void attn_f_set(void) {}' symbols set
caught '__attribute__((constructor)) static void attn_f_set(void) { __asm__ volatile(""); }' symbols set
caught 'void attn_f(void) {}' symbols set

# ---- Then: the objects, and what the linker made of them ----------------------------------------

report=$temporary/report
kernels=$temporary/kernels # the functions of the kernel sets with instructions of their own
: >"$report"
: >"$kernels"
count=0
for object in "$build"/src/*.o "$build"/src/*/*.o; do
    [ -e "$object" ] || continue
    set=$(basename "$(dirname "$object")")
    case $set:$(basename "$object") in
    src:*) set=baseline ;;
    limits:loops_*) # what each set is measured against, of which only the set's own may be used
        set=$(basename "$object" .o)
        set=${set#loops_}
        ;;
    esac
    what=$(allowed "$set")
    # kernels.o is a table.
    [ -z "$($nm "$object" | grep ' [Tt] ')" ] || instructions "$what" "$object" >>"$report"
    case $set in
    baseline | cli | limits) ;;
    *) symbols "$set" "$object" >>"$report" ;;
    esac
    [ "$what" = base ] || $nm "$object" | awk '$2 ~ /^[Tt]$/ { print $3 }' >>"$kernels"
    count=$((count + 1))
done
for linked in "$build/attn" "$build/libattn.so" "$build/libattn_openmp.so"; do
    [ ! -e "$linked" ] || instructions base "$linked" "$kernels" >>"$report"
    count=$((count + 1))
done

cat "$report"
echo "$count files checked"
[ ! -s "$report" ] && [ $count -gt 3 ]
