/* Protocol buffers are a sequence of fields, each a key (8 * number + wire type) and a value.
 *
 * SPDX-License-Identifier: MIT */
#include "onnx_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum wire { VARINT = 0, BYTES = 2, FIXED32 = 5 };

/* Field numbers of onnx.proto. */
enum {
    MODEL_IR_VERSION = 1,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    OPSET_DOMAIN = 1,
    OPSET_VERSION = 2
};
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_CONSTANT = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_TYPE = 4, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_F = 2, ATTRIBUTE_I = 3, ATTRIBUTE_TYPE = 20 };
enum { ATTRIBUTE_IS_FLOAT = 1, ATTRIBUTE_IS_INT = 2 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_TYPE_ELEMENT = 1 };
enum { TENSOR_TYPE_SHAPE = 2, SHAPE_DIM = 1, DIM_VALUE = 1 };
enum { IR_VERSION = 10 };

static void put(struct onnx_message *m, const void *data, size_t size) {
    if (m->size + size > m->room) {
        m->room = 2 * (m->size + size);
        m->data = realloc(m->data, m->room);
        if (!m->data) {
            perror("onnx_model");
            exit(1);
        }
    }
    memcpy(m->data + m->size, data, size);
    m->size += size;
}

static void put_varint(struct onnx_message *m, uint64_t value) {
    for (; value >= 128; value >>= 7)
        put(m, &(unsigned char){(unsigned char)(value | 128)}, 1);
    put(m, &(unsigned char){(unsigned char)value}, 1);
}

static void put_int(struct onnx_message *m, int field, int64_t value) {
    put_varint(m, (uint64_t)field << 3 | VARINT);
    put_varint(m, (uint64_t)value);
}

static void put_bytes(struct onnx_message *m, int field, const void *data, size_t size) {
    put_varint(m, (uint64_t)field << 3 | BYTES);
    put_varint(m, size);
    put(m, data, size);
}

static void put_text(struct onnx_message *m, int field, const char *text) {
    put_bytes(m, field, text, strlen(text));
}

/* A message within a message; the inner one is used up. */
static void put_message(struct onnx_message *m, int field, struct onnx_message *inner) {
    put_bytes(m, field, inner->data ? inner->data : (unsigned char *)"", inner->size);
    free(inner->data);
    *inner = (struct onnx_message){0};
}

void onnx_node(struct onnx_model *m, const char *type, const char *domain) {
    put_text(&m->node, NODE_TYPE, type);
    put_text(&m->node, NODE_DOMAIN, domain);
}

void onnx_int(struct onnx_model *m, const char *attribute, int64_t value) {
    struct onnx_message a = {0};
    put_text(&a, ATTRIBUTE_NAME, attribute);
    put_int(&a, ATTRIBUTE_I, value);
    put_int(&a, ATTRIBUTE_TYPE, ATTRIBUTE_IS_INT);
    put_message(&m->node, NODE_ATTRIBUTE, &a);
}

void onnx_float(struct onnx_model *m, const char *attribute, float value) {
    struct onnx_message a = {0};
    put_text(&a, ATTRIBUTE_NAME, attribute);
    put_varint(&a, (uint64_t)ATTRIBUTE_F << 3 | FIXED32);
    put(&a, &value, sizeof value);
    put_int(&a, ATTRIBUTE_TYPE, ATTRIBUTE_IS_FLOAT);
    put_message(&m->node, NODE_ATTRIBUTE, &a);
}

static void put_value_info(struct onnx_model *m, int field, const struct onnx_tensor *t) {
    struct onnx_message shape = {0}, tensor = {0}, type = {0}, info = {0};
    for (int i = 0; i < t->rank; i++) {
        struct onnx_message dim = {0};
        put_int(&dim, DIM_VALUE, t->dims[i]);
        put_message(&shape, SHAPE_DIM, &dim);
    }
    put_int(&tensor, TENSOR_TYPE_ELEMENT, t->type);
    put_message(&tensor, TENSOR_TYPE_SHAPE, &shape);
    put_message(&type, TYPE_TENSOR, &tensor);
    put_text(&info, VALUE_NAME, t->name);
    put_message(&info, VALUE_TYPE, &type);
    put_message(&m->graph, field, &info);
}

void onnx_input(struct onnx_model *m, const struct onnx_tensor *t) {
    put_text(&m->node, NODE_INPUT, t->name);
    put_value_info(m, GRAPH_INPUT, t);
}

void onnx_constant(struct onnx_model *m, const struct onnx_tensor *t, const void *data,
                   size_t size) {
    put_text(&m->node, NODE_INPUT, t->name);
    struct onnx_message tensor = {0};
    for (int i = 0; i < t->rank; i++)
        put_int(&tensor, TENSOR_DIMS, t->dims[i]);
    put_int(&tensor, TENSOR_TYPE, t->type);
    put_text(&tensor, TENSOR_NAME, t->name);
    put_bytes(&tensor, TENSOR_RAW, data, size);
    put_message(&m->graph, GRAPH_CONSTANT, &tensor);
}

void onnx_output(struct onnx_model *m, const struct onnx_tensor *t) {
    put_text(&m->node, NODE_OUTPUT, t->name);
    put_value_info(m, GRAPH_OUTPUT, t);
}

struct onnx_message onnx_finish(struct onnx_model *m, int64_t opset) {
    struct onnx_message model = {0};
    put_message(&m->graph, GRAPH_NODE, &m->node);
    put_text(&m->graph, GRAPH_NAME, "attention");
    put_int(&model, MODEL_IR_VERSION, IR_VERSION);
    put_message(&model, MODEL_GRAPH, &m->graph);
    const struct {
        const char *domain;
        int64_t version;
    } opsets[] = {{"", opset}, {"com.microsoft", 1}};
    for (size_t i = 0; i < sizeof opsets / sizeof opsets[0]; i++) {
        struct onnx_message id = {0};
        put_text(&id, OPSET_DOMAIN, opsets[i].domain);
        put_int(&id, OPSET_VERSION, opsets[i].version);
        put_message(&model, MODEL_OPSET, &id);
    }
    return model;
}
