/* Where the tensors of a real model are that come with the attn command.
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include "shipped.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

int shipped_is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
}

int shipped_has_tensors(const char *directory) {
    char path[2100];
    snprintf(path, sizeof path, "%s/q.npy", directory);
    return shipped_is_file(path);
}

/* The folder of this program with its slash, or "" where it cannot be known. */
static void program_folder(char *folder, size_t size) {
    const ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[1] = '\0';
}

int shipped_find(const char *name, const char *advice, char *directory, size_t size) {
    char folder[1024];
    program_folder(folder, sizeof folder);
    const char *const places[][2] = {
        {"", "tests/data"}, {folder, "../share/attn"}, {folder, "../tests/data"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (i && !*folder)
            break;
        snprintf(directory, size, "%s%s/%s", places[i][0], places[i][1], name);
        if (shipped_has_tensors(directory))
            return 0;
    }
    cli_fail(CLI_FAILED, "the tensors are neither in tests/data/%s nor in %s../share/attn/%s; %s",
             name, folder, name, advice);
    return -1;
}
