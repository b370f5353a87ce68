# Part of every AArch64 CPU; big-endian ones (aarch64_be) run scalar.
ARCH_neon := aarch64 arm64
FLAGS_neon :=
