# Runs commands as stages, one line each, for check.sh and check_extra.sh to include. Chains of stages
# run side by side.
#
# SPDX-License-Identifier: MIT

: "${MAKE:=make}" "${CC:=cc}" "${BUILD:=build}"
logs=$BUILD/logs
arm64_root=build-deps/arm64-root
failed=
skipped=
mkdir -p "$logs"
cores=$(nproc 2>/dev/null || echo 1)
jobs=$cores # of a build

# Variables of the caller's command line come through the environment; the rest (its job server,
# -n, -k) must not reach the builds here.
unset MAKEFLAGS MFLAGS MAKELEVEL
build() {
    $MAKE -s -j"$jobs" "$@"
}
build_arm64() {
    lib=$arm64_root/usr/lib/aarch64-linux-gnu
    build CC=aarch64-linux-gnu-gcc BUILD="$BUILD/arm64" CRITERION_CFLAGS="-isystem $arm64_root/usr/include" \
        CRITERION_LIBS="$lib/libcriterion.so.3 -Wl,-rpath-link,$lib:$arm64_root/lib/aarch64-linux-gnu" "$@"
}

have() {
    command -v "$1" >/dev/null 2>&1
}
have_arm64() {
    have aarch64-linux-gnu-gcc && have qemu-aarch64 && [ -e $arm64_root/complete ]
}

# stage NAME COMMAND...: runs it; the output is a log that is shown if the command fails.
stage() {
    stage_name=$1
    shift
    log=$logs/$(echo "$stage_name" | tr -c 'A-Za-z0-9\n' '-' | tr -s -).log
    start=$(date +%s)
    # Not as a condition: there `set -e` would be off inside the command as well.
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1 </dev/null 3>&-
    status=$?
    set -e
    seconds=$(($(date +%s) - start))
    if [ $status = 0 ]; then
        printf 'ok     %4d s  %s\n' $seconds "$stage_name"
    else
        printf 'FAILED %4d s  %s (status %d):\n' $seconds "$stage_name" $status
        sed 's/^/    /' "$log"
        failed="$failed${failed:+, }$stage_name"
    fi
}

# Most stages end with one core busy, or never have more: so two chains of them run at a time. Each
# builds on half of the cores; the test program has a process for each core, and the longest of its
# tests alone at the end. What a chain says is shown when those before it have ended. A lane is free
# as long as a line can be read from descriptor 3.
started=0 # chains
shown=0
open_lanes() {
    rm -f "$logs"/chain-*
    mkfifo "$logs/chain-lanes"
    exec 3<>"$logs/chain-lanes"
    rm "$logs/chain-lanes"
    echo >&3
    [ "$cores" = 1 ] || echo >&3
    # Background commands of a script are deaf to Control-C.
    trap 'trap "" INT TERM; kill 0; exit 130' INT
}

# chain COMMAND...: a function that runs stages, as soon as a lane is free.
chain() {
    [ $started != 0 ] || open_lanes
    read -r _ <&3
    show_chains
    started=$((started + 1))
    (
        failed= skipped= jobs=$(((cores + 1) / 2))
        chain_name=$*
        trap 'chain_ends $?' EXIT
        "$@"
    ) >"$logs/chain-$started" 2>&1 &
}
chain_ends() {
    [ "$1" = 0 ] || failed="$failed${failed:+, }broken off: $chain_name"
    printf '%s\n%s\n' "$failed" "$skipped" >"$logs/chain-$started-end.new"
    mv "$logs/chain-$started-end.new" "$logs/chain-$started-end"
    echo >&3
}

# show_chains: those that have ended, up to the first that has not.
show_chains() {
    while [ $shown -lt $started ] && [ -e "$logs/chain-$((shown + 1))-end" ]; do
        shown=$((shown + 1))
        cat "$logs/chain-$shown"
        {
            read -r chain_failed
            read -r chain_skipped
        } <"$logs/chain-$shown-end"
        failed=$failed${chain_failed:+${failed:+, }$chain_failed}
        skipped=$skipped${chain_skipped:+${skipped:+, }$chain_skipped}
    done
}
wait_for_chains() {
    while [ $shown -lt $started ]; do
        read -r _ <&3
        show_chains
    done
    wait
    started=0 shown=0
}

# skip NAME REASON: names what could have run with more tools. CI has them all: there it fails.
skip() {
    skipped="$skipped${skipped:+, }$1 ($2)"
    [ "${CI-}" != true ] || failed="$failed${failed:+, }$1 (skipped)"
}

# absent NAME REASON: names what this kind of machine cannot run.
absent() {
    skipped="$skipped${skipped:+, }$1 ($2)"
}

summary() {
    [ -z "$skipped" ] || echo "skipped: $skipped"
    [ -z "$failed" ] || echo "failed: $failed"
}

# What this machine should run, from the operating system and not from the library.
host_isas() {
    if [ -r /proc/cpuinfo ]; then
        flags=" $(sed -n 's/^flags[^:]*: *//p' /proc/cpuinfo | sed 1q) "
    else
        flags=' '
    fi
    isas=scalar
    by_name=
    case $(uname -m) in
    aarch64 | arm64) isas="neon $isas" ;;
    x86_64)
        has() {
            for flag in "$@"; do
                case $flags in *" $flag "*) ;; *) return 1 ;; esac
            done
        }
        if has avx2 fma; then isas="avx2 $isas"; fi
        if has avx512f avx512bw avx512vl avx512dq; then
            isas="avx512 $isas"
            if has avx512_bf16; then by_name="$by_name avx512_bf16"; fi
            if has avx512_vnni; then by_name="$by_name avx512_vnni"; fi
        fi
        ;;
    esac
    echo "$isas$by_name"
}

# run_tests ISAS COMMAND...: the test program, which asserts that these kernel sets, in this order,
# can be used and that the first of them is chosen unless asked otherwise.
run_tests() {
    isas=$1
    shift
    env ATTN_EXPECT_ISAS="$isas" ATTN_EXPECT_ISA="${isas%% *}" "$@"
}

emulated_seconds=1500 # a run takes up to a quarter of an hour on two slow cores

# emulate ISAS "EMULATOR AND OPTIONS" PROGRAM: the same on another CPU. Criterion starts a
# worker for each test by execve(), which would leave the emulator: tests/emulator_exec.c puts
# TEST_EMULATOR in front of the workers. Criterion itself, which only starts them, runs natively
# where it can.
emulate() {
    emulator=$(command -v "${2%% *}")${2#"${2%% *}"}
    case $emulator in
    *qemu-"$(uname -m)"*) front= ;;
    *) front=$emulator ;;
    esac
    # QEMU at times dies of a signal, or waits for ever for a lock, where a program with threads starts
    # processes. That says nothing about the tests, whose own crashes Criterion reports: then once more.
    for attempt in 1 2; do
        died=0
        # shellcheck disable=SC2086 # a command and its options, or nothing
        run_tests "$1" env ATTN_TEST_QUICK=1 TEST_EMULATOR="$emulator" \
            timeout -s KILL $emulated_seconds $front "$3" || died=$?
        [ $died -ge 128 ] || break
        echo "attempt $attempt: the emulator died or was stopped, status $died"
    done
    return $died
}
