/* A QEMU plugin that counts the guest instructions that run, by function, and lists them when the
 * program ends: "FUNCTION COUNT", most first, what has no name as "?", and "total COUNT".
 *
 *     cc -O2 -fPIC -shared -I../emulated count_instructions.c -o count_instructions.so
 *     qemu-aarch64 -plugin ./count_instructions.so,out=FILE PROGRAM
 *
 * Programs with one thread.
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

/* Counters never move: QEMU's translations hold their addresses. */
enum { MOST_FUNCTIONS = 4096 };
static struct function {
    char name[96];
    uint64_t count;
} functions[MOST_FUNCTIONS];
static size_t n_functions;
static const char *out_path;

static uint64_t *counter_of(const char *name) {
    size_t i = 0;
    while (i < n_functions && strcmp(functions[i].name, name) != 0)
        i++;
    if (i == n_functions) {
        if (n_functions == MOST_FUNCTIONS) /* the last one takes the rest */
            return &functions[MOST_FUNCTIONS - 1].count;
        snprintf(functions[n_functions++].name, sizeof functions[0].name, "%s", name);
    }
    return &functions[i].count;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    const char *name = qemu_plugin_insn_symbol(qemu_plugin_tb_get_insn(tb, 0));
    qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64,
                                             counter_of(name && *name ? name : "?"),
                                             qemu_plugin_tb_n_insns(tb));
}

static int most_first(const void *a, const void *b) {
    const uint64_t x = ((const struct function *)a)->count, y = ((const struct function *)b)->count;
    return (x < y) - (x > y);
}

static void at_exit(qemu_plugin_id_t id, void *arg) {
    (void)id, (void)arg;
    FILE *out = out_path ? fopen(out_path, "w") : stderr;
    if (!out) {
        perror(out_path);
        return;
    }
    uint64_t total = 0;
    qsort(functions, n_functions, sizeof functions[0], most_first);
    for (size_t i = 0; i < n_functions; i++) {
        total += functions[i].count;
        fprintf(out, "%s %" PRIu64 "\n", functions[i].name, functions[i].count);
    }
    fprintf(out, "total %" PRIu64 "\n", total);
    if (out != stderr)
        fclose(out);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info, int argc,
                               char **argv) {
    (void)info;
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "out=", 4) == 0)
            out_path = strdup(argv[i] + 4);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
