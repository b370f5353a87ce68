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

# One float32 each, as printf writes it.
zero='\000\000\000\000' one='\000\000\200\077' minus_infinity='\000\000\200\377' nan='\000\000\300\177'

# copies N TEXT: the text, with printf's escapes, N times.
copies() {
    # shellcheck disable=SC2059 # the escapes are meant
    printf "$(n=$1 text=$2 awk 'BEGIN { for (n = ENVIRON["n"]; n > 0; n--) printf "%s", ENVIRON["text"] }')"
}

# lower ROWS KEYS SHOWN HIDDEN: the elements of a mask that shows row i the keys 0 .. i.
lower() {
    # shellcheck disable=SC2059
    printf "$(rows=$1 keys=$2 shown=$3 hidden=$4 awk 'BEGIN {
        for (i = 0; i < ENVIRON["rows"]; i++)
            for (j = 0; j < ENVIRON["keys"]; j++)
                printf "%s", ENVIRON[j <= i ? "shown" : "hidden"]
    }')"
}

# elements FILE: what follows the header. tensor FILE DESCR SHAPE: a file, its elements from stdin.
elements() {
    tail -c +129 "$1"
}
tensor() {
    npy "$1" "$2" False "$3" 0
    cat >>"$1"
}

# tokens FILE HEADS LENGTH FIRST COUNT SIZE: the elements [HEADS, FIRST .. FIRST + COUNT] of those in
# [HEADS, LENGTH]; a token has SIZE bytes.
tokens() {
    for head in $(seq 0 $(($2 - 1))); do
        tail -c +$((129 + (head * $3 + $4) * $6)) "$1" | head -c $(($5 * $6))
    done
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

# same_elements FILE FILE: whatever their headers say.
same_elements() {
    cases=$((cases + 1))
    elements "$1" >../a
    elements "$2" >../b
    [ -s ../a ] || fail "$1 has no elements"
    cmp -s ../a ../b || fail "$1 and $2 have other elements"
}

# holds CONDITION FILE...: for each element of f32 files of one size, $1 that of the first file, $2
# that of the second and so on, n its index. None is NaN; -inf is a text, "-inf".
holds() {
    cases=$((cases + 1))
    condition=$1
    shift
    columns=
    for file in "$@"; do
        elements "$file" | od -An -v -w4 -tfF | tr -d ' ' >"../column-$file"
        columns="$columns ../column-$file"
    done
    # shellcheck disable=SC2086 # a list of files
    paste $columns | awk '
        function near(a, b) { return a - b < 2e-5 && b - a < 2e-5 }
        function tanh(x) { return 1 - 2 / (exp(2 * x) + 1) }
        { n = NR - 1 }
        (/nan/ || !('"$condition"')) && wrong++ < 3 { print "element " n ": " $0 }
        END { exit wrong || NR == 0 }' >../differ || fail "$*: not $condition: $(cat ../differ)"
}

# shows TEXT: what the last command said on stdout.
shows() {
    cases=$((cases + 1))
    grep -q -e "$1" ../stdout || fail "does not show '$1': $(cat ../stdout)"
}

# sound_json: so is what the last command said. What opens is closed, no list ends with a comma, no
# figure is NaN or infinite; and Python, where there is one, can read it.
sound_json() {
    cases=$((cases + 1))
    awk '
        {
            opened += gsub(/[{[]/, "&")
            closed += gsub(/[]}]/, "&")
            quotes += gsub(/"/, "&")
        }
        /: -?(nan|inf)/ || (last ~ /,$/ && /^ *[]}]/) { bad = 1 }
        { last = $0 }
        END { exit bad || NR == 0 || opened != closed || quotes % 2 }' ../stdout ||
        fail "is no JSON: $(cat ../stdout)"
    if python3 -c '' 2>/dev/null; then
        python3 -m json.tool ../stdout >../json 2>&1 || fail "is no JSON: $(cat ../json ../stdout)"
    fi
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

# Wrong usage.
# shellcheck disable=SC2086 # lists of options
{
    for option in --bogus -x --; do
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
    refuses 2 '--bogus' explain --bogus
    refuses 2 'bogus roles steps causality variance saturation gradient additive' explain bogus
    refuses 2 'extra' explain roles extra
    refuses 2 '--svg' explain roles --svg
    refuses 1 'missing/pictures' explain roles --svg missing/pictures
    refuses 1 'q.npy' explain roles --svg q.npy
    refuses 2 '--bogus' bench --bogus
    refuses 1 '--isa mmx' bench --isa mmx
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

# ---- Masks and windows --------------------------------------------------------------------------

# q, k and v are (8, 40, 15): 8 heads, 40 tokens, 15 features, 60 bytes a token.
# shellcheck disable=SC2086 # lists of options
{
    # equals FILE OPTIONS: a run with these options gives the very bits of FILE.
    equals() {
        wanted=$1
        shift
        succeeds run $qkv --out got.npy "$@"
        same got.npy "$wanted"
    }
    # differs FILE OPTIONS: and this one does not.
    differs() {
        wanted=$1
        shift
        succeeds run $qkv --out got.npy "$@"
        cases=$((cases + 1))
        if cmp -s got.npy "$wanted"; then fail "$* changes nothing"; fi
    }
    succeeds run $qkv --out all.npy
    succeeds run $qkv --out causal.npy --causal --lse causal-lse.npy
    succeeds run $qkv --out short.npy --kv-len 17

    equals all.npy --window -1,-1
    equals all.npy --window 39,39
    equals all.npy --window 9223372036854775807,9223372036854775807 --align 0
    equals causal.npy --window -1,0
    equals causal.npy --window -1,-1 --causal
    equals causal.npy --window 39,7 --causal --align top-left
    equals v.npy --window 0,0 # each row sees one key, and is its value
    # A window that passes over a key which neither the first row nor the last one sees.
    tokens q.npy 8 40 0 3 60 | tensor three-q.npy '<f4' '(8, 3, 15)'
    tokens k.npy 8 40 0 1 60 | tensor one-k.npy '<f4' '(8, 1, 15)'
    tokens v.npy 8 40 0 1 60 | tensor one-v.npy '<f4' '(8, 1, 15)'
    succeeds run --q three-q.npy --k one-k.npy --v one-v.npy --out got.npy --window 0,0 --align -1 --lse lse.npy
    holds 'n % 3 == 1 ? $1 != "-inf" : $1 == "-inf"' lse.npy
    equals short.npy --window -1,0 --align 16 --kv-len 17
    differs all.npy --window 38,39
    differs all.npy --window 39,38
    succeeds run $qkv --out got.npy --window 2,0 --weights weights.npy
    holds 'n % 40 >= int(n / 40) % 40 - 2 && n % 40 <= int(n / 40) % 40 ? $1 > 0 : $1 == 0' weights.npy
    for value in '' 1 1, ,1 1,2,3 -2,0 0,-2 1.5,0 x,y 99999999999999999999,0; do
        refuses 2 '--window' run $files --window "$value"
    done

    # What is added is 0 or -inf, and all three types of mask say the same.
    lower 40 40 '\001' '\000' | tensor mask.npy '|b1' '(40, 40)'
    equals causal.npy --mask mask.npy
    equals causal.npy --mask mask.npy --causal --lse lse.npy
    same lse.npy causal-lse.npy
    lower 40 40 '\377' '\000' | tensor mask.npy '|b1' '(40, 40)'
    equals causal.npy --mask mask.npy
    lower 40 40 $zero $minus_infinity | tensor mask.npy '<f4' '(40, 40)'
    equals causal.npy --mask mask.npy
    lower 40 40 '\000\000' '\000\374' | tensor mask.npy '<f2' '(40, 40)'
    equals causal.npy --mask mask.npy
    lower 40 40 '\000\000\000\000\000\000\000\000' '\000\000\000\000\000\000\360\377' | tensor mask.npy '<f8' '(40, 40)'
    equals causal.npy --mask mask.npy
    lower 40 40 '\000\000' '\200\377' | tensor mask.npy '<u2' '(40, 40)'
    equals causal.npy --mask mask.npy --bf16
    refuses 1 'mask.npy --bf16' run $files --mask mask.npy
    # Ranks: axes match from the last one on; one of length 1, or that is not there, serves all.
    lower 40 40 '\001' '\000' | tensor mask.npy '|b1' '(1, 40, 40)'
    equals causal.npy --mask mask.npy
    lower 320 40 '\001' '\001' | tensor mask.npy '|b1' '(8, 40, 40)'
    equals all.npy --mask mask.npy
    lower 40 40 '\001' '\000' | tensor mask.npy '|b1' '(1, 1, 40, 40)'
    equals causal.npy --mask mask.npy
    for head in 1 2 3 4 5 6 7 8; do lower 40 40 '\001' '\000'; done | tensor mask.npy '|b1' '(1, 8, 40, 40)'
    equals causal.npy --mask mask.npy
    { copies 17 '\001' && copies 23 '\000'; } | tensor mask.npy '|b1' '(40,)'
    equals short.npy --mask mask.npy
    { copies 17 '\001' && copies 23 '\000'; } | tensor mask.npy '|b1' '(1, 1, 1, 40)'
    equals short.npy --mask mask.npy
    copies 17 '\001' | tensor mask.npy '|b1' '(17,)' # keys after a shorter last axis are hidden
    equals short.npy --mask mask.npy
    copies 17 $zero | tensor mask.npy '<f4' '(1, 1, 17)'
    equals short.npy --mask mask.npy
    copies 1 '\001' | tensor mask.npy '|b1' '(1,)' # one column is one for all keys
    equals all.npy --mask mask.npy
    { copies 3 '\001' && copies 37 '\000'; } | tensor mask.npy '|b1' '(40, 1)'
    succeeds run $qkv --out got.npy --mask mask.npy --lse lse.npy
    holds 'n % 40 < 3 ? $1 != "-inf" : $1 == "-inf"' lse.npy
    holds 'int(n / 15) % 40 < 3 ? $1 == $2 : $1 == 0' got.npy all.npy
    { copies 1 '\000' && copies 7 '\001'; } | tensor mask.npy '|b1' '(8, 1, 1)'
    succeeds run $qkv --out got.npy --mask mask.npy
    holds 'n < 600 ? $1 == 0 : $1 == $2' got.npy all.npy
    # An additive mask is added, once and unscaled, and NaN in it where something else hides is nothing.
    lower 40 40 $one $zero | tensor mask.npy '<f4' '(40, 40)'
    succeeds run $qkv --out got.npy --mask mask.npy --scores biased.npy --scores-at biased --scale 0.125
    succeeds run $qkv --out got.npy --scores scaled.npy --scores-at scaled --scale 0.125
    holds 'near($1 - $2, n % 40 <= int(n / 40) % 40)' biased.npy scaled.npy
    lower 40 40 $zero $nan | tensor mask.npy '<f4' '(40, 40)'
    equals causal.npy --mask mask.npy --causal
    # What is timed are the pairs of row and key that see each other, 60 operations each.
    operations() {
        wanted=$1
        shift
        succeeds run $qkv --out got.npy --repeat 3 "$@"
        cases=$((cases + 1))
        tr '=' ' ' <../stdout | awk -v wanted="$wanted" '{ x = $4 * $6 * 1000 / wanted; exit !(x > 0.99 && x < 1.01) }' ||
            fail "$*: not $wanted operations: $(cat ../stdout)"
    }
    operations $((60 * 8 * 1600))
    operations $((60 * 8 * 820)) --causal
    operations $((60 * 8 * 820)) --causal --mask mask.npy # NaN, but shown
    operations $((60 * 8 * 117)) --window 2,0
    operations $((60 * 8 * 17 * 40)) --kv-len 17
    lower 40 40 '\000\000' '\000\374' | tensor mask.npy '<f2' '(40, 40)'
    operations $((60 * 8 * 820)) --mask mask.npy
    { copies 1 '\000' && copies 7 '\001'; } | tensor mask.npy '|b1' '(8, 1, 1)'
    operations $((60 * 7 * 1600)) --mask mask.npy
    for shape in '(39, 40)' '(40, 41)' '(9, 40, 40)' '(2, 8, 40, 40)' '(1, 1, 1, 41)' '(0,)' '(40, 0)' '()' \
        '(0, 40, 40)' '(1, 1, 1, 1, 40)'; do
        npy mask.npy '|b1' False "$shape" $((1600 * 16))
        size=$(echo "$shape" | tr -d '(),' | tr ' ' '*')
        head -c $((128 + ${size:-1})) mask.npy >cut.npy
        refuses 1 'cut.npy expected' run $files --mask cut.npy
    done
    for descr in '<i4' '|i1' '|u1' '>f4' 'b1'; do
        npy mask.npy "$descr" False '(40, 40)' 1600
        refuses 1 "mask.npy $descr" run $files --mask mask.npy
    done
    npy mask.npy '|b1' True '(40, 40)' 1600
    refuses 1 'mask.npy ortran' run $files --mask mask.npy
    npy mask.npy '|b1' False '(40, 40)' 1599
    refuses 1 'mask.npy truncated' run $files --mask mask.npy
    refuses 1 'missing.npy' run $files --mask missing.npy
}

# ---- Softcap, ALiBi, sinks and scores -----------------------------------------------------------

# shellcheck disable=SC2086 # lists of options
{
    equals all.npy --softcap 0
    succeeds run $qkv --out got.npy --softcap 1e9
    close_to got.npy all.npy
    succeeds run $qkv --out got.npy --softcap 0.5 --scores capped.npy --scores-at capped
    succeeds run $qkv --out got.npy --softcap 0.5 --scores scaled.npy --scores-at scaled
    holds 'near($1, 0.5 * tanh($2 / 0.5))' capped.npy scaled.npy
    succeeds run $qkv --out got.npy --scores same.npy --scores-at capped
    same scaled.npy same.npy
    for value in '' x 1x nan inf -1; do
        refuses 2 '--softcap' run $files --softcap "$value"
    done

    # The scores of hidden keys too, but where hiding shows in them: -inf; 0 for keys not there.
    succeeds run $qkv --out got.npy --causal --scores got-scaled.npy --scores-at scaled
    same got-scaled.npy scaled.npy
    same got.npy causal.npy
    succeeds run $qkv --out got.npy --causal --scores biased.npy --scores-at biased --weights weights.npy
    same got.npy causal.npy
    holds 'n % 40 <= int(n / 40) % 40 ? $1 == $2 && $3 > 0 : $1 == "-inf" && $3 == 0' biased.npy scaled.npy weights.npy
    succeeds run $qkv --out got.npy --kv-len 17 --scores got-scaled.npy --scores-at scaled
    holds 'n % 40 < 17 ? $1 == $2 : $1 == 0' got-scaled.npy scaled.npy
    succeeds run $qkv --out got.npy --kv-len 17 --scores biased.npy --scores-at biased
    holds 'n % 40 < 17 ? $1 == $2 : $1 == "-inf"' biased.npy scaled.npy

    copies 8 $zero | tensor heads.npy '<f4' '(8,)'
    equals all.npy --alibi heads.npy
    { copies 4 $zero && copies 4 $one; } | tensor heads.npy '<f4' '(8,)'
    succeeds run $qkv --out got.npy --alibi heads.npy --scores biased.npy --scores-at biased
    holds 'near($2 - $1, n < 6400 ? 0 : int(n / 40) % 40 > n % 40 ? int(n / 40) % 40 - n % 40 : n % 40 - int(n / 40) % 40)' \
        biased.npy scaled.npy
    succeeds run $qkv --out got.npy --alibi heads.npy --scores biased.npy --scores-at biased --align 7
    holds 'n < 6400 || int(n / 40) % 40 + 7 < n % 40 || near($2 - $1, int(n / 40) % 40 + 7 - n % 40)' biased.npy scaled.npy

    copies 8 $minus_infinity | tensor heads.npy '<f4' '(8,)'
    equals all.npy --sinks heads.npy
    copies 8 $one | tensor heads.npy '<f4' '(8,)'
    succeeds run $qkv --out all.npy --lse lse.npy
    succeeds run $qkv --out got.npy --sinks heads.npy --lse sink-lse.npy
    holds 'near($1, log(exp($2) + exp(1)))' sink-lse.npy lse.npy
    copies 8 '\000\000\000\000\000\000\360\077' | tensor heads.npy '<f8' '(8,)'
    equals got.npy --sinks heads.npy
    succeeds run $qkv --out got.npy --sinks heads.npy --kv-len 0 --lse sink-lse.npy
    holds '$1 == 0' got.npy
    holds '$1 == 1' sink-lse.npy
    copies 8 $nan | tensor heads.npy '<f4' '(8,)'
    refuses 1 'heads.npy slope 0 nan' run $files --alibi heads.npy
    for option in --sinks --alibi; do
        refuses 1 'missing.npy' run $files $option missing.npy
        for shape in '(7,)' '(8, 1)' '(1, 8)' '()' '(0,)'; do
            size=$(echo "$shape" | tr -d '(),' | tr ' ' '*')
            npy heads.npy '<f4' False "$shape" $((4 * ${size:-1}))
            refuses 1 'heads.npy (8,)' run $files $option heads.npy
        done
        npy heads.npy '|b1' False '(8,)' 8
        refuses 1 'heads.npy |b1' run $files $option heads.npy
    done
    refuses 2 '--scores --scores-at' run $files --scores scores.npy
    refuses 2 '--scores --scores-at' run $files --scores-at scaled
    refuses 2 '--scores-at' run $files --scores scores.npy --scores-at raw
    refuses 1 'missing/s.npy' run $files --scores missing/s.npy --scores-at scaled
    refuses 2 'same' run $files --scores out.npy --scores-at scaled
}

# ---- Keys and values from before ----------------------------------------------------------------

# cut_tokens FILE FROM FIRST COUNT SHAPE: of the 40.
cut_tokens() {
    tokens "$2" 8 40 "$3" "$4" 60 | tensor "$1" '<f4' "$5"
}
# shellcheck disable=SC2086 # lists of options
{
    for file in q k v; do
        elements $file.npy | tensor ${file}4.npy '<f4' '(1, 8, 40, 15)'
        cut_tokens past-$file.npy $file.npy 0 25 '(1, 8, 25, 15)'
        cut_tokens new-$file.npy $file.npy 25 15 '(1, 8, 15, 15)'
    done
    past='--past-k past-k.npy --past-v past-v.npy'
    present='--present-k present-k.npy --present-v present-v.npy'
    new='--q new-q.npy --k new-k.npy --v new-v.npy'

    # The very bits of a run over the concatenation, whatever is asked for besides.
    for options in '' '--causal' '--window 9,0' '--window 3,3 --softcap 2'; do
        where=
        [ -z "$options" ] || where='--align 25'
        succeeds run --q new-q.npy --k k4.npy --v v4.npy --out want.npy --weights want-weights.npy \
            --lse want-lse.npy --scores want-scores.npy --scores-at biased $options $where
        succeeds run $new $past --out got.npy --weights weights.npy --lse lse.npy --scores scores.npy \
            --scores-at biased $present $options
        same got.npy want.npy
        same weights.npy want-weights.npy
        same lse.npy want-lse.npy
        same scores.npy want-scores.npy
        same present-k.npy k4.npy
        same present-v.npy v4.npy
    done
    for head in 1 2 3 4; do printf '%b%b' $zero $one; done | tensor heads.npy '<f4' '(8,)'
    copies 600 '\001' | tensor mask.npy '|b1' '(15, 40)'
    succeeds run --q new-q.npy --k k4.npy --v v4.npy --out want.npy --alibi heads.npy --sinks heads.npy --align 25
    succeeds run $new $past --out got.npy --alibi heads.npy --sinks heads.npy --mask mask.npy
    same got.npy want.npy
    refuses 1 'mask.npy (1, 8, 15, 15)' run $new --out out.npy --mask mask.npy
    copies 30 '\001' | tensor mask.npy '|b1' '(30,)' # covers 5 of the new keys
    succeeds run --q new-q.npy --k k4.npy --v v4.npy --out want.npy --kv-len 30
    succeeds run $new $past --out got.npy --mask mask.npy
    same got.npy want.npy
    succeeds run --q new-q.npy --k k4.npy --v v4.npy --out want.npy --causal --align top-left
    succeeds run $new $past --out got.npy --causal --align top-left
    same got.npy want.npy
    # q of rank 3 or 2 is one batch. The cache may be written over.
    cut_tokens new3-k.npy k.npy 25 15 '(8, 15, 15)'
    cut_tokens new3-v.npy v.npy 25 15 '(8, 15, 15)'
    cp past-k.npy cache-k.npy
    cp past-v.npy cache-v.npy
    succeeds run --q q.npy --k new3-k.npy --v new3-v.npy --out got.npy --past-k cache-k.npy --past-v cache-v.npy \
        --present-k cache-k.npy --present-v cache-v.npy
    same got.npy all.npy
    same cache-k.npy k4.npy
    same cache-v.npy v4.npy
    # Nothing before: an empty past, or none.
    npy none.npy '<f4' False '(1, 8, 0, 15)' 0
    succeeds run --q q4.npy --k k4.npy --v v4.npy --out got.npy --past-k none.npy --past-v none.npy --causal $present
    same_elements got.npy causal.npy
    same present-k.npy k4.npy
    rm present-k.npy present-v.npy
    succeeds run $qkv --out got.npy --causal $present
    same got.npy causal.npy
    same present-k.npy k4.npy
    same present-v.npy v4.npy
    # One by one they give the rows of the whole.
    cut_tokens q39.npy q.npy 39 1 '(1, 8, 1, 15)'
    cut_tokens k39.npy k.npy 39 1 '(1, 8, 1, 15)'
    cut_tokens v39.npy v.npy 39 1 '(1, 8, 1, 15)'
    cut_tokens past-k39.npy k.npy 0 39 '(1, 8, 39, 15)'
    cut_tokens past-v39.npy v.npy 0 39 '(1, 8, 39, 15)'
    cut_tokens want.npy causal.npy 39 1 '(1, 8, 1, 15)'
    succeeds run --q q39.npy --k k39.npy --v v39.npy --past-k past-k39.npy --past-v past-v39.npy --out got.npy --causal
    same got.npy want.npy

    # Other layouts: present is [B,H,P+L,D] all the same. 2 heads, 1 token before and 2 new, 2 features.
    floats() { # small integers, as float32
        for number in "$@"; do
            case $number in
            1) printf '\000\000\200\077' ;; 2) printf '\000\000\000\100' ;; 3) printf '\000\000\100\100' ;;
            4) printf '\000\000\200\100' ;; 5) printf '\000\000\240\100' ;; 6) printf '\000\000\300\100' ;;
            7) printf '\000\000\340\100' ;; 8) printf '\000\000\000\101' ;; 9) printf '\000\000\020\101' ;;
            *) printf '\000\000\000\000' ;;
            esac
        done
    }
    floats 1 2 3 4 5 6 7 8 | tensor blhd.npy '<f4' '(1, 2, 2, 2)'
    floats 1 2 3 4 5 6 7 8 | tensor packed.npy '<f4' '(1, 2, 4)'
    floats 0 9 9 0 | tensor before.npy '<f4' '(1, 2, 1, 2)'
    floats 0 9 1 2 5 6 9 0 3 4 7 8 | tensor want.npy '<f4' '(1, 2, 3, 2)'
    succeeds run --q blhd.npy --k blhd.npy --v blhd.npy --layout blhd --out blhd-out.npy \
        --past-k before.npy --past-v before.npy $present --causal
    same present-k.npy want.npy
    same present-v.npy want.npy
    succeeds run --q packed.npy --k packed.npy --v packed.npy --q-heads 2 --kv-heads 2 --out packed-out.npy \
        --past-k before.npy --past-v before.npy $present --causal
    same present-k.npy want.npy
    same_elements packed-out.npy blhd-out.npy
    # Types: those of k and v.
    copies 8 '\000\074' | tensor half.npy '<f2' '(1, 2, 2, 2)'
    copies 8 '\000\000\000\000\000\000\360\077' | tensor double.npy '<f8' '(1, 2, 2, 2)'
    succeeds run --q blhd.npy --k half.npy --v double.npy --out out.npy --past-k before.npy --past-v before.npy $present
    { printf '\000\000\200\110' && copies 4 '\000\074' && printf '\200\110\000\000' && copies 4 '\000\074'; } |
        tensor want.npy '<f2' '(1, 2, 3, 2)'
    same present-k.npy want.npy
    { floats 0 9 1 1 1 1 9 0 1 1 1 1; } | tensor want.npy '<f4' '(1, 2, 3, 2)'
    same present-v.npy want.npy
    rm -f out.npy present-k.npy present-v.npy

    refuses 2 '--past-k --past-v' run $new --out out.npy --past-k past-k.npy
    refuses 2 '--past-k --past-v' run $new --out out.npy --past-v past-v.npy
    refuses 2 '--past-k --kv-len' run $new --out out.npy $past --kv-len 20
    refuses 1 'missing.npy' run $new --out out.npy --past-k missing.npy --past-v past-v.npy
    refuses 1 'text.npy' run $new --out out.npy --past-k past-k.npy --past-v text.npy
    refuses 1 'missing/p.npy' run $new --out out.npy $past --present-k missing/p.npy --present-v present-v.npy
    refuses 1 'missing/p.npy' run $new --out out.npy $past --present-k present-k.npy --present-v missing/p.npy
    refuses 2 'same' run $new --out out.npy $past --present-k present.npy --present-v present.npy
    refuses_with "sh -c" 1 'present-k.npy' "trap '' 25; ulimit -f 16; '$attn' run $new --out out.npy $past $present"
    for shape in '(8, 25, 15)' '(25, 15)' '(2, 8, 25, 15)' '(1, 4, 25, 15)' '(1, 8, 25, 16)'; do
        size=$(echo "$shape" | tr -d '()' | sed 's/, /*/g')
        npy other.npy '<f4' False "$shape" $((4 * $size))
        refuses 1 'other.npy (1, 8, P, 15)' run $new --out out.npy --past-k other.npy --past-v past-v.npy
        refuses 1 'other.npy (1, 8, P, 15)' run $new --out out.npy --past-k past-k.npy --past-v other.npy
    done
    refuses 1 'past-k.npy new-v.npy 25 15' run $new --out out.npy --past-k past-k.npy --past-v new-v.npy
}

