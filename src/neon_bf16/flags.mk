ARCH_neon_bf16 := aarch64 arm64
BASE_neon_bf16 := neon
# bf16 is an extension of Armv8.2, whose other instructions (atomics, CRC, RDMA) a CPU that has it has
# too. Not armv8.6-a, which would enable much else that nobody asks the CPU for.
FLAGS_neon_bf16 := -march=armv8.2-a+bf16
