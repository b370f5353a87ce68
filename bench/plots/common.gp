# What all pictures have in common. SPDX-License-Identifier: MIT
set encoding utf8
set datafile separator whitespace
caption = system("cat '".data."/caption'")
# The picture makes room for as many lines as it has.
more = 0.028 * (int(system("wc -l <'".data."/caption'")) - 4)
set label 1 caption at screen 0.02, screen 0.105 + more left noenhanced font ',10' textcolor rgb '#555555'
set bmargin at screen 0.25 + more
set border 3
set tics nomirror out
set grid linecolor rgb '#dddddd'
set key noenhanced
set title noenhanced font ',13'
array colours[6] = ['#0b6e99', '#d9730d', '#448361', '#9065b0', '#c14c8a', '#6b6b6b']
# A file may have no rows.
has(file) = int(system(sprintf("wc -l <'%s'", file))) > 0
