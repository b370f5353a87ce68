ARCH_avx512 := x86_64
# Tuned for the first CPUs that have it: elsewhere gcc takes it for cheap to keep an address in a vector
# register, and fetches it by one of the two ports that multiply-adds need.
FLAGS_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mtune=skylake-avx512
