#!/bin/sh
# What check.sh leaves out: other compilers, optimisation levels, sanitizers, CPUs and targets.
#
# SPDX-License-Identifier: MIT
set -eu
. tests/stages.sh

isas=$(host_isas)

# variant NAME ISAS SETTINGS...: builds everything another way and runs the test program; with quick=1
# only a tenth of the random problems, all of which check.sh runs, and so does clang's build.
variant() {
    name=$1 expected=$2
    shift 2
    folder=$BUILD/$(echo "$name" | tr -c 'A-Za-z0-9\n' '-')
    stage "$name: build" build BUILD="$folder" "$@" all "$folder/tests/attn_tests" "$folder/tests/stress/threads"
    [ $status = 0 ] || return 0
    # Without leaks: Criterion has one of its own. Those of the attn command are looked for.
    stage "$name: tests: $expected" run_tests "$expected" env \
        ATTN_TEST_QUICK="$quick" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
        "$folder/tests/attn_tests"
}

repeat() {
    times=$1
    shift
    while [ "$times" -gt 0 ]; do
        "$@"
        times=$((times - 1))
    done
}

header() {
    echo '#include "attn.h"' >"$BUILD/header.c"
    echo 'int main(void) { attn_problem p = attn_problem_init(); return attn_check(&p, 0, 0) == ATTN_OK; }' >>"$BUILD/header.c"
    strict='-pedantic -Wall -Wextra -Wconversion -Werror -fsyntax-only -Iinclude'
    for compiler in gcc clang; do
        have $compiler || continue
        for language in 'c -std=c99' 'c -std=c11' 'c -std=c17' 'c++ -std=c++98 -Wno-long-long' 'c++ -std=c++17'; do
            # shellcheck disable=SC2086 # lists of options
            $compiler -x $language $strict "$BUILD/header.c"
        done
    done
}
stage 'attn.h as C99, C11, C17 and C++' header

if have clang-format; then
    stage 'format' build check-format
else
    skip 'format' 'clang-format is missing'
fi

gcc_o3() {
    variant 'gcc -O3' "$isas" CC=gcc WERROR=1 CFLAGS=-O3
    stage 'gcc -O3: no instruction leaves its kernel set' env CC=gcc sh tests/check_isa_leak.sh "$BUILD/gcc--O3"
    stage 'gcc -O3: sums stay in registers' sh tests/check_spills.sh "$BUILD/gcc--O3"
    stage 'first call by many threads, in 100 processes' repeat 100 "$BUILD/gcc--O3/tests/stress/threads"
}
clang_build() {
    quick=0
    variant 'clang' "$isas" CC=clang WERROR=1 CFLAGS=-O2
    stage 'clang: no instruction leaves its kernel set' env CC=clang sh tests/check_isa_leak.sh "$BUILD/clang"
    stage 'clang: sums stay in registers' sh tests/check_spills.sh "$BUILD/clang"
}
sanitizers() {
    sanitize='-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'
    variant 'gcc with sanitizers' "$isas" CC=gcc CFLAGS="$sanitize"
    [ $status = 0 ] || return 0
    stage 'command line with sanitizers' env EMULATE= ATTN_TEST_QUICK=1 sh tests/cli.sh "$BUILD/gcc-with-sanitizers/attn"
}
# Criterion does not work under ThreadSanitizer, and gcc's OpenMP library gives it false alarms.
thread_sanitizer() {
    threads=$BUILD/tsan/tests/stress/threads
    stage 'ThreadSanitizer: build' build BUILD="$BUILD/tsan" CC=clang CFLAGS='-O1 -g1 -fsanitize=thread' "$threads"
    stage 'ThreadSanitizer: first call by many threads' \
        repeat 10 env TSAN_OPTIONS=ignore_noninstrumented_modules=1 "$threads"
}
arm64() {
    folder=$BUILD/arm64-werror
    stage 'AArch64: build with -Werror' build_arm64 WERROR=1 CFLAGS=-O2 BUILD="$folder" all "$folder/tests/attn_tests"
    [ $status = 0 ] || return 0
    stage 'AArch64: sums stay in registers' env OBJDUMP=aarch64-linux-gnu-objdump sh tests/check_spills.sh "$folder"
    stage 'AArch64: tests on an emulated Cortex-A53: neon' emulate 'neon scalar' \
        "qemu-aarch64 -cpu cortex-a53 -L $arm64_root" "$folder/tests/attn_tests"
}
# Compiled only: Debian's package of the libraries excludes the AArch64 compiler, and the kernel's
# headers are where only the 64-bit compiler looks.
gcc32="gcc -m32 -idirafter /usr/include/$(gcc -print-multiarch)"
i386() {
    stage '32-bit x86: compile' build CC="$gcc32" WERROR=1 BUILD="$BUILD/i386" "$BUILD/i386/libattn.a" \
        "$BUILD/i386/src/cli/main.o" "$BUILD/i386/src/cli/npy.o" "$BUILD/i386/src/cli/memory.o" "$BUILD/i386/src/cli/oracle.o"
}
build_and_verify() {
    build CC=musl-gcc WERROR=1 CFLAGS=-O1 LDFLAGS=-static OPENMP= BUILD="$BUILD/musl" "$BUILD/musl/attn"
    "$BUILD/musl/attn" verify
}
musl() { stage 'musl: build and attn verify' build_and_verify; }

# The longest first. Without -g, which takes time to compile, where no one reads it.
quick=1
if have clang; then chain clang_build; else skip 'clang' 'it is missing'; fi
chain sanitizers
if have_arm64; then
    chain arm64
elif [ "$(uname -m)" = x86_64 ]; then
    skip 'AArch64 on Cortex-A53' 'the cross compiler, the emulator or Criterion for it is missing'
fi
chain gcc_o3
chain variant 'gcc -O0' "$isas" CC=gcc WERROR=1 CFLAGS=-O0
if have clang && echo 'int main(void) { return 0; }' |
    clang -fopenmp -fsanitize=thread -x c - -o "$BUILD/tsan-works" >/dev/null 2>&1; then
    chain thread_sanitizer
else
    skip 'ThreadSanitizer' 'clang, its libraries or libomp is missing'
fi
if have musl-gcc; then chain musl; else skip 'musl' 'musl-gcc is missing'; fi
chain variant 'scalar alone' scalar CC=gcc WERROR=1 ISAS=scalar CFLAGS=-O2
if echo '#include <errno.h>' | $gcc32 -E -x c - >/dev/null 2>&1; then
    chain i386
else
    skip '32-bit x86' 'its headers are missing'
fi

wait_for_chains
summary
[ -z "$failed" ]
