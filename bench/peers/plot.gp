# Draws what bench-peers measured: gnuplot -e "table='...'; picture='...'" bench/peers/plot.gp
#
# SPDX-License-Identifier: MIT
set terminal svg size 900,520 font 'sans-serif,12' background rgb 'white'
set output picture
set title 'Time of a call, as a multiple of that of libattn: above 1, libattn is faster'
set label 1 system("sed -n 's/^# //p' '".table."' | sed 2q") at screen 0.01, 0.045 \
    font ',9' noenhanced
columns = int(system("grep -v '^#' '".table."' | sed 1q | wc -w"))
array colours[4] = ['#4c72b0', '#dd8452', '#8c8c8c', '#55a868']
set style data histogram
set style histogram clustered gap 1.5
set style fill solid 0.9 noborder
set datafile missing '-'
set key top right autotitle columnhead noenhanced
set xtics rotate by 35 right noenhanced font ',10'
set bmargin at screen 0.33
set logscale y 2
set yrange [0.5:32]
set grid ytics linecolor rgb '#dddddd'
plot for [c = 3:columns] table using (column(c) / column(2)):xtic(1) \
         linecolor rgb colours[c - 2] title columnhead(c), \
     1 with lines linecolor rgb '#333333' linewidth 1.5 notitle
