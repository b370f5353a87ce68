#!/bin/sh
# Runs every test that this machine allows and names what it had to skip.
#
# SPDX-License-Identifier: MIT
set -eu
. tests/stages.sh

have_criterion=yes
echo '#include <criterion/criterion.h>' | $CC -E -x c - >/dev/null 2>&1 || have_criterion=
isas=${ATTN_EXPECT_ISAS-$(host_isas)}
tests=$BUILD/tests/attn_tests

stage 'build' build all
[ $status = 0 ] || exit 1
if [ -n "$have_criterion" ]; then
    stage 'build the tests' build "$tests"
    [ $status = 0 ] || have_criterion=
else
    skip 'the test program' 'Criterion is missing'
fi

arm64() {
    stage 'AArch64: build' build_arm64 all "$BUILD/arm64/tests/attn_tests"
    [ $status = 0 ] || return 0
    stage 'AArch64: no instruction leaves its kernel set' \
        env CROSS=aarch64-linux-gnu- sh tests/check_isa_leak.sh "$BUILD/arm64"
    stage 'AArch64: tests on an emulated cpu max: every set' emulate 'neon scalar neon_bf16 neon_i8mm neon_dotprod' \
        "qemu-aarch64 -cpu max -L $arm64_root" "$BUILD/arm64/tests/attn_tests"
}
examples() {
    build examples
    for source in examples/*.c; do
        "$BUILD/${source%.c}"
    done
}
# Not for figures: every benchmark compares its results before it measures.
benchmarks() {
    build "$BUILD/bench/attn_bench"
    "$BUILD/bench/attn_bench" --seconds=0 --benchmark_filter='^(limit|exp|kernel|call)/|tiny|modifier/.*/sinks'
}
native() {
    stage 'no instruction leaves its kernel set' sh tests/check_isa_leak.sh "$BUILD"
    stage 'symbols' sh tests/check_symbols.sh "$BUILD"
    stage 'each known fault has its test' sh tests/check_faults.sh
    stage 'command line' sh tests/cli.sh "$BUILD/attn"
    stage 'examples' examples
    stage 'install' sh tests/install.sh
    if echo '#include <benchmark/benchmark.h>' | c++ -E -x c++ - >/dev/null 2>&1; then
        stage 'benchmarks compute what they should' benchmarks
    else
        skip 'benchmarks' 'Google Benchmark or a C++ compiler is missing'
    fi
}
# emulated NAME ISAS CPU
emulated() {
    stage "tests on an emulated $1: ${2%% *}" emulate "$2" "qemu-x86_64 -cpu $3" "$tests"
}

# The longest first.
if [ "$(uname -m)" = x86_64 ]; then
    # Quiet: what the emulator would warn about not having is left out.
    haswell=Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm
    if ! have qemu-x86_64; then
        skip 'older x86 CPUs' 'qemu-x86_64 is missing'
    elif [ -n "$have_criterion" ]; then
        chain emulated Haswell 'avx2 scalar' $haswell
    fi
    if have_arm64; then
        chain arm64
    else
        skip 'AArch64' 'aarch64-linux-gnu-gcc, qemu-aarch64 or Criterion for it is missing'
    fi
    if have qemu-x86_64 && [ -n "$have_criterion" ]; then
        chain emulated Nehalem scalar Nehalem
        # An operating system that does not save the registers.
        chain emulated 'Haswell without XSAVE' scalar $haswell,-xsave
    fi
fi
chain native
have pkg-config || skip 'pkg-config' 'it is missing'
have cmake || absent 'the CMake package' 'cmake is missing'
wait_for_chains

# Last, so that its closing line ends the output.
if [ -n "$have_criterion" ]; then
    for isa in avx512 avx2; do
        case "$(uname -m) $isas " in
        x86_64*" $isa "*) ;;
        x86_64*) absent "$isa natively" 'this CPU does not have it' ;;
        esac
    done
    stage "tests on this machine: $isas" run_tests "$isas" "$tests"
    summary
    echo "$(grep Synthesis: "$log" | tail -n 1)"
else
    summary
fi
[ -z "$failed" ]
