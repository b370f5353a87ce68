# Turns the JSON of benchmark runs (--benchmark_out) into a table: a line for each benchmark, its
# name, where it ran and what it counted; medians where it was repeated. With -v context=1 the lines
# of a caption instead.
#
# SPDX-License-Identifier: MIT
function text(line) {
    sub(/^[^:]*: "/, "", line)
    sub(/",?$/, "", line)
    return line
}
function number(line) {
    sub(/^[^:]*: /, "", line)
    sub(/,$/, "", line)
    return line + 0
}
function forget() {
    split("", value)
    name = aggregate = ""
    failed = 0
}
BEGIN {
    OFS = "\t"
    forget()
}
/^ *"context": \{/ { in_list = 0 }
/^ *"benchmarks": \[/ { in_list = 1 }
!in_list && /^ *"(machine|compiler|flags|commit|seconds|command|date)": / {
    key = $1
    gsub(/[":]/, "", key)
    about[key] = text($0)
    if (key == "command") {
        sub(/ --benchmark_out=[^ ]*/, "", about[key])
        commands = commands (commands == "" ? "" : "\n") about[key]
    }
    next
}
!in_list { next }
/^ *"run_name": / {
    name = text($0)
    sub(/\/iterations:.*/, "", name)
}
/^ *"aggregate_name": / { aggregate = text($0) }
/^ *"error_occurred": true/ { failed = 1 }
/^ *"[A-Za-z_\/0-9]+": [-0-9.]/ {
    key = $1
    gsub(/[":]/, "", key)
    value[key] = number($0)
}
/^ *}/ {
    if (name != "" && !failed && (aggregate == "" || aggregate == "median")) {
        if (!(name in row))
            order[++n] = name
        gflops = value["flops"] ? value["flops"] / value["real_time"] * 1e-3 : value["GFLOP/s"] + 0
        limit = value["limit_GFLOP/s"] + value["limit_GB/s"] + value["limit_Gop/s"]
        row[name] = value["ratio"] OFS value["ratio_p10"] OFS value["ratio_p90"] OFS gflops OFS \
            limit OFS value["flops_per_byte"] + 0 OFS value["pairs"] + 0 OFS value["real_time"]
    }
    forget()
}
END {
    if (context) {
        print about["machine"] ", one thread, " substr(about["date"], 1, 10)
        print about["compiler"] ", " about["flags"] ", commit " about["commit"]
        print commands
        print "medians over bursts for " about["seconds"] " s each, with their 10 % and 90 %"
        exit
    }
    print "# name", "ratio", "ratio_p10", "ratio_p90", "gflops", "limit", "flops_per_byte", "pairs", \
        "us"
    for (i = 1; i <= n; i++)
        print order[i], row[order[i]]
}
