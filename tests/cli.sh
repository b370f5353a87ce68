#!/bin/sh
# Drives the attn command: results on the tensors of a real model, and every kind of bad input.
#
# Usage: cli.sh ATTN. Broken files are made with printf and head: a fresh machine may have no more.
#
# SPDX-License-Identifier: MIT
set -eu

attn=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
data=$PWD/tests/data
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
cd "$temporary"
mkdir cases
cd cases
unset ATTN_ISA NO_COLOR
cases=0
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# npy FILE DESCR FORTRAN_ORDER SHAPE BYTES: a file of zeros.
npy() {
    printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '$2', 'fortran_order': $3, 'shape': $4, }" >"$1"
    head -c "$5" /dev/zero >>"$1"
}

# succeeds ARGUMENTS: exit status 0, nothing on stderr.
succeeds() {
    cases=$((cases + 1))
    status=0
    "$attn" "$@" >../stdout 2>../stderr </dev/null || status=$?
    [ $status = 0 ] || fail "attn $*: status $status: $(cat ../stderr)"
    [ ! -s ../stderr ] || fail "attn $*: says on stderr: $(cat ../stderr)"
}

# refuses STATUS WORDS ARGUMENTS: that exit status, one line on stderr that holds each of WORDS,
# nothing on stdout, and the folder as it was.
refuses() {
    refuses_with "$attn" "$@"
}
refuses_with() {
    command=$1 expected=$2 words=$3
    shift 3
    cases=$((cases + 1))
    ls -Al >../before
    status=0
    # shellcheck disable=SC2086 # a command and its options
    $command "$@" >../stdout 2>../stderr </dev/null || status=$?
    ls -Al >../after
    said=$(cat ../stderr)
    what="$command $*"
    [ $status = "$expected" ] || fail "$what: status $status, expected $expected: $said"
    [ "$(wc -l <../stderr)" = 1 ] || fail "$what: not one line on stderr: $said"
    for word in $words; do
        case $said in *"$word"*) ;; *) fail "$what: does not name $word: $said" ;; esac
    done
    [ ! -s ../stdout ] || fail "$what: says on stdout: $(cat ../stdout)"
    cmp -s ../before ../after || fail "$what: changed the folder: $(diff ../before ../after)"
}

# close_to FILE EXPECTED: two f32 files whose headers are equal and whose elements differ by 2e-5 at
# most.
close_to() {
    cases=$((cases + 1))
    [ -e "$1" ] || { fail "$1 was not written" && return; }
    head -c 128 "$1" >../a
    head -c 128 "$2" >../b
    cmp -s ../a ../b || fail "$1: another header than $2"
    od -An -v -w4 -tfF -j128 "$1" >../a
    od -An -v -w4 -tfF -j128 "$2" >../b
    paste ../a ../b | awk '
        NF != 2 || $1 !~ /^[-+.e0-9]+$/ { bad = 1 }
        { d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d }
        END { if (bad || NR == 0 || worst > 2e-5) { print "worst difference", worst; exit 1 } }' >../differ ||
        fail "$1 is not close to $2: $(cat ../differ)"
}

same() {
    cases=$((cases + 1))
    cmp -s "$1" "$2" || fail "$1 and $2 differ"
}

# shows TEXT: what the last command said on stdout.
shows() {
    cases=$((cases + 1))
    grep -q -e "$1" ../stdout || fail "does not show '$1': $(cat ../stdout)"
}

# ---- The tensors of a real model, on every kernel set ------------------------------------------

succeeds info
isas=$(awk '/^kernels/ { on = 1; next } on && $2 ~ /^yes/ { print $1 }' ../stdout)
[ -n "$isas" ] || fail "attn info lists no usable kernel set: $(cat ../stdout)"
for length in 40 197; do
    t=$data/ppocr_b0_L$length
    for isa in $isas; do
        succeeds run --q "$t/q.npy" --k "$t/k.npy" --v "$t/v.npy" --out "$isa.npy" --isa "$isa"
        close_to "$isa.npy" "$t/o.npy"
        export ATTN_ISA="$isa"
        succeeds run --q "$t/q.npy" --k "$t/k.npy" --v "$t/v.npy" --out env.npy
        unset ATTN_ISA
        same env.npy "$isa.npy"
    done
    export ATTN_ISA='' # empty is unset
    succeeds run --q "$t/q.npy" --k "$t/k.npy" --v "$t/v.npy" --out best.npy
    unset ATTN_ISA
    for isa in $isas; do
        same best.npy "$isa.npy"
        break
    done
