#!/bin/sh
# Installs what the tests and `make bench` need, `deps.sh all` what check-extra and bench-plots need
# on top; silent if it is there.
#
# SPDX-License-Identifier: MIT
set -eu

need='libcriterion-dev binutils pkg-config g++ libbenchmark-dev'
if [ "$(uname -m)" = x86_64 ]; then
    need="$need gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
    # Criterion for AArch64 in a folder of its own: as a package it would remove the native one.
    arm64_root=build-deps/arm64-root
fi
if [ "${1-}" = all ]; then
    # gcc-multilib would be the package for 32-bit x86, but it excludes the AArch64 compiler.
    need="$need clang clang-format cmake gnuplot-nox libclang-rt-14-dev libc6-dev-i386 libomp-dev musl-tools"
fi

give_up() {
    echo "deps: $1"
    [ "${CI-}" != true ] # what is missing gets named as skipped, and in CI that is a failure
    exit
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    command -v qemu-aarch64 >/dev/null && echo '#include <criterion/criterion.h>' |
        ${CC:-cc} -E -x c - >/dev/null 2>&1 && exit
    give_up "no apt-get here: the tests need Criterion (https://github.com/Snaipe/Criterion), and can use pkg-config, qemu-user and an AArch64 cross compiler"
fi

missing=
for package in $need; do
    case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || :) in
    *' installed') ;;
    *) missing="$missing $package" ;;
    esac
done

if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif sudo -n true 2>/dev/null; then
        as_root='sudo -n'
    else
        give_up "this needs root; please run: sudo apt-get install$missing"
    fi
    echo "deps: installing$missing"
    # shellcheck disable=SC2086 # lists of words
    install() {
        $as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get -qq -y --no-install-recommends install $missing
    }
    log=$(mktemp)
    # A first try without an update: lists that are new enough are the common case, no lists at all
    # (a fresh container) fail at once.
    if ! install >"$log" 2>&1 </dev/null && ! {
        $as_root apt-get -qq update && install; } >"$log" 2>&1 </dev/null; then
        cat "$log"
        rm -f "$log"
        give_up "apt-get could not install$missing"
    fi
    rm -f "$log"
fi

if [ -n "${arm64_root-}" ] && [ ! -e "$arm64_root/complete" ]; then
    echo "deps: downloading Criterion for AArch64 into $arm64_root"
    work=$arm64_root.download
    rm -rf "$arm64_root" "$work"
    mkdir -p "$work/lists/partial" "$work/archives/partial" "$arm64_root"
    : >"$work/status" # an empty system: everything down to libc is downloaded
    apt() {
        apt-get -o "Dir::State::lists=$PWD/$work/lists" -o "Dir::State::status=$PWD/$work/status" \
            -o "Dir::Cache=$PWD/$work" -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
            -o APT::Sandbox::User=root -o Debug::NoLocking=1 -qq "$@" </dev/null
    }
    if { apt update &&
        apt -y -d --no-install-recommends install libcriterion3 libcriterion-dev libgomp1
    } >"$work/log" 2>&1; then
        for package in "$work"/archives/*.deb; do
            dpkg -x "$package" "$arm64_root"
        done
        : >"$arm64_root/complete"
        rm -rf "$work"
    else
        cat "$work/log"
        give_up "apt-get could not download Criterion for AArch64"
    fi
fi
