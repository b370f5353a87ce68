ARCH_avx512 := x86_64
FLAGS_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
# Products of queries and keys are tuned for the first CPUs that have it: elsewhere gcc takes it for cheap to
# keep an address in a vector register, and fetches it by one of the two ports that multiply-adds need.
$(foreach isa,avx512 avx512_bf16 avx512_vnni,$(BUILD)/src/$(isa)/qk_%.o): FLAGS_avx512 += -mtune=skylake-avx512
