/* A QEMU plugin that lists the loads of an x86-64 program that have to wait for an earlier store: they
 * need bytes that a recent store wrote, and others too, so that no CPU can hand them on from its
 * store buffer (Intel 64 and IA-32 Architectures Optimization Reference Manual, "Store forwarding").
 * Such a load waits until the store and all before it are in the cache, which takes a dozen cycles,
 * or a hundred behind a long computation. A line for each pair of instructions when the program ends:
 *
 *     TIMES LOAD_ADDRESS LOAD_BYTES STORE_ADDRESS STORE_BYTES
 *
 * most often first, those that happened fewer times than `least` left out.
 *
 *     cc -O2 -fPIC -shared -I../emulated waiting_loads.c -o waiting_loads.so
 *     qemu-x86_64 -cpu max -plugin ./waiting_loads.so,out=FILE,least=N PROGRAM
 *
 * QEMU shows wide accesses as several of 8 bytes; those of one instruction to neighbouring places are
 * put together again, up to a vector of AVX2, the widest that QEMU knows. Programs with one thread.
 *
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_plugin.h"

EXPORT int qemu_plugin_version = 1;

/* As many stores as a store buffer holds, and no longer ago than a reorder buffer reaches: about those
 * of recent big cores. */
enum { STORES = 64, INSTRUCTIONS = 512, WIDEST = 32 };

struct access {
    uint64_t instruction, address, bytes;
    uint64_t time; /* instructions before it */
    bool is_store;
};
static struct access stores[STORES]; /* a ring */
static size_t n_stores;
static struct access last; /* not yet looked at: more of it may come */
static uint64_t time_now;

enum { MOST_PAIRS = 4096 };
static struct pair { uint64_t load, store, load_bytes, store_bytes, times; } pairs[MOST_PAIRS];
static size_t n_pairs;

static const char *out_path;
static uint64_t least = 1;

static void count(const struct access *load, const struct access *store) {
    size_t i = 0;
    while (i < n_pairs &&
           (pairs[i].load != load->instruction || pairs[i].store != store->instruction))
        i++;
    if (i == MOST_PAIRS)
        return;
    if (i == n_pairs)
        pairs[n_pairs++] =
            (struct pair){load->instruction, store->instruction, load->bytes, store->bytes, 0};
    pairs[i].times++;
}

/* A load gets its bytes from the youngest store that wrote one of them. */
static void look_at_load(const struct access *load) {
    for (size_t i = 1; i <= STORES && i <= n_stores; i++) {
        const struct access *s = &stores[(n_stores - i) % STORES];
        if (load->time - s->time > INSTRUCTIONS)
            return;
        const uint64_t load_end = load->address + load->bytes, store_end = s->address + s->bytes;
        if (s->address >= load_end || store_end <= load->address)
            continue;
        if (s->address > load->address || store_end < load_end)
            count(load, s);
        return;
    }
}

static void finish_last(void) {
    if (last.bytes == 0)
        return;
    if (last.is_store)
        stores[n_stores++ % STORES] = last;
    else
        look_at_load(&last);
    last.bytes = 0;
}

static void on_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *arg) {
    (void)vcpu;
    const struct access now = {
        .instruction = (uint64_t)(uintptr_t)arg,
        .address = address,
        .bytes = (uint64_t)1 << qemu_plugin_mem_size_shift(info),
        .time = time_now,
        .is_store = qemu_plugin_mem_is_store(info),
    };
    if (last.bytes > 0 && now.bytes == 8 && last.bytes < WIDEST &&
        last.instruction == now.instruction && last.is_store == now.is_store &&
        now.address == last.address + last.bytes) {
        last.bytes += now.bytes;
        return;
    }
    finish_last();
    last = now;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    const size_t n = qemu_plugin_tb_n_insns(tb);
    qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &time_now, n);
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_NO_REGS,
                                         QEMU_PLUGIN_MEM_RW,
                                         (void *)(uintptr_t)qemu_plugin_insn_vaddr(insn));
    }
}

static int most_first(const void *a, const void *b) {
    const uint64_t x = ((const struct pair *)a)->times, y = ((const struct pair *)b)->times;
    return (x < y) - (x > y);
}

static void at_exit(qemu_plugin_id_t id, void *arg) {
    (void)id, (void)arg;
    finish_last();
    FILE *out = out_path ? fopen(out_path, "w") : stderr;
    if (!out) {
        perror(out_path);
        return;
    }
    qsort(pairs, n_pairs, sizeof pairs[0], most_first);
    for (size_t i = 0; i < n_pairs && pairs[i].times >= least; i++)
        fprintf(out, "%" PRIu64 " %#" PRIx64 " %" PRIu64 " %#" PRIx64 " %" PRIu64 "\n",
                pairs[i].times, pairs[i].load, pairs[i].load_bytes, pairs[i].store,
                pairs[i].store_bytes);
    if (out != stderr)
        fclose(out);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info, int argc,
                               char **argv) {
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "out=", 4) == 0)
            out_path = strdup(argv[i] + 4);
        else if (strncmp(argv[i], "least=", 6) == 0)
            least = strtoull(argv[i] + 6, NULL, 10);
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
