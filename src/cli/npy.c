/* Reads and writes tensors as .npy files (format 1.0 and 2.0, C order, little-endian).
 *
 * The format: "\x93NUMPY", major and minor version, the length of the header (2 bytes in 1.0, 4 in
 * 2.0, little-endian), the header (a Python dictionary as text) and the elements.
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "memory.h"

/* The header of a plain array is 118 bytes; a mebibyte leaves room for any padding. */
#define MAX_HEADER (INT64_C(1) << 20)
#define CHUNK 8192 /* elements converted at a time */

static int refuse(char *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, NPY_ERROR_SIZE, format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- Element types --------------------------------------------------------------------------- */

static const struct {
    const char *descr, *name;
    size_t size;
} types[] = {
    [NPY_F32] = {"<f4", "float32", 4},
    [NPY_F16] = {"<f2", "float16", 2},
    [NPY_BF16] = {"<u2", "bfloat16 (uint16)", 2},
    [NPY_F64] = {"<f8", "float64", 8},
    [NPY_BOOL] = {"|b1", "bool", 1},
};
#define N_TYPES ((int)(sizeof types / sizeof types[0]))

/* What a reader takes besides float32, float16 and float64. */
struct wanted {
    int bf16;
    int mask;   /* bool */
    int stored; /* elements go to npy.stored */
};

/* Whether elements are left as they are in the file. */
static int stays(enum npy_type type, const struct wanted *wanted) {
    return wanted->stored &&
           (type == NPY_BOOL || type == NPY_F16 || (type == NPY_BF16 && !wanted->mask));
}

const char *npy_type_name(enum npy_type type) { return types[type].name; }

static uint64_t load_le(const unsigned char *bytes, size_t size) {
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;)
        value = value << 8 | bytes[i];
    return value;
}

static void store_le(unsigned char *bytes, size_t size, uint64_t value) {
    for (size_t i = 0; i < size; i++, value >>= 8)
        bytes[i] = (unsigned char)value;
}

