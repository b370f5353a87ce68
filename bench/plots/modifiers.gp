# What a mask, a bias, ... costs. SPDX-License-Identifier: MIT
set title 'Time of a call with a modifier, as a multiple of the same call without'
set lmargin at screen 0.18
set logscale x 2
set xrange [0.02:16]
set xtics ("1/32" 0.03125, "1/16" 0.0625, "1/8" 0.125, "1/4" 0.25, "1/2" 0.5, 1, 2, 4, 8, 16)
set ytics noenhanced
set key center left at graph 0.02, graph 0.62 samplen 2
file(i) = sprintf('%s/modifier-%s', data, word(isas, i))
set yrange [real(system(sprintf("wc -l <'%s'", file(1)))) - 0.4:-0.6]
shift(i) = 0.2 * (i - 0.5 * (words(isas) + 1))
set arrow 1 from 1, graph 0 to 1, graph 1 nohead linecolor rgb '#888888' linewidth 1.5
plot file(1) using 8:0:(0.35):ytic(1) with yerrorbars pointtype 0 linewidth 2 linecolor rgb '#bbbbbb' \
         title 'pairs of row and key left', \
     for [i = 1:words(isas)] file(i) using 2:($0 + shift(i)):3:4 with xerrorbars \
         pointtype 7 pointsize 0.7 linewidth 2 linecolor rgb colours[i] title word(isas, i)
