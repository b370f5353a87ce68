# make bench-arm: what NEON kernels should cost, by models. Included by the Makefile.
#
# SPDX-License-Identifier: MIT
ARM := $(BUILD)/arm
ARM_GCC ?= $(if $(filter aarch64 arm64,$(TARGET_ARCH)),$(CC),aarch64-linux-gnu-gcc)
ARM_CLANG ?= clang --target=aarch64-linux-gnu
ARM_LOOPS := qk_tile pv_tile softmax_rows
ARM_MAKE = $(MAKE) -s --no-print-directory CFLAGS='-O2 -g' WERROR=$(WERROR)
ARM_HAS = echo '\#include <stdlib.h>' | $(1) -fsyntax-only -x c - >/dev/null 2>&1

.PHONY: bench-arm
bench-arm: ## what NEON code costs by models: instructions (QEMU), cycles of inner loops (llvm-mca)
	@mkdir -p $(ARM)
	@rm -f $(ARM)/calls $(ARM)/clang/src/neon/qk_tile.o $(ARM)/gcc/src/neon/qk_tile.o
	@if $(call ARM_HAS,$(ARM_GCC)); then \
	    $(ARM_MAKE) CC='$(ARM_GCC)' BUILD=$(ARM)/gcc $(ARM)/gcc/libattn.a >/dev/null && \
	    $(ARM_GCC) $(BASE_FLAGS) -O2 -static -o $(ARM)/calls bench/emulated/calls.c $(ARM)/gcc/libattn.a -lm; \
	fi
	@if $(call ARM_HAS,$(ARM_CLANG)); then \
	    $(ARM_MAKE) CC='$(ARM_CLANG)' BUILD=$(ARM)/clang $(ARM_LOOPS:%=$(ARM)/clang/src/neon/%.o) >/dev/null; \
	fi
	@$(CC) $(BASE_FLAGS) -Ibench/emulated -O2 -shared -o $(ARM)/count_instructions.so bench/arm/count_instructions.c
	@sh bench/arm/model.sh $(ARM)

FORMATTED += $(wildcard bench/arm/*.[ch] bench/emulated/*.[ch])
