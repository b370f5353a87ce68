/* Output files that appear together at the end, or not at all: written to temporaries in the same
 * directory, which are renamed when all is well.
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include "outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

#define MAX_OUTPUTS 8

static struct output {
    const char *path; /* as the user wrote it */
    char *target;     /* absolute, symbolic links followed */
    char *temporary;
    FILE *file;
} outputs[MAX_OUTPUTS];
static int n_outputs;

/* How many of the temporaries exist, for the signal handler. */
static volatile sig_atomic_t n_live;

static const int fatal_signals[] = {SIGHUP, SIGINT, SIGPIPE, SIGTERM};
#define N_SIGNALS (sizeof fatal_signals / sizeof fatal_signals[0])

static void remove_and_die(int signal_number) {
    for (int i = 0; i < n_live; i++)
        unlink(outputs[i].temporary);
    raise(signal_number); /* the default action is back in place */
}

static void handle_signals(void) {
    struct sigaction action = {.sa_handler = remove_and_die, .sa_flags = SA_RESETHAND}, old;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_SIGNALS; i++)
        if (sigaction(fatal_signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(fatal_signals[i], &action, NULL);
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then an error of write() */
#endif
}

/* Between these two, what the handler reads does not change under it. */
static void hold_signals(sigset_t *old) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaddset(&set, fatal_signals[i]);
    sigprocmask(SIG_BLOCK, &set, old);
}
static void release_signals(const sigset_t *old) { sigprocmask(SIG_SETMASK, old, NULL); }

/* directory + "/" + name */
static char *join(const char *directory, const char *name) {
    const size_t size = strlen(directory) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", directory, name);
    return path;
}

/* The absolute path that a rename should replace; null with errno set. */
static char *resolve(const char *path) {
    struct stat status;
    if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
        return realpath(path, NULL);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        errno = *path ? EISDIR : ENOENT;
        return NULL;
    }
    char *parent = slash ? strdup(path) : strdup(".");
    if (!parent)
        return NULL;
    if (slash)
        parent[slash == path ? 1 : slash - path] = '\0';
    char *directory = realpath(parent, NULL);
    free(parent);
    char *target = directory ? join(directory, name) : NULL;
    free(directory);
    return target;
}

static int create_temporary(struct output *o, mode_t mode) {
    char *end = strrchr(o->target, '/');
    *end = '\0';
    int fd = -1;
    for (int attempt = 0; attempt < 100 && fd < 0; attempt++) {
        char name[64];
        snprintf(name, sizeof name, ".attn-%ld-%d-%d.tmp", (long)getpid(), n_outputs, attempt);
        free(o->temporary);
        o->temporary = join(o->target, name);
        if (!o->temporary)
            break;
        fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL, mode);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    *end = '/';
    return fd;
}

FILE *output_open(const char *path, int *status) {
    *status = CLI_FAILED;
    if (n_outputs == MAX_OUTPUTS) {
        cli_fail(CLI_FAILED, "%s: too many output files", path);
        return NULL;
    }
    if (n_outputs == 0)
        handle_signals();
    struct output *o = &outputs[n_outputs];
    memset(o, 0, sizeof *o);
    o->path = path;
    o->target = resolve(path);
    struct stat existing;
    mode_t mode = 0666;
    if (!o->target) {
        cli_fail(CLI_FAILED, "%s: cannot be written: %s", path, strerror(errno));
        return NULL;
    }
    /* Renaming would replace a device or a pipe, and would get past a file's own permissions. */
    if (stat(o->target, &existing) == 0) {
        const char *why = NULL;
        if (!S_ISREG(existing.st_mode))
            why = S_ISDIR(existing.st_mode) ? "it is a directory" : "it is not a regular file";
        else if (access(o->target, W_OK) != 0)
            why = strerror(errno);
        if (why) {
            cli_fail(CLI_FAILED, "%s: cannot be written: %s", path, why);
            goto failed;
        }
        mode = existing.st_mode & 0777;
    }
    for (int i = 0; i < n_outputs; i++) {
        if (strcmp(outputs[i].target, o->target) == 0) {
            *status = CLI_USAGE;
            cli_fail(CLI_USAGE, "%s and %s are the same file, expected one for each output",
                     outputs[i].path, path);
            goto failed;
        }
    }

    sigset_t old;
    hold_signals(&old);
    const int fd = create_temporary(o, mode);
    if (fd >= 0)
        o->file = fdopen(fd, "wb");
    if (!o->file) {
        cli_fail(CLI_FAILED, "%s: cannot be written: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
            unlink(o->temporary);
        }
    } else {
        n_live = ++n_outputs;
    }
    release_signals(&old);
    if (o->file) {
        *status = CLI_DONE;
        return o->file;
    }
failed:
    free(o->target);
    free(o->temporary);
    return NULL;
}

int outputs_commit(void) {
    for (int i = 0; i < n_outputs; i++) {
        FILE *file = outputs[i].file;
        outputs[i].file = NULL;
        const int had_error = ferror(file);
        if (fclose(file) != 0 || had_error) {
            cli_fail(CLI_FAILED, "%s: cannot be written: %s", outputs[i].path, strerror(errno));
            outputs_discard();
            return -1;
        }
    }
    int result = 0;
    sigset_t old;
    hold_signals(&old);
    for (int i = 0; i < n_outputs && result == 0; i++) {
        if (rename(outputs[i].temporary, outputs[i].target) != 0) {
            cli_fail(CLI_FAILED, "%s: cannot be written: %s", outputs[i].path, strerror(errno));
            while (i-- > 0)
                unlink(outputs[i].target);
            result = -1;
            break;
        }
    }
    outputs_discard(); /* of a renamed file, nothing is left under the temporary name */
    release_signals(&old);
    return result;
}

void outputs_discard(void) {
    for (int i = 0; i < n_outputs; i++) {
        if (outputs[i].file)
            fclose(outputs[i].file);
        unlink(outputs[i].temporary);
    }
    const int n = n_outputs;
    n_live = n_outputs = 0;
    for (int i = 0; i < n; i++) {
        free(outputs[i].target);
        free(outputs[i].temporary);
    }
}
