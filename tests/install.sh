#!/bin/sh
# Installs into a temporary folder, builds a program against it as users do, runs it, uninstalls.
#
# SPDX-License-Identifier: MIT
set -eu

: "${MAKE:=make}" "${CC:=cc}" "${BUILD:=build}"
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
fail() {
    echo "$*"
    exit 1
}

cat >"$temporary/main.c" <<'END'
#include <attn.h>
#include <stdio.h>

int main(void) {
    const float q[2] = {1, 2}, k[6] = {1, 0, 0, 1, 1, 1}, v[6] = {3, 4, 3, 4, 3, 4};
    float out[2] = {0, 0};
    attn_problem problem = attn_problem_bhld(1, 1, 1, 1, 3, 2, 2, q, k, v, out);
    attn_executor *executor = NULL;
#ifdef WITH_OPENMP
    attn_executor openmp = attn_openmp_executor(2);
    executor = &openmp;
#endif
    const attn_status status = attn_forward_alloc(&problem, executor);
    printf("%s %s %.3f %.3f\n", attn_version(), attn_status_string(status), out[0], out[1]);
    return status != ATTN_OK || out[0] < 2.999f || out[0] > 3.001f;
}
END

# Staged first, as a packager does, with other names for the folders; then moved into place.
prefix=$temporary/opt
$MAKE BUILD="$BUILD" PREFIX=/opt libdir=/opt/lib/some-where DESTDIR="$temporary/stage" install >/dev/null
find "$temporary/stage" ! -type d | sed "s|^$temporary/stage/||" | LC_ALL=C sort >"$temporary/installed"
for file in bin/attn include/attn.h lib/some-where/libattn.a lib/some-where/libattn.so.0 \
    lib/some-where/pkgconfig/attn.pc share/attn/ppocr_b0_L40/q.npy share/attn/ppocr_b0_L197/o.npy; do
    [ -s "$temporary/stage/opt/$file" ] || fail "$file was not installed"
done
mv "$temporary/stage/opt" "$prefix"
libdir=$prefix/lib/some-where
openmp=
[ ! -e "$libdir/libattn_openmp.so" ] || openmp=yes
export LD_LIBRARY_PATH="$libdir${LD_LIBRARY_PATH+:$LD_LIBRARY_PATH}"

if command -v pkg-config >/dev/null; then
    # Found where it was moved to, not in the prefix that it was made for.
    pc() { PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --define-variable=prefix="$prefix" "$@"; }
    # shellcheck disable=SC2046 # a list of options
    $CC "$temporary/main.c" -o "$temporary/main" $(pc --cflags --libs attn)
    "$temporary/main"
    # shellcheck disable=SC2046
    $CC "$temporary/main.c" -o "$temporary/main-static" $(pc --cflags attn) "$libdir/libattn.a" -lm
    "$temporary/main-static"
    if [ -n "$openmp" ]; then
        # shellcheck disable=SC2046
        $CC -DWITH_OPENMP "$temporary/main.c" -o "$temporary/main-openmp" $(pc --cflags --libs attn_openmp)
        "$temporary/main-openmp"
    fi
    mkdir "$temporary/examples"
    $MAKE -C examples CC="$CC" OUT="$temporary/examples" \
        PKG_CONFIG="env PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --define-variable=prefix=$prefix" >/dev/null
    for program in "$temporary"/examples/*; do
        "$program" || fail "${program##*/} fails"
    done
else
    echo "pkg-config is not here: not tried"
fi

if command -v cmake >/dev/null; then
    mkdir "$temporary/project"
    cat >"$temporary/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.13)
project(consumer C)
find_package(attn 0.1 REQUIRED)
foreach(target attn attn_static openmp)
  if(TARGET attn::${target})
    add_executable(with_${target} ../main.c)
    target_link_libraries(with_${target} PRIVATE attn::${target})
  endif()
endforeach()
if(TARGET attn::openmp)
  target_compile_definitions(with_openmp PRIVATE WITH_OPENMP)
endif()
END
    cmake -S "$temporary/project" -B "$temporary/project/build" -DCMAKE_C_COMPILER="${CC%% *}" \
        -DCMAKE_PREFIX_PATH="$prefix" -Dattn_DIR="$libdir/cmake/attn" >/dev/null
    cmake --build "$temporary/project/build" >/dev/null
    for program in with_attn with_attn_static ${openmp:+with_openmp}; do
        "$temporary/project/build/$program"
    done
else
    echo "cmake is not here: not tried"
fi

# The command finds its tensors beside itself, wherever the user is.
(cd "$temporary" && "$prefix/bin/attn" demo >demo.txt) || fail "the installed attn demo does not run"

mv "$prefix" "$temporary/stage/opt"
$MAKE BUILD="$BUILD" PREFIX=/opt libdir=/opt/lib/some-where DESTDIR="$temporary/stage" uninstall >/dev/null
left=$(find "$temporary/stage" ! -type d)
[ -z "$left" ] || fail "uninstall left behind: $left"
[ ! -e "$temporary/stage/opt/share/attn" ] || fail "uninstall left share/attn behind"
