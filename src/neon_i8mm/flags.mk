ARCH_neon_i8mm := aarch64 arm64
BASE_neon_i8mm := neon
# gcc 12 has these intrinsics from armv8.2-a on only; what else that allows is used by nothing here.
FLAGS_neon_i8mm := -march=armv8.2-a+i8mm