# ---- Storage types ------------------------------------------------------------------------------

# as_type FILE FROM DESCR OPTIONS: the tensor [1, 8, 40, 15] of FROM in another type, as the present of
# a past of FROM and no new keys.
as_type() {
    file=$1 from=$2
    npy none.npy "$3" False '(1, 8, 0, 15)' 0
    shift 3
    succeeds run --q q4.npy --k none.npy --v none.npy --past-k "$from" --past-v "$from" --out ignored.npy \
        --present-k "$file" "$@"
}
# shellcheck disable=SC2086 # lists of options
{
    succeeds run --q q4.npy --k k4.npy --v v4.npy --causal --out want4.npy
    for descr in '<f2' '<u2'; do
        type=f16 option=
        [ "$descr" = '<f2' ] || type=bf16 option=--bf16
        for tensor in q k v; do
            as_type half-$tensor.npy ${tensor}4.npy "$descr" $option
            as_type wide-$tensor.npy half-$tensor.npy '<f4' $option
            [ "$(wc -c <half-$tensor.npy)" = $((128 + 8 * 40 * 15 * 2)) ] || fail "half-$tensor.npy has another size"
        done
        cmp -s q4.npy wide-q.npy && fail "$type rounds nothing"
        wide='--k wide-k.npy --v wide-v.npy --causal'
        half='--k half-k.npy --v half-v.npy --causal'
        # The bits of a run over the same numbers in float32, of the output too where Q is.
        succeeds run --q q4.npy $wide --out want.npy --lse want-lse.npy
        succeeds run --q q4.npy $half $option --out got.npy --lse lse.npy
        same got.npy want.npy
        same lse.npy want-lse.npy
        succeeds run --q wide-q.npy $wide --out want.npy --weights want-weights.npy
        succeeds run --q half-q.npy $half $option --out got.npy --weights weights.npy
        as_type want-half.npy want.npy "$descr" $option
        same got.npy want-half.npy
        [ "$(wc -c <weights.npy)" = $((128 + 8 * 40 * 40 * 2)) ] || fail "weights.npy is not $type"
        # Converted on the way; mixed with a past of another type, or converted with it.
        succeeds run --q q4.npy --k k4.npy --v v4.npy --causal --kv-type $type --out got.npy
        succeeds run --q q4.npy $half $option --out want.npy
        same got.npy want.npy
        succeeds run --q q4.npy $half $option --kv-type f32 --out got.npy
        same got.npy want.npy
        tokens half-k.npy 8 40 0 25 30 | tensor half-past.npy "$descr" '(1, 8, 25, 15)'
        tokens wide-k.npy 8 40 0 25 60 | tensor wide-past.npy '<f4' '(1, 8, 25, 15)'
        succeeds run $new --past-k half-past.npy --past-v past-v.npy $option --out got.npy $present
        succeeds run $new --past-k wide-past.npy --past-v past-v.npy --out want.npy --present-k want-k.npy --present-v want-v.npy
        same got.npy want.npy
        same present-k.npy want-k.npy
        same present-v.npy want-v.npy
        rm -f present-k.npy present-v.npy want-k.npy want-v.npy
    done
    # In two pieces or one: each token has its own scale.
    for type in i8 f16 bf16 f32; do
        succeeds run --q new-q.npy --k k4.npy --v v4.npy --kv-type $type --out want.npy --align 25
        succeeds run $new $past --kv-type $type --out got.npy $present
        same got.npy want.npy
        same present-k.npy k4.npy
        same present-v.npy v4.npy
        rm -f present-k.npy present-v.npy
    done
    succeeds run --q q4.npy --k k4.npy --v v4.npy --causal --kv-type i8 --out got.npy
    holds '$1 - $2 < 0.05 && $2 - $1 < 0.05' got.npy want4.npy
    cmp -s got.npy want4.npy && fail "--kv-type i8 changes nothing"
    succeeds run --q q4.npy --k k4.npy --v v4.npy --causal --kv-type f32 --out got.npy
    same got.npy want4.npy
    for value in '' i4 F16 float16 4; do
        refuses 2 '--kv-type' run $files --kv-type "$value"
    done
}

