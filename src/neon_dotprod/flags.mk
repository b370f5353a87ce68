ARCH_neon_dotprod := aarch64 arm64
FLAGS_neon_dotprod := -march=armv8-a+dotprod
BASE_neon_dotprod := neon
