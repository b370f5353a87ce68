# make bench-peers: libattn next to other libraries. Included by the Makefile.
#
# SPDX-License-Identifier: MIT
BENCH_PEERS := $(BUILD)/bench/peers/peers
PEERS_FOLDER := $(BUILD)/peers
PEERS_TABLE ?= $(PEERS_FOLDER)/table.txt
PEERS_ARGS ?=
export PEERS_ARGS
PEERS_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard bench/peers/*.c))

$(BUILD)/bench/peers/main.o: $(BUILT)
# Not of libattn: the softmax between two OpenBLAS products, compiled as those who write one by hand
# would, so that it is not slower than it need be. Its flags reach this object and no link.
$(BUILD)/bench/peers/softmax_by_hand.o: PEERS_CFLAGS = -O3 -march=native -ffast-math
$(PEERS_OBJECTS): $(BUILD)/%.o: %.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) -Isrc -I$(BUILD)/bench $(CPPFLAGS) $(CFLAGS) $(PEERS_CFLAGS) -c $< -o $@
$(BENCH_PEERS): $(PEERS_OBJECTS) $(BUILD)/libattn.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(PEERS_OBJECTS) $(BUILD)/libattn.a -ldl -lm

.PHONY: bench-peers bench-peers-plot
# The tunable has everyone's memory, theirs too, asked for in huge pages.
bench-peers: $(BENCH_PEERS) ## time it next to ONNX Runtime, ggml and OpenBLAS (PEERS_ARGS='--seconds 3 --only decode --cache i8')
	@sh bench/peers/install.sh $(PEERS_FOLDER)
	@set -f; GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(BENCH_PEERS) --peers $(PEERS_FOLDER) --table $(PEERS_TABLE) $$PEERS_ARGS
$(PEERS_FOLDER)/table.txt:
	@$(MAKE) --no-print-directory bench-peers
bench-peers-plot: $(PEERS_TABLE) ## draw docs/bench/peers.svg from the last such run: gnuplot
	@command -v gnuplot >/dev/null || { \
	    echo 'bench-peers-plot: needs gnuplot: make deps-all, or apt-get install gnuplot-nox'; exit 1; }
	@cmp -s $(PEERS_TABLE) $(PEERS) || cp $(PEERS_TABLE) $(PEERS)
	@sh bench/plots/plot.sh '' docs/bench $(PEERS)

FORMATTED += $(wildcard bench/peers/*.[ch])
-include $(PEERS_OBJECTS:.o=.d)
