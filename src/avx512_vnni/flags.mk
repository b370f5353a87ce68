ARCH_avx512_vnni := x86_64
FLAGS_avx512_vnni = $(FLAGS_avx512) -mavx512vnni
BASE_avx512_vnni := avx512
