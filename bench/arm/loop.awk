# The innermost loop with the most multiply-adds of one function, from `objdump -d`, as assembly for
# llvm-mca: awk -v name=NAME -f loop.awk. Branches out of it are taken as not taken.
#
# SPDX-License-Identifier: MIT
$2 == "<" name ">:" { inside = 1; next }
/^$/ { inside = 0 }
inside {
    at = $1
    sub(/:$/, "", at)
    n++
    place[at] = n
    text[n] = $0
    sub(/^[^\t]*\t/, "", text[n])
    sub(/ *\/\/.*/, "", text[n])
}
END {
    for (i = 1; i <= n; i++) {
        if (text[i] !~ /^(b|b\..*|cbz|cbnz|tbz|tbnz)\t/)
            continue
        words = split(text[i], word, /[ \t,]+/)
        for (w = 2; w <= words; w++)
            if (word[w] in place)
                target[i] = place[word[w]]
    }
    for (i = 1; i <= n; i++) {
        if (!(i in target) || target[i] > i)
            continue
        innermost = 1
        fmas = 0
        for (j = target[i]; j < i; j++) {
            if ((j in target) && target[j] <= j && target[j] >= target[i])
                innermost = 0
            if (text[j] ~ /^fml[as]/)
                fmas++
        }
        if (innermost && fmas > most) {
            most = fmas
            first = target[i]
            last = i
        }
    }
    for (i = first; most && i <= last; i++) {
        sub(/[0-9a-f]+ <.*>/, "0", text[i])
        print text[i]
    }
}
