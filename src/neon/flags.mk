# Part of every AArch64 CPU.
ARCH_neon := aarch64%
FLAGS_neon :=
