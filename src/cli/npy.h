/* Reads and writes tensors as .npy files (format 1.0 and 2.0, C order, little-endian).
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NPY_H
#define ATTN_NPY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* How elements are stored in the file. */
enum npy_type { NPY_F32, NPY_F16, NPY_BF16, NPY_F64, NPY_BOOL };

#define NPY_MAX_RANK 4

struct npy {
    enum npy_type type;
    int rank;
    int64_t shape[NPY_MAX_RANK];
    /* One of these, from malloc(), also for an empty tensor. */
    float *data;  /* npy_read() */
    void *stored; /* npy_read_stored(), npy_read_mask() */
};

#define NPY_ERROR_SIZE 512

/* Reads a file; uint16 elements are bfloat16 if bf16 is set and refused otherwise. Memory is
 * allocated only for sizes that the file's own size confirms. Returns 0, or -1 with what was found
 * and what was expected in error (which does not repeat the path). */
int npy_read(const char *path, int bf16, struct npy *tensor, char error[NPY_ERROR_SIZE]);

/* The same, but float16 and bfloat16 are left as their bits. */
int npy_read_stored(const char *path, int bf16, struct npy *tensor, char error[NPY_ERROR_SIZE]);

/* The same for a mask: bool, which it may be as well, is left as bytes and float16 as its bits. */
int npy_read_mask(const char *path, int bf16, struct npy *tensor, char error[NPY_ERROR_SIZE]);

/* Writes a tensor, rounding to nearest even where type is narrower than float. NPY_F64 and NPY_BOOL
 * are not written. Returns 0, or -1 with errno set. */
int npy_write(FILE *file, enum npy_type type, int rank, const int64_t *shape, const float *data);

/* The same with elements as they are in the file: 16 bits where type is narrower than float. */
int npy_write_stored(FILE *file, enum npy_type type, int rank, const int64_t *shape,
                     const void *data);

/* The number of elements of a shape, or -1 if its size in bytes (8 per element) overflows, an axis
 * of length 0 notwithstanding. */
int64_t npy_count(int rank, const int64_t *shape);

/* "(2, 8, 40, 15)", as Python writes it. */
#define NPY_SHAPE_SIZE 96
const char *npy_shape_text(int rank, const int64_t *shape, char text[NPY_SHAPE_SIZE]);

/* "float32" and so on. */
const char *npy_type_name(enum npy_type type);

#endif
