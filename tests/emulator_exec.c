/* Keeps Criterion's workers inside the emulator: without this they escape to the real CPU.
 *
 * Criterion runs each test in a worker that it starts by execve() of the test program. Under
 * qemu-user that starts the program natively (or fails, where it is for another architecture), so
 * that a test would pass on a machine other than the one it is meant for. This execve() puts the
 * emulator back in front of the worker:
 *
 *     E="/usr/bin/qemu-x86_64 -cpu Nehalem"; TEST_EMULATOR="$E" $E build/tests/attn_tests
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_WORDS = 64, MAX_COMMAND = 4096 };

int execve(const char *path, char *const argv[], char *const envp[]) {
    const char *emulator = getenv("TEST_EMULATOR");
    if (!emulator || !*emulator || !argv[0] || strcmp(argv[0], "boxfort-worker") != 0)
        return (int)syscall(SYS_execve, path, argv, envp);

    /* On the stack: the caller may be between fork() and exec. */
    char words[MAX_COMMAND];
    char *command[MAX_WORDS];
    size_t n = 0;
    if (strlen(emulator) >= sizeof words) {
        errno = E2BIG;
        return -1;
    }
    strcpy(words, emulator);
    for (char *at = words; *(at += strspn(at, " ")) && n < MAX_WORDS - 8;) {
        command[n++] = at;
        at += strcspn(at, " ");
        if (*at)
            *at++ = '\0';
    }
    command[n++] = (char[]){"-0"};
    command[n++] = argv[0];
    command[n++] = (char *)(size_t)path;
    for (size_t i = 1; argv[i]; i++) {
        if (n == MAX_WORDS - 1) {
            errno = E2BIG;
            return -1;
        }
        command[n++] = argv[i];
    }
    command[n] = NULL;
    return (int)syscall(SYS_execve, command[0], command, envp);
}