# ---- Where rows stand among the keys ------------------------------------------------------------

# shellcheck disable=SC2086 # lists of options
{
    few='--q new-q.npy --k k4.npy --v v4.npy'
    copies 8 $one | tensor heads.npy '<f4' '(8,)'
    for option in --causal '--window 2,0' '--window -1,3' '--alibi heads.npy'; do
        refuses 2 '--align 15 40' run $few --out out.npy $option
        succeeds run $few --out got.npy $option --align bottom-right
        succeeds run $few --out want.npy $option --align 25
        same got.npy want.npy
        succeeds run $few --out got.npy $option --align top-left
        succeeds run $few --out want.npy $option --align 0
        same got.npy want.npy
        # Keys in use, then rows: what they stand beside.
        succeeds run $few --out got.npy $option --align bottom-right --kv-len 20
        succeeds run $few --out want.npy $option --align 5 --kv-len 20
        same got.npy want.npy
        refuses 2 '--align 15 20' run $few --out out.npy $option --kv-len 20
        succeeds run $few --out got.npy $option --kv-len 15
    done
    succeeds run $few --out got.npy --window -1,-1
}

# ---- As an ONNX Attention node asks for it ------------------------------------------------------

# Inputs of rank 3, past and present, the outputs of its four modes; and its cache of fixed capacity.
# shellcheck disable=SC2086 # lists of options
{
    for file in q k v; do # [B,L,H*D]
        for token in $(seq 25 39); do
            tokens $file.npy 8 40 "$token" 1 60
        done | tensor packed-$file.npy '<f4' '(1, 15, 120)'
    done
    node='--q packed-q.npy --k packed-k.npy --v packed-v.npy --q-heads 8 --kv-heads 8'
    succeeds run $new $past --causal --softcap 3 --out want.npy --weights want-weights.npy
    for mode in scaled capped biased; do
        succeeds run $new $past --causal --softcap 3 --out want.npy --scores want-$mode.npy --scores-at $mode
        succeeds run $node $past --causal --softcap 3 --out got.npy --scores got-$mode.npy --scores-at $mode $present
        same got-$mode.npy want-$mode.npy
    done
    succeeds run $node $past --causal --softcap 3 --out got.npy --weights got-weights.npy
    same got-weights.npy want-weights.npy
    same present-k.npy k4.npy
    same present-v.npy v4.npy
    for token in $(seq 0 14); do
        tokens want.npy 8 15 "$token" 1 60
    done | tensor want-packed.npy '<f4' '(1, 15, 120)'
    same got.npy want-packed.npy
    # nonpad_kv_seqlen: two batches, of 40 and 30 keys; the mask covers the capacity.
    for file in q k v; do
        { elements $file.npy && elements $file.npy; } | tensor two-$file.npy '<f4' '(2, 8, 40, 15)'
    done
    copies 40 '\001' | tensor mask.npy '|b1' '(40,)'
    succeeds run --q two-q.npy --k two-k.npy --v two-v.npy --out got.npy --kv-len 40,30 --causal --window 20,-1 \
        --align bottom-right --mask mask.npy
    succeeds run $qkv --out first.npy --causal --window 20,-1 --align 0
    succeeds run $qkv --out second.npy --causal --window 20,-1 --align -10 --kv-len 30
    { elements first.npy && elements second.npy; } | tensor want.npy '<f4' '(2, 8, 40, 15)'
    same got.npy want.npy
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
# --quick is a second or two where kernels are vectorised.
succeeds bench --help
succeeds bench --quick
for isa in $isas; do
    case $isa in
    scalar | *_*) ;; # those that are used only by name are others, in f32
    *) shows "^ *$isa  *8 heads, 160 x 160, d 128 .* of .*GFLOP/s .*\[.*\]" ;;
    esac
