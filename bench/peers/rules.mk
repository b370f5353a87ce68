# make bench-peers: libattn next to other libraries. Included by the Makefile.
#
# SPDX-License-Identifier: MIT
PEERS := $(BUILD)/bench/peers/peers
PEERS_FOLDER := $(BUILD)/peers
PEERS_TABLE ?= $(PEERS_FOLDER)/table.txt
PEERS_ARGS ?=
PEERS_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard bench/peers/*.c))

# What no figure is printed without; rewritten only when it changes.
define PEERS_BUILT
#define BUILT_COMPILER "$(shell $(CC) --version 2>/dev/null | sed 1q)"
#define BUILT_FLAGS "$(strip $(CPPFLAGS) $(CFLAGS))"
#define BUILT_COMMIT "$(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)"
endef
$(BUILD)/bench/peers/built.h: export TEXT = $(PEERS_BUILT)
$(BUILD)/bench/peers/built.h: FORCE
	@mkdir -p $(@D)
	@printenv TEXT | cmp -s - $@ || printenv TEXT >$@
$(BUILD)/bench/peers/main.o: $(BUILD)/bench/peers/built.h

# The softmax between two products is compiled as those who write one would.
$(BUILD)/bench/peers/softmax_by_hand.o: PEERS_CFLAGS = -O3 -march=native -ffast-math
$(PEERS_OBJECTS): $(BUILD)/%.o: %.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) -I$(BUILD)/bench/peers $(CPPFLAGS) $(CFLAGS) $(PEERS_CFLAGS) -c $< -o $@
$(PEERS): $(PEERS_OBJECTS) $(BUILD)/libattn.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(PEERS_OBJECTS) $(BUILD)/libattn.a -ldl -lm

.PHONY: bench-peers bench-peers-plot
bench-peers: $(PEERS) ## time libattn next to ONNX Runtime, ggml and OpenBLAS (PEERS_ARGS='--seconds 3 --only tiny')
	@sh bench/peers/install.sh $(PEERS_FOLDER)
	@$(PEERS) --peers $(PEERS_FOLDER) --table $(PEERS_TABLE) $(PEERS_ARGS)
$(PEERS_FOLDER)/table.txt:
	@$(MAKE) --no-print-directory bench-peers
bench-peers-plot: $(PEERS_TABLE) ## draw docs/bench/peers.svg from the last such run: gnuplot
	@command -v gnuplot >/dev/null || { \
	    echo 'bench-peers-plot: needs gnuplot: apt-get install gnuplot-nox'; exit 1; }
	@mkdir -p docs/bench
	gnuplot -e "table='$(PEERS_TABLE)'; picture='docs/bench/peers.svg'" bench/peers/plot.gp

FORMATTED += $(wildcard bench/peers/*.[ch])
-include $(PEERS_OBJECTS:.o=.d)
