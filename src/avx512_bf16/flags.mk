ARCH_avx512_bf16 := x86_64
BASE_avx512_bf16 := avx512
FLAGS_avx512_bf16 = $(FLAGS_avx512) -mavx512bf16
