# libattn. `make` builds the library and the attn command into $(BUILD); `make help` lists the rest.
#
# Names no instruction set: each folder src/<isa> has a flags.mk that says for which machine it is
# (ARCH_<isa>, a pattern for the first word of the compiler's target, or %), with which flags it is
# compiled (FLAGS_<isa>) and which folder it adds to, if any (BASE_<isa>).
#
# SPDX-License-Identifier: MIT

BUILD ?= build
PREFIX ?= /usr/local
CC ?= cc
AR ?= ar
CFLAGS ?= -O2 -g
# Warnings are errors only where asked for (CI does): a newer compiler must not break a user's build.
WERROR ?=

prefix ?= $(PREFIX)
bindir ?= $(prefix)/bin
includedir ?= $(prefix)/include
libdir ?= $(prefix)/lib
datadir ?= $(prefix)/share

version_part = $(shell sed -n 's/^.define ATTN_VERSION_$(1) //p' include/attn.h)
VERSION := $(call version_part,MAJOR).$(call version_part,MINOR).$(call version_part,PATCH)
# Changes only when a program linked against the library would no longer run.
ABI := 0

all: ## build the libraries and the attn command (the default)
.PHONY: all run examples deps deps-all check check-extra check-all bench bench-all bench-plots install uninstall \
    format check-format clean help FORCE

# ---- Compiler ------------------------------------------------------------------------------------

TARGET := $(shell $(CC) -dumpmachine 2>/dev/null)
# With -m32 gcc still names its 64-bit target; the kernel sets are for 64 bits.
ASSERT_64 := echo 'int bits[sizeof(void *) == 8 ? 1 : -1];' | $(CC) $(CFLAGS) -fsyntax-only -x c -
TARGET_ARCH := $(firstword $(subst -, ,$(TARGET)))$(shell $(ASSERT_64) >/dev/null 2>&1 || echo -32)
accepts = $(shell $(CC) $(1) -fsyntax-only -x c /dev/null >/dev/null 2>&1 && echo yes)
links = $(shell echo 'int main(void){return 0;}' | $(CC) $(1) -x c - -o /dev/null >/dev/null 2>&1 && echo yes)

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes $(if $(WERROR),-Werror)
# No contraction: a fused multiply-add is one where the source says so, and nowhere else.
BASE_FLAGS := -std=c11 $(WARNINGS) -ffp-contract=off -fPIC -Iinclude -MMD -MP
LIB_FLAGS := $(BASE_FLAGS) -fvisibility=hidden -Isrc
# ISA objects stay out of link-time optimisation, which could move their code anywhere. Where every
# variable lives at each step of an unrolled loop takes gcc as long to write down as all the rest.
ISA_FLAGS := -fno-lto $(if $(call accepts,-Werror -fno-var-tracking),-fno-var-tracking)

# ---- Instruction sets ----------------------------------------------------------------------------

