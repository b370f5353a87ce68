ARCH_neon_bf16 := aarch64 arm64
BASE_neon_bf16 := neon
# Not armv8.6-a, which would enable much else that nobody asks the CPU for.
FLAGS_neon_bf16 := -march=armv8-a+bf16
