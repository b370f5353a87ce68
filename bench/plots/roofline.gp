# Work per byte against rate, under the roofs measured in the same run. SPDX-License-Identifier: MIT
set title 'f32 attention under its roofs: useful operations, every tensor moved once'
set xlabel 'operations per byte' offset 0, 0.5
set ylabel 'GFLOP/s'
set logscale xy
set xrange [0.3:2500]
set yrange [2:600]
set key bottom right
n = words(isas)
file(i) = sprintf('%s/attn-%s', data, word(isas, i))
limit(kind, i) = real(system(sprintf("cut -f 6 '%s/%s-%s'", data, kind, word(isas, i))))
# One memory for all: the fastest that any of their loops read it.
array peak[n]
bytes = 0
do for [i = 1:n] {
    peak[i] = limit('peak', i)
    bytes = limit('read', i) > bytes ? limit('read', i) : bytes
    set label 10 + i sprintf('%s multiply-adds, %.0f GFLOP/s', word(isas, i), peak[i]) \
        at 2400, peak[i] * 1.12 right font ',10' textcolor rgb colours[i]
}
set label 10 sprintf('reading 128 MiB, %.0f GB/s', bytes) at 0.9, bytes * 0.9 * 1.5 rotate by 38 \
    font ',10' textcolor rgb '#555555'
# Where points crowd, names do not fit.
named = 'decode-4096-gqa decode-4096-mha decode-512-d64 tiny-16 tiny-64 cross-64-on-1500 odd-197-d15'
label(name) = strstrt(' '.named.' ', ' '.name.' ') > 0 ? name : ''
plot bytes * x < peak[1] ? bytes * x : 1 / 0 linecolor rgb '#555555' linewidth 1.5 notitle, \
     for [i = 1:n] bytes * x < peak[i] ? 1 / 0 : peak[i] linecolor rgb colours[i] linewidth 1.5 notitle, \
     for [i = 1:n] file(i) using 7:5 with points pointtype 7 pointsize 0.6 linecolor rgb colours[i] \
         title word(isas, i), \
     file(1) using 7:5:(label(strcol(1))) with labels left noenhanced offset 0.7, -0.5 font ',9' \
         textcolor rgb '#555555' notitle
