# The ratio to the multiply-add peak over the length. SPDX-License-Identifier: MIT
set title '8 heads, f32, not causal: fraction of the multiply-add peak'
set xlabel 'queries and keys' offset 0, 0.5
set logscale x 2
set xrange [13:5000]
set xtics (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
set yrange [0:1]
set key bottom right
file(i, dim) = sprintf('%s/length-%s-%s', data, word(isas, i), dim)
dash(dim) = dim eq '64' ? 2 : 1
mark(dim) = dim eq '64' ? 6 : 7
plot for [i = 1:words(isas)] for [dim in '64 128'] file(i, dim) \
    using 1:2:3:4 with yerrorlines linecolor rgb colours[i] \
    dashtype dash(dim) pointtype mark(dim) linewidth 2 \
    title sprintf('%s, %s features', word(isas, i), dim)