done
best=$(echo "$isas" | sed 1q)
if [ "$best" != scalar ]; then
    # As programs read it: what opens is closed, no list ends with a comma, figures are figures.
    succeeds bench --quick --json --isa "$best"
    sound_json
    cases=$((cases + 1))
    awk '
        /"ratio": / { rows++; if ($0 !~ /"ratio": [0-9]+\.[0-9]+, /) bad = 1 }
        /"value": / { limits++; if ($0 !~ /"value": [0-9]+\.[0-9]}/) bad = 1 }
        END { exit bad || rows != 10 || limits < 4 }' ../stdout ||
        fail "attn bench --json: $(cat ../stdout)"
    if script --version >/dev/null 2>&1; then
        cases=$((cases + 1))
        TERM=xterm script -qec "'$attn' bench --quick --isa $best 2>&1 >/dev/null" /dev/null \
            >../stdout </dev/null || fail "attn bench on a terminal"
        grep -q ' of [0-9]*: ' ../stdout || fail "attn bench says nothing on a terminal while it runs"
    fi
fi
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

# ---- attn explain -------------------------------------------------------------------------------

# figure KEY: that number of the JSON that was printed last, of its first lesson that has it.
figure() {
    tr ',{}' '\n\n\n' <../stdout | sed -n "s/^ *\"$1\": //p" | sed 1q
}
# measures CONDITION KEY...: of these figures, $1 the first and so on.
measures() {
    cases=$((cases + 1))
    condition=$1
    shift
    for key in "$@"; do figure "$key"; done | paste -s -d ' ' - |
        awk -v n=$# '{ exit !(NF == n && ('"$condition"')) }' || fail "explain: not $condition for $*: $(cat ../stdout)"
}
# every CONDITION N KEY...: of the rows that have all these keys, of which there are N.
every() {
    cases=$((cases + 1))
    awk -v rows="$2" -v keys="$(shift 2 && echo "$*")" '
        function figure(key) { return match($0, "\"" key "\": [-+.e0-9]+") ? substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) + 0 : "none" }
        BEGIN { n = split(keys, key, " ") }
        {
            for (i = 1; i <= n; i++)
                if ((x[i] = figure(key[i])) == "none")
                    next
            found++
            if (!('"$1"'))
                bad = 1
            for (i = 1; i <= n; i++)
                before[i] = x[i]
        }
        END { exit bad || found != rows }' ../stdout || fail "explain: not $1 for $2 rows of $*: $(cat ../stdout)"
}

