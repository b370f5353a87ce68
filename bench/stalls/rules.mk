# make bench-stalls: loads that no CPU can serve from its store buffer. Included by the Makefile.
#
# SPDX-License-Identifier: MIT
STALLS := $(BUILD)/stalls

.PHONY: bench-stalls
bench-stalls: $(BUILD)/libattn.a ## list loads that wait for narrower stores, of the AVX2 kernels: QEMU
	@mkdir -p $(STALLS)
	@$(CC) $(BASE_FLAGS) -O2 -static -no-pie -o $(STALLS)/calls bench/emulated/calls.c $< -lm
	@$(CC) $(BASE_FLAGS) -Ibench/emulated -O2 -shared -o $(STALLS)/waiting_loads.so bench/stalls/waiting_loads.c
	@sh bench/stalls/list.sh $(STALLS)

FORMATTED += $(wildcard bench/stalls/*.[ch])
