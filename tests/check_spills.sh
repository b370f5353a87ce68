#!/bin/sh
# Fails if a compiler keeps the sums of a register block in memory, which takes twice the time: if in
# an innermost loop of a product's kernel more than every fourth multiply-add has a vector that comes
# from the stack or goes there; or if, where few rows meet keys as they are turned, so many addresses
# come from vector registers, by way of a port that multiply-adds need. (Values wait for memory
# rather.) Fails as well where it finds no such loop.
#
# Usage: check_spills.sh BUILD, with OBJDUMP the disassembler for it
#
# SPDX-License-Identifier: MIT
set -eu

build=$1
bad=
for object in "$build"/src/*/qk_tile.o "$build"/src/*/pv_tile.o; do
    case $object in */scalar/*) continue ;; esac
    # A loop is what a jump back encloses, here without another such jump in it.
    ${OBJDUMP:-objdump} -d --no-show-raw-insn "$object" | awk -v object="${object#"$build"/}" '
        function report(   i, j, inner, products, spills, fetches) {
            for (i = 0; i < loops; i++) {
                inner = 1
                for (j = 0; j < loops; j++)
                    if (j != i && from[j] >= from[i] && to[j] <= to[i])
                        inner = 0
                products = spills = fetches = 0
                for (j = from[i]; inner && j <= to[i]; j++) {
                    products += line[j] ~ /fn?madd|fml[as]|vdpb|bfdot|bfmmla/
                    spills += line[j] ~ (frame ? "%[xyz]mm.*[(]%r[sb]p|[(]%r[sb]p.*%[xyz]mm" : "%[xyz]mm.*[(]%rsp|[(]%rsp.*%[xyz]mm") ||
                        line[j] ~ /[ \t{][qv][0-9]+[,.].*\[sp/
                    fetches += line[j] ~ /vmovq +%xmm[0-9]+,%r|vpextrq|fmov\tx/
                }
                seen += products >= 16
                if (name !~ /^<strided/ && products >= 16 && 4 * spills > products) {
                    printf "%s: %s %d moves of vectors to or from the stack in a loop of %d multiply-adds\n", object, name, spills, products
                    bad = 1
                }
                if (name ~ /^<strided/ && products >= 16 && 4 * fetches > products) {
                    printf "%s: %s %d addresses from vector registers in a loop of %d multiply-adds\n", object, name, fetches, products
                    bad = 1
                }
            }
            n = loops = frame = 0
        }
        /^[0-9a-f]+ <.*>:$/ { report(); name = $2; next }
        name !~ /^<(block|qk|pv|strided)_/ { next }
        $1 ~ /^[0-9a-f]+:$/ {
            at = $1
            sub(":", "", at)
            line[n] = $0
            place[at] = n
            if ($0 ~ /mov +%rsp,%rbp/)
                frame = 1
            if ($2 ~ /^(j|b$|b\.|cbn?z|tbn?z)/ && match($0, /[0-9a-f]+ </)) {
                target = substr($0, RSTART, RLENGTH - 2)
                if (target in place && place[target] <= n && line[place[target]] ~ "^ *" target ":") {
                    from[loops] = place[target]
                    to[loops++] = n
                }
            }
            n++
        }
        END {
            report()
            if (!seen)
                print object ": no loop of 16 multiply-adds"
            exit bad || !seen
        }' || bad=1
done
[ -z "$bad" ]
