/* Writes an ONNX model of one node, in memory: just enough of protocol buffers and of onnx.proto.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PEERS_ONNX_MODEL_H
#define ATTN_PEERS_ONNX_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* Element types by their number in ONNX. */
enum onnx_type { ONNX_F32 = 1, ONNX_I32 = 6, ONNX_F16 = 10 };

/* A growing message. */
struct onnx_message {
    unsigned char *data;
    size_t size, room;
};

struct onnx_model {
    struct onnx_message node, graph;
};

/* A tensor of the graph. */
struct onnx_tensor {
    const char *name;
    enum onnx_type type;
    int rank;
    int64_t dims[4];
};

void onnx_node(struct onnx_model *m, const char *type, const char *domain);
void onnx_int(struct onnx_model *m, const char *attribute, int64_t value);
void onnx_float(struct onnx_model *m, const char *attribute, float value);
/* The node's next input, which the caller brings, or a constant of the model. */
void onnx_input(struct onnx_model *m, const struct onnx_tensor *t);
void onnx_constant(struct onnx_model *m, const struct onnx_tensor *t, const void *data,
                   size_t size);
void onnx_output(struct onnx_model *m, const struct onnx_tensor *t);

/* The complete model, its data to be freed; m is empty afterwards. */
struct onnx_message onnx_finish(struct onnx_model *m, int64_t opset);

#endif