static float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of_f16(uint32_t half) {
    const uint32_t sign = (half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    if (exponent == 31) /* infinity, or NaN with its payload */
        return float_of_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) { /* zero or subnormal: exact as a multiple of 2^-24 */
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static uint32_t f16_of_float(float x) {
    const uint32_t bits = bits_of_float(x), magnitude = bits & 0x7fffffff;
    const uint32_t sign = bits >> 16 & 0x8000;
    if (magnitude > 0x7f800000) /* NaN stays NaN, a quiet one */
        return sign | 0x7e00 | (magnitude >> 13 & 0x3ff);
    if (magnitude >= 0x477ff000) /* from 65520 on, halfway to 2^16, all rounds to infinity */
        return sign | 0x7c00;
    if (magnitude < 0x38800000) { /* below 2^-14: one unit is 2^-24, which is also the unit of */
        const float shifted = float_of_bits(magnitude) + 0.5f; /* floats from 1/2 to 1 */
        return sign | (bits_of_float(shifted) - 0x3f000000);
    }
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return sign | (rounded - 0x38000000) >> 13;
}

static uint32_t bf16_of_float(float x) {
    const uint32_t bits = bits_of_float(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static float load_element(enum npy_type type, const unsigned char *bytes) {
    const uint64_t bits = load_le(bytes, types[type].size);
    double x;
    switch (type) {
    case NPY_F16:
        return float_of_f16((uint32_t)bits);
    case NPY_BF16:
        return float_of_bits((uint32_t)bits << 16);
    case NPY_F64:
        memcpy(&x, &bits, sizeof x);
        return (float)x;
    default:
        return float_of_bits((uint32_t)bits);
    }
}

static uint32_t stored_bits(enum npy_type type, float x) {
    switch (type) {
    case NPY_F16:
        return f16_of_float(x);
    case NPY_BF16:
        return bf16_of_float(x);
    default:
        return bits_of_float(x);
    }
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

int64_t npy_count(int rank, const int64_t *shape) {
    int64_t product = 1, count = 1;
    for (int i = 0; i < rank; i++) {
        count *= shape[i] ? 1 : 0;
        if (shape[i] < 0 || (shape[i] && product > PTRDIFF_MAX / 8 / shape[i]))
            return -1;
        product *= shape[i] ? shape[i] : 1;
    }
    return count * product;
}

const char *npy_shape_text(int rank, const int64_t *shape, char text[NPY_SHAPE_SIZE]) {
    size_t n = (size_t)snprintf(text, NPY_SHAPE_SIZE, "(");
    for (int i = 0; i < rank && n < NPY_SHAPE_SIZE; i++)
        n += (size_t)snprintf(text + n, NPY_SHAPE_SIZE - n, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (n < NPY_SHAPE_SIZE)
        snprintf(text + n, NPY_SHAPE_SIZE - n, rank == 1 ? ",)" : ")");
    return text;
}

/* ---- The header's dictionary ----------------------------------------------------------------- */

struct parser {
    const char *at, *end;
};

static void skip_space(struct parser *p) {
    while (p->at < p->end && strchr(" \t\r\n", *p->at))
        p->at++;
}

static int take(struct parser *p, char c) {
    skip_space(p);
    if (p->at >= p->end || *p->at != c)
        return 0;
    p->at++;
    return 1;
}

static int take_word(struct parser *p, const char *word) {
    const size_t length = strlen(word);
    skip_space(p);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0)
        return 0;
    p->at += length;
    return 1;
}

/* 'text' or "text", cut to size. */
static int take_string(struct parser *p, char *text, size_t size) {
    skip_space(p);
    if (p->at >= p->end || (*p->at != '\'' && *p->at != '"'))
        return 0;
    const char *start = p->at + 1;
    const char *close = memchr(start, *p->at, (size_t)(p->end - start));
    if (!close)
        return 0;
    snprintf(text, size, "%.*s", (int)(close - start), start);
    p->at = close + 1;
    return 1;
}

/* A length that does not fit an int64 becomes INT64_MAX, which every check of sizes refuses. */
static int take_length(struct parser *p, int64_t *length) {
    skip_space(p);
    if (p->at >= p->end || *p->at < '0' || *p->at > '9')
        return 0;
    *length = 0;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        const int digit = *p->at - '0';
        *length = *length > (INT64_MAX - digit) / 10 ? INT64_MAX : *length * 10 + digit;
    }
    if (p->at < p->end && *p->at == 'L') /* Python 2 wrote (3L, 4L) */
        p->at++;
    return 1;
}

/* (), (3,), (3, 4), (3, 4,). All axes are counted in *rank, the first NPY_MAX_RANK are stored. */
static int take_shape(struct parser *p, int *rank, int64_t *shape) {
    *rank = 0;
    if (!take(p, '('))
        return 0;
    int comma = 1;
    int64_t length;
    while (comma && take_length(p, &length)) {
        if (*rank < NPY_MAX_RANK)
            shape[*rank] = length;
        ++*rank;
        comma = take(p, ',');
    }
    return take(p, ')') && (*rank != 1 || comma);
}

static const char number_types[] = "'<f4', '<f2', '<f8' or, with --bf16, '<u2'";

static int parse_header(const char *text, size_t size, const struct wanted *wanted,
                        struct npy *tensor, char *error) {
    for (size_t i = 0; i < size; i++)
        if ((text[i] < ' ' || text[i] > '~') && !(text[i] && strchr("\t\r\n", text[i])))
            return refuse(error, "byte 0x%02x in the header, expected printable text",
                          (unsigned)(unsigned char)text[i]);

    struct parser p = {text, text + size};
    char key[32], descr[32] = "";
    int fortran = -1, rank = -1;
    int ok = take(&p, '{');
    while (ok && !take(&p, '}')) {
        ok = take_string(&p, key, sizeof key) && take(&p, ':');
        if (!ok)
            break;
        if (strcmp(key, "descr") == 0 && !*descr) {
            skip_space(&p);
            if (p.at < p.end && *p.at == '[')
                return refuse(error, "a structured element type, expected %s%s",
                              wanted->mask ? "'|b1', " : "", number_types);
            ok = take_string(&p, descr, sizeof descr) && *descr;
        } else if (strcmp(key, "fortran_order") == 0 && fortran < 0) {
            fortran = take_word(&p, "True") ? 1 : take_word(&p, "False") ? 0 : -1;
            ok = fortran >= 0;
        } else if (strcmp(key, "shape") == 0 && rank < 0) {
            ok = take_shape(&p, &rank, tensor->shape);
        } else {
            return refuse(error,
                          "key '%s' in the header, expected descr, fortran_order and shape, "
                          "once each",
                          key);
        }
        if (ok && !take(&p, ',')) {
            ok = take(&p, '}');
            break;
        }
    }
    skip_space(&p);
    if (!ok && p.at == p.end)
        return refuse(error, "a header that ends too early");
    if (!ok || p.at != p.end)
        return refuse(error, "a header that does not parse near '%.*s'",
                      (int)(p.end - p.at < 24 ? p.end - p.at : 24), p.at);
    if (!*descr || fortran < 0 || rank < 0)
        return refuse(error, "no %s in the header",
                      !*descr       ? "descr"
                      : fortran < 0 ? "fortran_order"
                                    : "shape");

    int type = 0;
    while (type < N_TYPES && strcmp(types[type].descr, descr) != 0)
        type++;
    if (type == NPY_BF16 && !wanted->bf16)
        return refuse(error, "uint16 elements ('<u2'), which are read as bfloat16 only with "
                             "--bf16");
    if (type == N_TYPES && descr[0] == '>')
        return refuse(error, "big-endian elements ('%s'), expected little-endian", descr);
    if (type == N_TYPES || (type == NPY_BOOL && !wanted->mask))
        return refuse(error, "elements of type '%s', expected %s%s", descr,
                      wanted->mask ? "'|b1', " : "", number_types);
    if (fortran)
        return refuse(error, "Fortran order, expected C order");
    if (rank > NPY_MAX_RANK)
        return refuse(error, "rank %d, expected at most %d", rank, NPY_MAX_RANK);
    tensor->type = (enum npy_type)type;
    tensor->rank = rank;
    return 0;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* As it is in the file: one byte, or two. */
static void keep_element(size_t size, const unsigned char *bytes, void *stored, int64_t i) {
    if (size == 1)
        ((unsigned char *)stored)[i] = bytes[0];
    else
        ((uint16_t *)stored)[i] = (uint16_t)load_le(bytes, 2);
}

static int read_data(FILE *file, const struct wanted *wanted, struct npy *tensor, int64_t count,
                     char *error) {
    static unsigned char bytes[CHUNK * 8];
    const size_t size = types[tensor->type].size;
    const int as_stored = stays(tensor->type, wanted);
    const size_t room = as_stored ? size : sizeof(float);
    void *memory = cli_allocate((size_t)count, room);
    if (!memory)
        return refuse(error, "not enough memory for its %" PRId64 " elements", count);
    for (int64_t done = 0; done < count;) {
        const size_t n = count - done < CHUNK ? (size_t)(count - done) : CHUNK;
        if (fread(bytes, size, n, file) != n) {
            free(memory);
            return refuse(error, "cannot be read to its end: %s",
                          ferror(file) ? strerror(errno) : "it became shorter");
        }
        for (size_t i = 0; i < n; i++, done++) {
            if (as_stored)
                keep_element(size, bytes + i * size, memory, done);
            else
                ((float *)memory)[done] = load_element(tensor->type, bytes + i * size);
        }
    }
    if (wanted->stored)
        tensor->stored = memory;
    else
        tensor->data = memory;
    return 0;
}

static int read_file(FILE *file, int64_t file_size, const struct wanted *wanted, struct npy *tensor,
                     char *error) {
    unsigned char start[12];
    const size_t got = fread(start, 1, 10, file);
    if (ferror(file))
        return refuse(error, "cannot be read: %s", strerror(errno));
    if (got < 6 || memcmp(start, "\x93NUMPY", 6) != 0)
        return refuse(error, file_size ? "not an npy file: it does not begin with \\x93NUMPY"
                                       : "not an npy file: it is empty");
    const int major = got > 6 ? start[6] : 0, minor = got > 7 ? start[7] : 0;
    if (got > 7 && (major < 1 || major > 2 || minor != 0))
        return refuse(error, "npy format %d.%d, expected 1.0 or 2.0", major, minor);
    const size_t prefix = major == 2 ? 12 : 10;
    if (got < 10 || fread(start + 10, 1, prefix - 10, file) != prefix - 10)
        return refuse(error, "truncated: %" PRId64 " bytes, too few for an npy header", file_size);

    const int64_t header_size = (int64_t)load_le(start + 8, prefix - 8);
    if (header_size > MAX_HEADER)
        return refuse(error, "a header of %" PRId64 " bytes, expected at most %" PRId64,
                      header_size, MAX_HEADER);
    const int64_t data_size = file_size - (int64_t)prefix - header_size;
    if (data_size < 0)
        return refuse(error,
                      "truncated: a header of %" PRId64 " bytes in a file of %" PRId64 " bytes",
                      header_size, file_size);
    char *header = malloc((size_t)header_size + 1);
    if (!header)
        return refuse(error, "not enough memory for its header");
    int failed = 0;
    if (fread(header, 1, (size_t)header_size, file) != (size_t)header_size)
        failed = refuse(error, "its header cannot be read");
    failed = failed || parse_header(header, (size_t)header_size, wanted, tensor, error);
    free(header);
    if (failed)
        return -1;

    char shape[NPY_SHAPE_SIZE];
    npy_shape_text(tensor->rank, tensor->shape, shape);
    const char *name = npy_type_name(tensor->type);
    const int64_t count = npy_count(tensor->rank, tensor->shape);
    if (count < 0)
        return refuse(error, "shape %s, whose size overflows", shape);
    const int64_t want = count * (int64_t)types[tensor->type].size;
    if (data_size < want)
        return refuse(error, "truncated: %" PRId64 " bytes of data, expected %" PRId64 " for %s %s",
                      data_size, want, name, shape);
    if (data_size > want)
        return refuse(error,
                      "%" PRId64 " trailing bytes: %" PRId64 " bytes of data, expected %" PRId64
                      " for %s %s",
                      data_size - want, data_size, want, name, shape);
    return read_data(file, wanted, tensor, count, error);
}

static int read_path(const char *path, const struct wanted *wanted, struct npy *tensor,
                     char *error) {
    memset(tensor, 0, sizeof *tensor);
    /* Asked before opening, which would wait for the other end of a pipe. */
    struct stat status;
    if (stat(path, &status) != 0)
        return refuse(error, "cannot be read: %s", strerror(errno));
    if (!S_ISREG(status.st_mode))
        return refuse(error, "%s, expected an npy file",
                      S_ISDIR(status.st_mode) ? "a directory" : "not a regular file");
    FILE *file = fopen(path, "rb");
    if (!file)
        return refuse(error, "cannot be read: %s", strerror(errno));
    const int result = read_file(file, (int64_t)status.st_size, wanted, tensor, error);
    fclose(file);
    return result;
}

int npy_read(const char *path, int bf16, struct npy *tensor, char error[NPY_ERROR_SIZE]) {
    const struct wanted wanted = {.bf16 = bf16};
    return read_path(path, &wanted, tensor, error);
}

int npy_read_stored(const char *path, int bf16, struct npy *tensor, char error[NPY_ERROR_SIZE]) {
    const struct wanted wanted = {.bf16 = bf16, .stored = 1};
    return read_path(path, &wanted, tensor, error);
}

int npy_read_mask(const char *path, int bf16, struct npy *tensor, char error[NPY_ERROR_SIZE]) {
    const struct wanted wanted = {.bf16 = bf16, .mask = 1, .stored = 1};
    return read_path(path, &wanted, tensor, error);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* floats, or null, and then stored elements. */
static int write_file(FILE *file, enum npy_type type, int rank, const int64_t *shape,
                      const float *floats, const uint16_t *halves) {
    static unsigned char bytes[CHUNK * 4];
    char text[NPY_SHAPE_SIZE], header[256];
    npy_shape_text(rank, shape, text);
    const int length =
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                 types[type].descr, text);
    /* Spaces and a newline, so that the elements begin at a multiple of 64 bytes. */
    const int padded = (10 + length + 1 + 63) / 64 * 64 - 10;
    unsigned char start[10] = "\x93NUMPY\x01";
    store_le(start + 8, 2, (uint64_t)padded);
    if (fwrite(start, 1, sizeof start, file) != sizeof start ||
        fprintf(file, "%-*s\n", padded - 1, header) != padded)
        return -1;

    const size_t size = types[type].size;
    const int64_t count = npy_count(rank, shape);
    for (int64_t done = 0; done < count;) {
        const size_t n = count - done < CHUNK ? (size_t)(count - done) : CHUNK;
        for (size_t i = 0; i < n; i++)
            store_le(bytes + i * size, size,
                     floats ? stored_bits(type, floats[done + (int64_t)i])
                            : halves[done + (int64_t)i]);
        if (fwrite(bytes, size, n, file) != n)
            return -1;
        done += (int64_t)n;
    }
    return 0;
}

int npy_write(FILE *file, enum npy_type type, int rank, const int64_t *shape, const float *data) {
    return write_file(file, type, rank, shape, data, NULL);
}

int npy_write_stored(FILE *file, enum npy_type type, int rank, const int64_t *shape,
                     const void *data) {
    const int is_half = type == NPY_F16 || type == NPY_BF16;
    return write_file(file, type, rank, shape, is_half ? NULL : data, is_half ? data : NULL);
}
