ARCH_neon_dotprod := aarch64 arm64
BASE_neon_dotprod := neon
# gcc 12 has these intrinsics from armv8.2-a on only; what else that allows is used by nothing here.
FLAGS_neon_dotprod := -march=armv8.2-a+dotprod
