#!/bin/sh
# Fails if the libraries export, import or need anything but what they promise.
#
# Usage: check_symbols.sh BUILD, with CC the compiler that made it
#
# SPDX-License-Identifier: MIT
set -eu

build=$1
cc=${CC:-cc}
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
failures=0
fail() {
    echo "$*"
    failures=$((failures + 1))
}

# The ABI is the committed list, symbol versions included.
for library in libattn libattn_openmp; do
    [ -e "$build/$library.so" ] || continue
    nm -D --defined-only "$build/$library.so" | awk '$2 != "A" { print $3 }' |
        sort | sed "s/^/$library /" >>"$temporary/abi"
    grep "^$library " tests/abi.txt >>"$temporary/expected"
done
diff "$temporary/expected" "$temporary/abi" || fail "the exported symbols differ from tests/abi.txt"

# It depends on libc alone, libm included.
readelf -d "$build/libattn.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$temporary/needed"
if grep -v -x -e 'libc\.so\..*' -e 'libm\.so\..*' -e 'ld-linux.*' -e 'libc\.musl.*' "$temporary/needed"; then
    fail "libattn.so needs the libraries above"
fi

# What the library may call: it computes, formats an error sentence into the caller's buffer, reads
# ATTN_ISA and the CPU's features. No output, no thread, no exit; memory is another matter, below.
cat >"$temporary/may_call" <<END
memcpy memmove memset memcmp strcmp strlen strncmp
snprintf vsnprintf __snprintf_chk __vsnprintf_chk
getenv getauxval __getauxval
exp expf exp2f log logf sqrt sqrtf fmaxf fma fmaf ldexpf floorf tanhf
__stack_chk_fail _GLOBAL_OFFSET_TABLE_ __tls_get_addr
END
tr ' ' '\n' <"$temporary/may_call" | sort >"$temporary/may_call.sorted"
nm -u "$build/libattn.a" 2>/dev/null | awk '
    /^[^ ].*\.o:$/ { object = $1 }
    $1 == "U" && $2 !~ /^attn_/ {
        if (object == "attn.o:" && ($2 == "malloc" || $2 == "free")) next
        print $2
    }' | sort -u >"$temporary/calls"
comm -23 "$temporary/calls" "$temporary/may_call.sorted" >"$temporary/unexpected"
if [ -s "$temporary/unexpected" ]; then
    cat "$temporary/unexpected"
    fail "the library calls the functions above, which check_symbols.sh does not allow"
fi

# Linked statically, it takes no name from the user's program.
nm -g --defined-only "$build/libattn.a" | awk 'NF == 3 && $3 !~ /^attn_/ { print $3 }' >"$temporary/names"
if [ -s "$temporary/names" ]; then
    cat "$temporary/names"
    fail "libattn.a defines global names that do not begin with attn_"
fi

# Loading runs no code of a kernel set, on whatever CPU.
cat >"$temporary/load.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[argc - 1], RTLD_NOW);
    const char *(*isa)(void) = (const char *(*)(void))(library ? dlsym(library, "attn_isa") : 0);
    puts(isa ? isa() : dlerror());
    return 0;
}
END
if [ "$(uname -m)" = x86_64 ] && command -v qemu-x86_64 >/dev/null; then
    $cc "$temporary/load.c" -o "$temporary/load" -ldl
    loaded=$(qemu-x86_64 -cpu Nehalem "$temporary/load" "$build/libattn.so")
    [ "$loaded" = scalar ] || fail "loaded on an emulated Nehalem, expected scalar: $loaded"
fi

[ $failures = 0 ]
