ARCH_neon_i8mm := aarch64 arm64
FLAGS_neon_i8mm := -march=armv8-a+i8mm
BASE_neon_i8mm := neon
