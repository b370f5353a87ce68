# libattn. `make` builds the library and the attn command into $(BUILD); `make help` lists the rest.
#
# Names no instruction set: each folder src/<isa> has a flags.mk that says for which machine it is
# (ARCH_<isa>, a pattern for the first word of the compiler's target, or %) and with which flags it
# is compiled (FLAGS_<isa>).
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
includedir ?= $(prefix)/include
libdir ?= $(prefix)/lib
bindir ?= $(prefix)/bin

version_part = $(shell sed -n 's/^.define ATTN_VERSION_$(1) //p' include/attn.h)
VERSION := $(call version_part,MAJOR).$(call version_part,MINOR).$(call version_part,PATCH)
# Changes only when a program linked against the library would no longer run.
ABI := 0

all:
.PHONY: all run check check-all bench install deps clean help

# ---- Compiler ------------------------------------------------------------------------------------

TARGET := $(shell $(CC) -dumpmachine 2>/dev/null)
TARGET_ARCH := $(firstword $(subst -, ,$(TARGET)))
accepts = $(shell $(CC) $(1) -fsyntax-only -x c /dev/null >/dev/null 2>&1 && echo yes)
links = $(shell echo 'int main(void){return 0;}' | $(CC) $(1) -x c - -o /dev/null >/dev/null 2>&1 && echo yes)

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes $(if $(WERROR),-Werror)
# No contraction: a fused multiply-add is one where the source says so, and nowhere else.
BASE_FLAGS := -std=c11 $(WARNINGS) -ffp-contract=off -fPIC -Iinclude -MMD -MP
LIB_FLAGS := $(BASE_FLAGS) -fvisibility=hidden -Isrc
# ISA objects stay out of link-time optimisation, which could move their code anywhere.
ISA_FLAGS := -fno-lto

# ---- Instruction sets ----------------------------------------------------------------------------

FOLDERS := $(patsubst src/%/kernels.c,%,$(wildcard src/*/kernels.c))
include $(FOLDERS:%=src/%/flags.mk)
ISAS := $(foreach isa,$(FOLDERS),$(if $(filter $(ARCH_$(isa)),$(TARGET_ARCH)),\
          $(if $(call accepts,$(FLAGS_$(isa))),$(isa))))

# ---- Library -------------------------------------------------------------------------------------

BASELINE_SOURCES := $(filter-out src/executor_openmp.c,$(wildcard src/*.c))
ISA_SOURCES := $(foreach isa,$(ISAS),$(wildcard src/$(isa)/*.c))
BASELINE_OBJECTS := $(BASELINE_SOURCES:%.c=$(BUILD)/%.o)
ISA_OBJECTS := $(ISA_SOURCES:%.c=$(BUILD)/%.o)
LIB_OBJECTS := $(BASELINE_OBJECTS) $(ISA_OBJECTS)
HAVE_ISAS := $(ISAS:%=-DATTN_HAVE_%)

$(BASELINE_OBJECTS): $(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(LIB_FLAGS) $(HAVE_ISAS) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

define isa_rule
$(patsubst %.c,$(BUILD)/%.o,$(wildcard src/$(1)/*.c)): $(BUILD)/%.o: %.c src/$(1)/flags.mk
	@mkdir -p $$(@D)
	$$(CC) $$(LIB_FLAGS) $$(CPPFLAGS) $$(CFLAGS) $$(ISA_FLAGS) $$(FLAGS_$(1)) -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

$(BUILD)/libattn.a: $(LIB_OBJECTS)
	rm -f $@
	$(AR) rcs $@ $^

SONAME := libattn.so.$(ABI)
$(BUILD)/$(SONAME): $(LIB_OBJECTS) src/attn.map
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
$(OPENMP_OBJECT): src/executor_openmp.c
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

# ---- The attn command ----------------------------------------------------------------------------

CLI_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/cli/*.c))
$(CLI_OBJECTS): $(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) -Isrc $(OPENMP_CLI) $(CPPFLAGS) $(CFLAGS) -c $< -o $@
$(BUILD)/attn: $(CLI_OBJECTS) $(OPENMP_OBJECT) $(BUILD)/libattn.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(CLI_OBJECTS) $(BUILD)/libattn.a $(OPENMP_LINK) -lm

all: $(LIBRARIES) $(BUILD)/attn

run: $(BUILD)/attn
	$(BUILD)/attn demo

clean:
	rm -rf $(BUILD)

-include $(LIB_OBJECTS:.o=.d) $(CLI_OBJECTS:.o=.d) $(OPENMP_OBJECT:.o=.d)