done
rm ./*.npy

t=$data/ppocr_b0_L40
cp "$t/q.npy" "$t/k.npy" "$t/v.npy" .
qkv='--q q.npy --k k.npy --v v.npy'
files="$qkv --out out.npy"
# shellcheck disable=SC2086 # lists of options
{
    succeeds run $files
    succeeds run $qkv --out all.npy --weights weights.npy --lse lse.npy
    same out.npy all.npy
    [ "$(wc -c <weights.npy)" = $((128 + 8 * 40 * 40 * 4)) ] || fail "weights.npy has another size"
    [ "$(wc -c <lse.npy)" = $((128 + 8 * 40 * 4)) ] || fail "lse.npy has another size"
    if "$attn" run $qkv --out threads.npy --threads 2 2>../stderr; then
        same out.npy threads.npy
    else
        grep -q OpenMP ../stderr || fail "--threads 2: $(cat ../stderr)"
    fi
    succeeds run $qkv --out repeat.npy --repeat 3
    shows '^isa=[a-z0-9]* median_us=[0-9.]* gflops=[0-9.]*$'
    same out.npy repeat.npy
    succeeds run $qkv --out causal.npy --causal
    succeeds run $qkv --out aligned.npy --causal --align bottom-right
    same causal.npy aligned.npy
    succeeds run $qkv --out aligned.npy --causal --align 0
    same causal.npy aligned.npy
    succeeds run $qkv --out aligned.npy --causal --align 39
    succeeds run $qkv --out short.npy --kv-len 17
    # An input may be the output.
    cp q.npy q2.npy
    succeeds run --q q2.npy --k k.npy --v v.npy --out q2.npy
    same out.npy q2.npy
}
rm -f out.npy all.npy weights.npy lse.npy threads.npy repeat.npy causal.npy aligned.npy short.npy q2.npy

# Ranks, layouts and types, where only sizes matter.
shape_of() {
    cases=$((cases + 1))
    head -c 128 out.npy | grep -a -q -F "'$1', 'fortran_order': False, 'shape': $2" ||
        fail "out.npy is not $1 $2: $(head -c 128 out.npy | tr -cd ' -~')"
    rm -f out.npy
}
run_zeros() { succeeds run --q a.npy --k b.npy --v c.npy --out out.npy "$@"; }
npy a.npy '<f4' False '(3, 4)' 48
npy b.npy '<f4' False '(5, 4)' 80
npy c.npy '<f4' False '(5, 2)' 40
run_zeros
shape_of '<f4' '(3, 2)'
npy a.npy '<f8' False '(2, 3, 4)' 192
npy b.npy '<f2' False '(1, 5, 4)' 40
npy c.npy '<f4' False '(1, 5, 2)' 40
run_zeros
shape_of '<f4' '(2, 3, 2)'
npy a.npy '<f2' False '(2, 3, 4, 4)' 192
npy b.npy '<f4' False '(2, 5, 2, 4)' 320
npy c.npy '<f4' False '(2, 5, 2, 2)' 160
run_zeros --layout blhd
shape_of '<f2' '(2, 3, 4, 2)'
npy a.npy '<u2' False '(1, 3, 16)' 96
npy b.npy '<f4' False '(1, 5, 8)' 160
npy c.npy '<f4' False '(1, 5, 4)' 80
run_zeros --bf16 --q-heads 4 --kv-heads 2
shape_of '<u2' '(1, 3, 8)'
refuses 2 'align' run --q k.npy --k k.npy --v v.npy --out out.npy --align sideways
npy a.npy '<f4' False '(3, 15)' 180
npy b.npy '<f4' False '(5, 15)' 300
refuses 2 '--align 3 5' run --q a.npy --k b.npy --v b.npy --out out.npy --causal

# ---- Bad input ----------------------------------------------------------------------------------

# refuses_file FILE WORDS: in each of the three places.
refuses_file() {
    refuses 1 "$1 $2" run --q "$1" --k k.npy --v v.npy --out out.npy
    refuses 1 "$1 $2" run --q q.npy --k "$1" --v v.npy --out out.npy
    refuses 1 "$1 $2" run --q q.npy --k k.npy --v "$1" --out out.npy
}
refuses_file missing.npy ''
mkdir folder.npy
refuses_file folder.npy ''
: >empty.npy
refuses_file empty.npy ''
echo 'this is a text and no tensor at all, whatever the name of the file' >text.npy
refuses_file text.npy ''
head -c 5 q.npy >magic.npy
refuses_file magic.npy ''
head -c 60 q.npy >header.npy
refuses_file header.npy ''
head -c 128 q.npy >nodata.npy
refuses_file nodata.npy ''
head -c 19327 q.npy >short.npy
refuses_file short.npy ''
{ cat q.npy && printf x; } >long.npy
refuses_file long.npy ''
printf '\223NUMPY\001\000\377\377{' >huge-header.npy
refuses_file huge-header.npy ''
printf '\223NUMPY\002\000\377\377\377\377{' >huge-header2.npy
refuses_file huge-header2.npy ''
printf '\223NUMPY\011\000\166\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (), }" >version.npy
refuses_file version.npy 9
npy fortran.npy '<f4' True '(8, 40, 15)' 19200
refuses_file fortran.npy ortran
npy big-endian.npy '>f4' False '(8, 40, 15)' 19200
refuses_file big-endian.npy '>f4'
for descr in '<i4' '|b1' '<c8' '|O' '<f16' 'f' ''; do
    npy type.npy "$descr" False '(8, 40, 15)' 19200
    refuses_file type.npy "$descr"
done
npy bf16.npy '<u2' False '(8, 40, 15)' 9600
refuses_file bf16.npy '--bf16'
for shape in '()' '(4800,)' '(1, 1, 8, 40, 15)'; do
    npy rank.npy '<f4' False "$shape" 19200
    refuses_file rank.npy rank
done
# Sizes that overflow or that the file does not hold are refused, not allocated.
for shape in '(9223372036854775807, 40, 15)' '(8, 4611686018427387904, 15)' '(4294967296, 4294967296)' \
    '(99999999999999999999999, 1)' '(1073741824, 1073741824, 15)' '(100000000, 40, 15)' \
    '(0, 9223372036854775807, 9223372036854775807)' '(8, -40, 15)' '(8, 40, 15' '8, 40' "('a', 2)"; do
    npy overflow.npy '<f4' False "$shape" 19200
    refuses_file overflow.npy ''
done
for text in '' '{}' "{'descr': '<f4'}" "{'shape': (8, 40, 15), 'fortran_order': False}" "[1, 2]"; do
    printf '\223NUMPY\001\000\166\000%-117s\n' "$text" >dictionary.npy
    refuses_file dictionary.npy ''
done
# Names are data: no control characters on the terminal.
refuses 1 '' run --q "$(printf 'a\nb\033[31m.npy')" --k k.npy --v v.npy --out out.npy

# Shapes that do not fit together: both files are named, with their shapes.
fits_not() { # SHAPE_A SHAPE_B SHAPE_C OPTIONS: of q, k and v
    rm -f a.npy b.npy c.npy
    npy a.npy '<f4' False "$1" 0
    npy b.npy '<f4' False "$2" 0
    npy c.npy '<f4' False "$3" 0
    for file in a b c; do # as many zeros as the shape asks for
        product=$(head -c 127 $file.npy | tr -cd ' -~' | sed "s/.*'shape': (//; s/).*//; s/, */*/g")
        head -c $(($product * 4)) /dev/zero >>$file.npy
    done
    words=$4
    shift 4
    refuses 1 "$words" run --q a.npy --k b.npy --v c.npy --out out.npy "$@"
}
fits_not '(2, 8, 4)' '(2, 8, 5)' '(2, 8, 4)' 'a.npy b.npy 4 5'
fits_not '(2, 8, 4)' '(2, 8, 4)' '(2, 9, 4)' 'b.npy c.npy 8 9'
fits_not '(2, 8, 4)' '(2, 8, 4)' '(1, 8, 4)' 'b.npy c.npy 2 1'
fits_not '(2, 8, 4)' '(8, 4)' '(8, 4)' 'a.npy b.npy'
fits_not '(2, 8, 4)' '(2, 8, 4)' '(8, 4)' 'c.npy'
fits_not '(2, 2, 8, 4)' '(3, 2, 8, 4)' '(3, 2, 8, 4)' 'a.npy b.npy 2 3'
fits_not '(2, 2, 8, 4)' '(2, 2, 8, 4)' '(3, 2, 8, 4)' 'b.npy c.npy 2 3'
fits_not '(3, 8, 4)' '(2, 8, 4)' '(2, 8, 4)' 'a.npy b.npy 3 2 multiple'
fits_not '(2, 8, 4)' '(4, 8, 4)' '(4, 8, 4)' 'a.npy b.npy 2 4 multiple'
fits_not '(0, 8, 4)' '(0, 8, 4)' '(0, 8, 4)' 'npy zero'
fits_not '(2, 8, 4)' '(0, 8, 4)' '(0, 8, 4)' 'b.npy zero'
fits_not '(2, 8, 0)' '(2, 8, 0)' '(2, 8, 4)' 'npy zero'
fits_not '(1, 3, 16)' '(1, 5, 8)' '(1, 5, 8)' 'a.npy 3' --q-heads 3 --kv-heads 2
fits_not '(1, 3, 12)' '(1, 5, 8)' '(1, 5, 8)' 'a.npy b.npy 3 2 multiple' --q-heads 3 --kv-heads 2
fits_not '(3, 16)' '(5, 8)' '(5, 8)' 'a.npy rank' --q-heads 4 --kv-heads 2
fits_not '(3, 5, 16)' '(3, 5, 16)' '(3, 5, 16)' 'a.npy rank' --layout blhd
fits_not '(2, 2, 8, 4)' '(2, 2, 8, 4)' '(2, 2, 8, 4)' '--kv-len 3 2' --kv-len 1,2,3
fits_not '(2, 2, 8, 4)' '(2, 2, 8, 4)' '(2, 2, 8, 4)' '--align 3 2' --causal --align 1,2,3
fits_not '(2, 8, 4)' '(2, 8, 4)' '(2, 8, 4)' 'kv_len 9 8' --kv-len 9
rm -f a.npy b.npy c.npy

# Wrong usage. The options of later versions are unknown, not ignored.
# shellcheck disable=SC2086 # lists of options
{
    for option in --softcap --window --mask --sinks --alibi --past-k --past-v --present-k --present-v \
        --scores --scores-at --bogus -x --; do
        refuses 2 "$option unknown" run $files $option 1
    done
    refuses 2 '--q' run --k k.npy --v v.npy --out out.npy
    refuses 2 '--k' run --q q.npy --v v.npy --out out.npy
    refuses 2 '--v' run --q q.npy --k k.npy --out out.npy
    refuses 2 '--out' run $qkv
    refuses 2 '--out' run $qkv --out
    refuses 2 '--q' run $files --q q.npy
    refuses 2 'extra' run $files extra
    refuses 2 '--causal' run $files --causal=yes
    for value in '' x 1x nan inf 1e999; do
        refuses 2 '--scale' run $files --scale "$value"
    done
    for value in '' 0 -1 1.5 x 99999999999999999999; do
        refuses 2 '--threads' run $files --threads "$value"
        refuses 2 '--repeat' run $files --repeat "$value"
        refuses 2 '--q-heads' run $files --q-heads "$value" --kv-heads 1
    done
    for value in '' -1 x 1, ,1 1,,2 99999999999999999999; do
        refuses 2 '--kv-len' run $files --kv-len "$value"
    done
    for value in '' left 1, 99999999999999999999; do
        refuses 2 '--align' run $files --causal --align "$value"
    done
    refuses 2 '--kv-heads' run $files --q-heads 8
    refuses 2 '--layout' run $files --layout hbld
    refuses 2 'bogus' bogus
    refuses 2 '--bogus' info --bogus
    refuses 2 '--bogus' verify --bogus
    refuses 2 '--bogus' demo --bogus
    refuses 2 'extra' info extra

    # Outputs that cannot be written.
    refuses 1 'missing/out.npy' run $qkv --out missing/out.npy
    refuses 1 'folder.npy' run $qkv --out folder.npy
    refuses 1 '/dev/null' run $qkv --out /dev/null
    refuses 1 '/proc/out.npy' run $qkv --out /proc/out.npy
    refuses 1 'q.npy/out.npy' run $qkv --out q.npy/out.npy
    refuses 1 '' run $qkv --out ''
    refuses 1 'missing/w.npy' run $files --weights missing/w.npy
    refuses 1 'missing/l.npy' run $files --weights w.npy --lse missing/l.npy
    refuses 2 'out.npy' run $files --weights out.npy
    if [ "$(id -u)" != 0 ]; then
        mkdir locked
        chmod 555 locked
        refuses 1 'locked/out.npy' run $qkv --out locked/out.npy
        chmod 755 locked
    fi
    # A full disk: files of one block at most. 25 is SIGXFSZ.
    refuses_with "sh -c" 1 'out.npy' "trap '' 25; ulimit -f 1; '$attn' run $files"
    # What was there before stays.
    echo precious >old.npy
    refuses 1 'missing.npy' run --q missing.npy --k k.npy --v v.npy --out old.npy
    refuses_with "sh -c" 1 'old.npy' "trap '' 25; ulimit -f 1; '$attn' run $qkv --out old.npy"
    [ "$(cat old.npy)" = precious ] || fail "an old output was lost"
    # Interrupted, it leaves nothing behind.
    "$attn" run $files --repeat 1000000 >/dev/null 2>&1 &
    tries=0
    while [ -z "$(find . -name '.attn-*')" ] && [ $tries -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ $tries -lt 100 ] || fail "no temporary file was seen"
    kill -TERM $!
    if wait $! 2>/dev/null; then fail "attn run, interrupted: status 0"; fi
    cases=$((cases + 1))
    [ -z "$(find . -name '.attn-*' -o -name out.npy)" ] || fail "interrupted, it leaves files behind: $(ls -A)"

    # Kernel sets.
    refuses 1 'bogus' run $files --isa bogus
    refuses 1 'AVX2' run $files --isa AVX2
    refuses 1 '' run $files --isa ''
    export ATTN_ISA=bogus
    refuses 1 'bogus ATTN_ISA' run $files
    refuses 1 'bogus ATTN_ISA' demo "$t"
    unset ATTN_ISA
    # EMULATE is empty for a build with sanitizers, whose shadow memory an emulator cannot hold.
    if [ -n "${EMULATE-yes}" ] && [ "$(uname -m)" = x86_64 ] && command -v qemu-x86_64 >/dev/null; then
        nehalem="qemu-x86_64 -cpu Nehalem"
        refuses_with "$nehalem $attn" 1 'avx2' run $files --isa avx2
        export ATTN_ISA=avx2
        refuses_with "$nehalem $attn" 1 'avx2 ATTN_ISA' run $files
        unset ATTN_ISA
        cases=$((cases + 1))
        $nehalem "$attn" run $qkv --out nehalem.npy --repeat 1 >../stdout 2>&1 || fail "on a Nehalem: $(cat ../stdout)"
        shows '^isa=scalar '
        close_to nehalem.npy "$t/o.npy"
    fi
}

# ---- What people see ----------------------------------------------------------------------------

succeeds --help
succeeds run --help
succeeds --version
succeeds verify
shows 'scalar'
for isa in $isas; do
    shows "^$isa "
done
escape=$(printf '\033')
succeeds demo "$t"
cases=$((cases + 1))
if grep -q "$escape" ../stdout; then fail "attn demo writes escapes where there is no terminal"; fi
if script --version >/dev/null 2>&1; then
    # A terminal has colours, unless NO_COLOR is set.
    cases=$((cases + 2))
    TERM=xterm-256color script -qec "'$attn' demo '$t'" /dev/null >../stdout </dev/null || fail "attn demo on a terminal"
    grep -q "$escape" ../stdout || fail "attn demo shows no colours on a terminal"
    NO_COLOR=1 TERM=xterm-256color script -qec "'$attn' demo '$t'" /dev/null >../stdout </dev/null ||
        fail "attn demo on a terminal with NO_COLOR"
    if grep -q "$escape" ../stdout; then fail "attn demo writes escapes in spite of NO_COLOR"; fi
fi
if [ -w /dev/full ]; then
    cases=$((cases + 1))
    status=0
    "$attn" info >/dev/full 2>../stderr || status=$?
    [ $status = 1 ] || fail "attn info on a full disk: status $status"
fi

echo "$cases cases, $failures failed"
[ $failures = 0 ]