FOLDERS := $(patsubst src/%/kernels.c,%,$(wildcard src/*/kernels.c))
include $(FOLDERS:%=src/%/flags.mk)
WANTED_ISAS := $(foreach isa,$(FOLDERS),$(if $(filter $(ARCH_$(isa)),$(TARGET_ARCH)),$(isa)))
ISAS := $(foreach isa,$(WANTED_ISAS),$(if $(call accepts,$(FLAGS_$(isa))),$(isa)))
LEFT_OUT := $(filter-out $(ISAS),$(WANTED_ISAS))
$(if $(LEFT_OUT),$(info note: $(CC) does not know the flags of these kernel sets: $(LEFT_OUT)))
isa_flags = $(BASE_$(1):%=-Isrc/%) $(FLAGS_$(1))

# Rewritten only when what it says changes: then everything that was compiled another way is too.
SETTINGS := $(shell $(CC) --version 2>/dev/null | sed 1q) $(CC) $(AR) $(LIB_FLAGS) $(ISA_FLAGS) \
            $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(ISAS)
$(BUILD)/settings: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(SETTINGS))' | cmp -s - $@ || echo '$(subst ','\'',$(SETTINGS))' >$@

# ---- Library -------------------------------------------------------------------------------------

BASELINE_SOURCES := $(filter-out src/executor_openmp.c,$(wildcard src/*.c))
ISA_SOURCES := $(foreach isa,$(ISAS),$(wildcard src/$(isa)/*.c))
BASELINE_OBJECTS := $(BASELINE_SOURCES:%.c=$(BUILD)/%.o)
ISA_OBJECTS := $(ISA_SOURCES:%.c=$(BUILD)/%.o)
LIB_OBJECTS := $(BASELINE_OBJECTS) $(ISA_OBJECTS)
HAVE_ISAS := $(ISAS:%=-DATTN_HAVE_%)

$(BASELINE_OBJECTS): $(BUILD)/%.o: %.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) $(LIB_FLAGS) $(HAVE_ISAS) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

define isa_rule
$(patsubst %.c,$(BUILD)/%.o,$(wildcard src/$(1)/*.c)): $(BUILD)/%.o: %.c src/$(1)/flags.mk $(BUILD)/settings
	@mkdir -p $$(@D)
	$$(CC) $$(LIB_FLAGS) $$(CPPFLAGS) $$(CFLAGS) $$(ISA_FLAGS) $$(call isa_flags,$(1)) -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

$(BUILD)/libattn.a: $(LIB_OBJECTS) $(BUILD)/settings
	rm -f $@
	$(AR) rcs $@ $(LIB_OBJECTS)

SONAME := libattn.so.$(ABI)
$(BUILD)/$(SONAME): $(LIB_OBJECTS) src/attn.map $(BUILD)/settings
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=src/attn.map \
	    -o $@ $(LIB_OBJECTS) -lm
$(BUILD)/libattn.so: $(BUILD)/$(SONAME)
	ln -sf $(SONAME) $@

LIBRARIES := $(BUILD)/libattn.a $(BUILD)/libattn.so

# The OpenMP executor is a library of its own, built where the compiler has OpenMP.
OPENMP := $(call links,-fopenmp)
ifeq ($(OPENMP),yes)
OPENMP_SONAME := libattn_openmp.so.$(ABI)
OPENMP_OBJECT := $(BUILD)/src/executor_openmp.o
$(OPENMP_OBJECT): src/executor_openmp.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) $(LIB_FLAGS) -fopenmp $(CPPFLAGS) $(CFLAGS) -c $< -o $@
$(BUILD)/libattn_openmp.a: $(OPENMP_OBJECT)
	rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/$(OPENMP_SONAME): $(OPENMP_OBJECT) src/attn_openmp.map
	$(CC) $(CFLAGS) $(LDFLAGS) -fopenmp -shared -Wl,-soname,$(OPENMP_SONAME) \
	    -Wl,--version-script=src/attn_openmp.map -o $@ $(OPENMP_OBJECT)
$(BUILD)/libattn_openmp.so: $(BUILD)/$(OPENMP_SONAME)
	ln -sf $(OPENMP_SONAME) $@
LIBRARIES += $(BUILD)/libattn_openmp.a $(BUILD)/libattn_openmp.so
OPENMP_CLI := -DATTN_HAVE_OPENMP
OPENMP_LINK := $(OPENMP_OBJECT) -fopenmp
endif

# ---- Limits of the machine -----------------------------------------------------------------------

# For the attn command and the benchmarks: what measures work, and the loops it is held against, once
# for each instruction set. They are contracted where kernels must not be.
define loops_rule
$(BUILD)/src/limits/loops_$(1).o: src/limits/loops.c src/$(1)/flags.mk $(BUILD)/settings
	@mkdir -p $$(@D)
	$$(CC) $$(BASE_FLAGS) -ffp-contract=fast -Isrc $$(HAVE_ISAS) $$(CPPFLAGS) $$(CFLAGS) $$(ISA_FLAGS) \
	    $$(FLAGS_$(1)) -DISA=$(1) -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call loops_rule,$(isa))))
MEASURE := $(BUILD)/src/limits/measure.o
$(MEASURE): src/limits/measure.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) -Isrc $(HAVE_ISAS) $(CPPFLAGS) $(CFLAGS) -c $< -o $@
LIMITS := $(MEASURE) $(ISAS:%=$(BUILD)/src/limits/loops_%.o)

# ---- The attn command ----------------------------------------------------------------------------

CLI_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/cli/*.c))
$(CLI_OBJECTS): $(BUILD)/%.o: %.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) -Isrc $(HAVE_ISAS) $(OPENMP_CLI) $(CPPFLAGS) $(CFLAGS) -c $< -o $@
$(BUILD)/attn: $(CLI_OBJECTS) $(LIMITS) $(OPENMP_OBJECT) $(BUILD)/libattn.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(CLI_OBJECTS) $(LIMITS) $(BUILD)/libattn.a $(OPENMP_LINK) -lm

all: $(LIBRARIES) $(BUILD)/attn

run: $(BUILD)/attn ## show attention over the tensors of a real model
	$(BUILD)/attn demo

# ---- Examples ------------------------------------------------------------------------------------

EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(wildcard examples/*.c))
$(EXAMPLES): $(BUILD)/%: %.c $(BUILD)/libattn.a
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/libattn.a -lm
examples: $(EXAMPLES) ## build the programs of examples/ into $(BUILD)/examples

# ---- Tests ---------------------------------------------------------------------------------------

# One program, in Criterion. It reaches the hidden functions of the static library too.
CRITERION_CFLAGS ?= $(shell pkg-config --cflags criterion 2>/dev/null)
CRITERION_LIBS ?= $(shell pkg-config --libs criterion 2>/dev/null || echo -lcriterion)
TEST_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/*.c))
TEST_LINK := $(patsubst %,$(BUILD)/src/cli/%.o,oracle oracle_gradient judge npy memory) $(BUILD)/libattn.a $(OPENMP_LINK)
$(TEST_OBJECTS): $(BUILD)/%.o: %.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) -D_GNU_SOURCE -Isrc $(OPENMP_CLI) $(CRITERION_CFLAGS) $(CPPFLAGS) $(CFLAGS) \
	    -c $< -o $@
$(BUILD)/tests/attn_tests: $(TEST_OBJECTS) $(filter-out -%,$(TEST_LINK))
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(TEST_OBJECTS) $(TEST_LINK) $(CRITERION_LIBS) -lm -lpthread -ldl

# Plain programs, for what Criterion does not work under.
STRESS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/stress/*.c))
$(STRESS): $(BUILD)/%: %.c $(BUILD)/libattn.a $(OPENMP_OBJECT)
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) -D_GNU_SOURCE $(OPENMP_CLI) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< \
	    $(BUILD)/libattn.a $(OPENMP_LINK) -lm -lpthread

TEST_ENV = MAKE='$(MAKE)' CC='$(CC)' BUILD='$(BUILD)'
deps: ## install what the tests need (Debian packages; nothing if all is there)
	@sh tests/deps.sh
deps-all: ## install what check-all needs on top
	@sh tests/deps.sh all
check: deps ## run every test that this machine allows, and name what was skipped
	@$(TEST_ENV) sh tests/check.sh
check-extra: deps-all ## other compilers, sanitizers, optimisation levels, CPUs and targets
	@$(TEST_ENV) sh tests/check_extra.sh
check-all: ## check-extra, then check
	@$(MAKE) --no-print-directory check-extra
	@$(MAKE) --no-print-directory check

# ---- Benchmarks ----------------------------------------------------------------------------------

# Google Benchmark, through a shim in C++; everything else here is C.
BENCH := $(BUILD)/bench/attn_bench
# Split at blanks by the shell, but not read by it: a filter may have ( and |.
BENCH_ARGS ?=
export BENCH_ARGS
BENCHMARK_LIBS ?= -lbenchmark -lstdc++
BENCH_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out bench/exp_loop.c,$(wildcard bench/*.c)))
BENCH_SHIM := $(BUILD)/bench/gbench_shim.o
EXP_LOOPS := $(ISAS:%=$(BUILD)/bench/exp_loop_%.o)
BENCH_LINK := $(BENCH_SHIM) $(EXP_LOOPS) $(LIMITS) \
    $(patsubst %,$(BUILD)/src/cli/%.o,workload memory judge oracle options machine timing) \
    $(BUILD)/libattn.a $(OPENMP_LINK)

$(BENCH_OBJECTS): $(BUILD)/%.o: %.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) -Isrc -I$(BUILD)/bench $(HAVE_ISAS) $(OPENMP_CLI) $(OPENMP_LINK:%.o=) \
	    $(CPPFLAGS) $(CFLAGS) -c $< -o $@
$(BENCH_SHIM): bench/gbench_shim.cc $(BUILD)/settings
	@mkdir -p $(@D)
	@echo '#include <benchmark/benchmark.h>' | $(CXX) -E -x c++ - >/dev/null 2>&1 || { \
	    echo 'bench: needs a C++ compiler and Google Benchmark: make deps, or apt-get install g++ libbenchmark-dev'; \
	    exit 1; }
	$(CXX) -std=c++17 -Wall -Wextra $(if $(WERROR),-Werror) -MMD -MP $(CPPFLAGS) $(CXXFLAGS) -O2 -c $< -o $@

define exp_loop_rule
$(BUILD)/bench/exp_loop_$(1).o: bench/exp_loop.c src/$(1)/flags.mk $(BUILD)/settings
	@mkdir -p $$(@D)
	$$(CC) $$(BASE_FLAGS) -Isrc -Isrc/$(1) $$(HAVE_ISAS) $$(CPPFLAGS) $$(CFLAGS) $$(ISA_FLAGS) \
	    $$(call isa_flags,$(1)) -DISA=$(1) -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call exp_loop_rule,$(isa))))

# What no figure is printed without. Rewritten only when it changes.
BUILT := $(BUILD)/bench/built.h
define BUILT_TEXT
#define BUILT_COMPILER "$(shell $(CC) --version 2>/dev/null | sed 1q)"
#define BUILT_FLAGS "$(strip $(CPPFLAGS) $(CFLAGS))"
#define BUILT_COMMIT "$(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)"
endef
$(BUILT): export TEXT = $(BUILT_TEXT)
$(BUILT): FORCE
	@mkdir -p $(@D)
	@printenv TEXT | cmp -s - $@ || printenv TEXT >$@
$(BUILD)/bench/main.o: $(BUILT)

# The shim first: without Google Benchmark that is the error to see.
$(BENCH_OBJECTS): | $(BENCH_SHIM)
$(BENCH): $(BENCH_OBJECTS) $(filter-out -%,$(BENCH_LINK))
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(BENCH_OBJECTS) $(BENCH_LINK) $(BENCHMARK_LIBS) -lm -lpthread

bench: $(BENCH) ## time the library as fractions of what this machine can do (BENCH_ARGS=...)
	@set -f; $(BENCH) $$BENCH_ARGS
bench-all: $(BENCH) ## the same, everything: some minutes
	@set -f; $(BENCH) --all $$BENCH_ARGS

# What the pictures are drawn from: BENCH_JSON, another run's --benchmark_out, or a run of their own.
# PEERS is a table of other libraries' times (bench/plots/peers.gp), drawn where there is one.
BENCH_JSON ?= $(BUILD)/bench/plots.json
PEERS ?= docs/bench/peers.txt
$(BUILD)/bench/plots.json: $(BENCH)
	@set -f; $(BENCH) --benchmark_filter='^(limit|attn|length|modifier)/' --benchmark_out=$@.new $$BENCH_ARGS
	mv $@.new $@
bench-plots: $(BENCH_JSON) ## draw docs/bench/*.svg from such a run: some minutes, gnuplot
	@command -v gnuplot >/dev/null || { \
	    echo 'bench-plots: needs gnuplot: make deps-all, or apt-get install gnuplot-nox'; exit 1; }
	@sh bench/plots/plot.sh '$(BENCH_JSON)' docs/bench $(PEERS)

FORMATTED = $(wildcard include/*.h src/*.[ch] src/*/*.[ch] tests/*.[ch] tests/*/*.[ch] \
              bench/*.[ch] bench/*.cc examples/*.c)
format: ## lay out the source with clang-format
	clang-format -i $(FORMATTED)
check-format: ## say whether `make format` would change something
	clang-format --dry-run -Werror $(FORMATTED)

include bench/peers/rules.mk bench/arm/rules.mk bench/stalls/rules.mk

# ---- Installation --------------------------------------------------------------------------------

D = $(DESTDIR)
pcdir = $(libdir)/pkgconfig
cmakedir = $(libdir)/cmake/attn
# Paths below the prefix are written relative to it, and the CMake package finds the prefix from
# where it is itself, so that an installation can be moved.
space := $(subst ,, )
up = $(subst $(space),/,$(patsubst %,..,$(subst /, ,$(patsubst $(prefix)/%,%,$(cmakedir)))))
below = $(patsubst $(prefix)/%,$${$(1)}/%,$(2))
fill = sed -e 's|@version@|$(VERSION)|g' -e 's|@abi@|$(ABI)|g' \
    -e 's|@major@|$(call version_part,MAJOR)|g' -e 's|@minor@|$(call version_part,MINOR)|g' \
    -e 's|@prefix@|$(prefix)|g' -e 's|@up@|$(up)|g' \
    -e 's|@pc_libdir@|$(call below,prefix,$(libdir))|g' \
    -e 's|@pc_includedir@|$(call below,prefix,$(includedir))|g' \
    -e 's|@cmake_libdir@|$(call below,attn_prefix,$(libdir))|g' \
    -e 's|@cmake_includedir@|$(call below,attn_prefix,$(includedir))|g'
NAMES := attn $(if $(OPENMP_OBJECT),attn_openmp)
TENSORS := $(patsubst tests/data/%,%,$(wildcard tests/data/ppocr_*/*.npy tests/data/ppocr_*/*.md))

install: all ## install below PREFIX (/usr/local), staged in DESTDIR
	install -d $(D)$(bindir) $(D)$(includedir) $(D)$(pcdir) $(D)$(cmakedir)
	install -m 755 $(BUILD)/attn $(D)$(bindir)/attn
	install -m 644 include/attn.h $(D)$(includedir)/attn.h
	set -e; for name in $(NAMES); do \
	    install -m 644 $(BUILD)/lib$$name.a $(D)$(libdir)/; \
	    install -m 755 $(BUILD)/lib$$name.so.$(ABI) $(D)$(libdir)/lib$$name.so.$(VERSION); \
	    ln -sf lib$$name.so.$(VERSION) $(D)$(libdir)/lib$$name.so.$(ABI); \
	    ln -sf lib$$name.so.$(ABI) $(D)$(libdir)/lib$$name.so; \
	    $(fill) src/packaging/$$name.pc.in >$(D)$(pcdir)/$$name.pc; \
	done
	$(fill) src/packaging/attnConfig.cmake.in >$(D)$(cmakedir)/attnConfig.cmake
	$(fill) src/packaging/attnConfigVersion.cmake.in >$(D)$(cmakedir)/attnConfigVersion.cmake
	set -e; for file in $(TENSORS); do \
	    install -d $(D)$(datadir)/attn/$${file%/*}; \
	    install -m 644 tests/data/$$file $(D)$(datadir)/attn/$$file; \
	done

uninstall: ## remove what install put there
	rm -f $(D)$(bindir)/attn $(D)$(includedir)/attn.h $(TENSORS:%=$(D)$(datadir)/attn/%) \
	    $(D)$(cmakedir)/attnConfig.cmake $(D)$(cmakedir)/attnConfigVersion.cmake \
	    $(foreach name,$(NAMES),$(D)$(pcdir)/$(name).pc \
	        $(foreach end,a so so.$(ABI) so.$(VERSION),$(D)$(libdir)/lib$(name).$(end)))
	for folder in $(D)$(cmakedir) $(sort $(dir $(TENSORS:%=$(D)$(datadir)/attn/%))) \
	    $(D)$(datadir)/attn; do rmdir $$folder 2>/dev/null || :; done

# --------------------------------------------------------------------------------------------------

clean: ## remove $(BUILD)
	rm -rf $(BUILD)

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile bench/*/rules.mk | expand -t 20

-include $(patsubst %.o,%.d,$(LIB_OBJECTS) $(CLI_OBJECTS) $(OPENMP_OBJECT) $(TEST_OBJECTS)) \
         $(EXAMPLES:%=%.d) $(STRESS:%=%.d) $(LIMITS:.o=.d) \
         $(patsubst %.o,%.d,$(BENCH_OBJECTS) $(BENCH_SHIM) $(EXP_LOOPS))
