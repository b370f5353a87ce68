# Times of other libraries as multiples of ours. SPDX-License-Identifier: MIT
#
# The table: comment lines (# ...) become the caption; then a line of column names, `shape libattn
# NAME...`; then a line for each shape, microseconds, - where there is none.
set title 'Time of a call, as a multiple of that of libattn: above 1, libattn is faster'
file = data.'/peers'
columns = int(system(sprintf("grep -v '^#' '%s' | sed 1q | wc -w", file)))
set style data histogram
set style histogram clustered gap 1.5
set style fill solid 0.85 noborder
set datafile missing '-'
set key top right autotitle columnhead noenhanced
set xtics rotate by 35 right noenhanced font ',10'
set bmargin at screen 0.36
set yrange [0:*]
plot for [c = 3:columns] file using (column(c) / column(2)):xtic(1) linecolor rgb colours[c - 2] \
         title columnhead(c), \
     1 with lines linecolor rgb '#333333' linewidth 1.5 notitle
