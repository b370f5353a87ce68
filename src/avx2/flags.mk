ARCH_avx2 := x86_64
FLAGS_avx2 := -mavx2 -mfma -mf16c