mkdir tests
ln -s "$data" tests/data # wherever the command itself lies
succeeds explain --help
succeeds explain
if grep -q "$escape" ../stdout; then fail "attn explain writes escapes where there is no terminal"; fi
lessons='roles steps causality variance saturation gradient additive'
for lesson in $lessons; do
    shows "^$lesson: "
done
for lesson in $lessons; do
    succeeds explain $lesson --svg pictures
    shows "^$lesson: "
    shows '^  => '
    # Every element is closed, and no & or < stands for itself.
    cases=$((cases + 1))
    awk '
        NR == 1 && !/^<svg / { bad = 1 }
        /&/ && !/&(lt|amp);/ { bad = 1 }
        {
            opened += gsub(/<[a-z]/, "&")
            closed += gsub(/<\/[a-z]/, "&") + gsub(/\/>/, "&")
            quotes += gsub(/"/, "&")
            last = $0
        }
        /nan|inf/ && !/<text|<title/ { bad = 1 }
        END { exit bad || NR < 10 || last != "</svg>" || opened != closed }' pictures/$lesson.svg ||
        fail "$lesson.svg is no picture: $(cat pictures/$lesson.svg)"
    if command -v xmllint >/dev/null; then
        xmllint --noout pictures/$lesson.svg || fail "$lesson.svg is not well-formed"
    fi
done
rm -r pictures
for isa in $(echo "$isas" | sed "${ATTN_TEST_QUICK:+1q}"); do
    export ATTN_ISA="$isa"
    for lesson in $lessons; do
        succeeds explain $lesson --json
        sound_json
        shows "\"isa\": \"$isa\""
        shows '"holds": true'
        case $lesson in
        roles) measures '$1 <= 1e-6 && $2 == 0' worst_row_sum_error weights_differ_when_v_changes ;;
        steps)
            measures '$1 > 1 - 1e-6 && $1 < 1 + 1e-6' weight_sum
            every 'x[1] >= 0 && x[1] <= 1' 10 weight
            ;;
        causality)
            measures '$1 == 45 && $2 == 0 && $3 > 40' rows_compared rows_changed_causal rows_changed_full
            cases=$((cases + 1))
            tr -d ',[]' <../stdout | awk '
                NF == 10 && /^ *[0-9]/ {
                    sum = 0
                    for (j = 1; j <= NF; j++)
                        sum += $j
                    if (sum < 1 - 1e-6 || sum > 1 + 1e-6)
                        bad = 1
                    for (j = ++rows + 1; j <= NF; j++)
                        if ($j != 0)
                            bad = 1
                }
                END { exit bad || rows != 10 }' || fail "explain causality: no triangle of rows that sum to 1: $(cat ../stdout)"
            ;;
        variance)
            every '(x[2] - x[1]) ^ 2 <= (3 * x[3]) ^ 2' 9 d_k variance variance_error
            every '(x[1] - 1) ^ 2 <= (3 * x[2]) ^ 2' 9 scaled_variance scaled_variance_error
            every 'x[1] ^ 2 <= (3 * x[2]) ^ 2' 9 mean mean_error
            measures '$1 == 15 && $2 > 3 && $2 < 4' real_d_k real_sd
            ;;
        saturation) every 'x[1] < 0.2 && x[2] > before[2]' 5 largest_scaled largest_unscaled ;;
        gradient) every 'x[1] > 0.05 && (x[2] < 64 || x[3] < before[3])' 8 ds_scaled d_k ds_unscaled ;;
        additive) measures '$1 < 1e-5 && $2 == $3 && $4 > 2 * $2' additive_error rank_dim rank_dot rank_additive ;;
        esac
    done
    unset ATTN_ISA
done
if script --version >/dev/null 2>&1; then
    cases=$((cases + 1))
    TERM=xterm script -qec "'$attn' explain roles" /dev/null >../stdout </dev/null || fail "attn explain on a terminal"
    grep -q "$escape" ../stdout || fail "attn explain has no headings on a terminal"
fi

if [ -w /dev/full ]; then
    cases=$((cases + 1))
    status=0
    "$attn" info >/dev/full 2>../stderr || status=$?
    [ $status = 1 ] || fail "attn info on a full disk: status $status"
fi

echo "$cases cases, $failures failed"
[ $failures = 0 ]
