ARCH_neon_dotprod := $(ARCH_neon)
FLAGS_neon_dotprod := -march=armv8-a+dotprod
BASE_neon_dotprod := neon
