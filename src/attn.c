/* Entry points: check the arguments, plan, run.
 *
 * SPDX-License-Identifier: MIT */
#include "attn.h"

#include <stdio.h>
#include <stdlib.h>

#include "attention.h"
#include "backward.h"
#include "dispatch.h"
#include "plan.h"
#include "problem.h"

/* Everything a call needs before it may write. */
struct call {
    struct attn_checked checked;
    struct attn_plan plan;
    const struct attn_kernels *kernels;
};

static attn_status check_executor(const attn_executor *executor) {
    const bool is_usable = !executor || (executor->struct_size >= sizeof *executor &&
                                         executor->run && executor->n_workers >= 1);
    return is_usable ? ATTN_OK : ATTN_ERROR_EXECUTOR;
}

static attn_status prepare(const attn_problem *problem, const attn_executor *executor,
                           struct call *call) {
    attn_status status = check_executor(executor);
    if (status == ATTN_OK)
        status = attn_problem_check(problem, true, &call->checked, NULL);
    if (status == ATTN_OK && !call->checked.no_output)
        status = attn_plan_make(&call->checked, executor ? executor->n_workers : 1, &call->plan);
    if (status == ATTN_OK && !(call->kernels = attn_kernels_in_use()))
        status = ATTN_ERROR_ISA;
    return status;
}

attn_status attn_forward(const attn_problem *problem, void *workspace, size_t workspace_size,
                         attn_executor *executor) {
    struct call call;
    const attn_status status = prepare(problem, executor, &call);
    if (status != ATTN_OK || call.checked.no_output)
        return status;
    if (!workspace)
        return ATTN_ERROR_NULL;
    if (workspace_size < call.plan.workspace_bytes)
        return ATTN_ERROR_WORKSPACE;
    attn_attend(&call.checked, &call.plan, call.kernels, workspace, executor);
    return ATTN_OK;
}

attn_status attn_forward_alloc(const attn_problem *problem, attn_executor *executor) {
    struct call call;
    const attn_status status = prepare(problem, executor, &call);
    if (status != ATTN_OK || call.checked.no_output)
        return status;
    void *workspace = malloc(call.plan.workspace_bytes);
    if (!workspace)
        return ATTN_ERROR_MEMORY;
    attn_attend(&call.checked, &call.plan, call.kernels, workspace, executor);
    free(workspace);
    return ATTN_OK;
}

attn_status attn_workspace_size(const attn_problem *problem, size_t n_workers, size_t *size) {
    if (!size)
        return ATTN_ERROR_NULL;
    *size = 0;
    if (n_workers < 1)
        return ATTN_ERROR_EXECUTOR;
    struct attn_checked checked;
    struct attn_plan plan;
    attn_status status = attn_problem_check(problem, false, &checked, NULL);
    if (status != ATTN_OK || checked.no_output)
        return status;
    if ((status = attn_plan_make(&checked, n_workers, &plan)) == ATTN_OK)
        *size = plan.workspace_bytes;
    return status;
}

/* ---- Gradient -------------------------------------------------------------------------------- */

/* As struct call, for a gradient. */
struct backward_call {
    struct attn_checked checked;
    attn_gradient gradient;
    struct attn_backward_plan plan;
    const struct attn_kernels *kernels;
};

static attn_status prepare_backward(const attn_problem *problem, const attn_gradient *gradient,
                                    const attn_executor *executor, struct backward_call *call) {
    attn_status status = check_executor(executor);
    if (status != ATTN_OK || (status = attn_problem_check(problem, true, &call->checked, NULL)) ||
        (status = attn_gradient_check(&call->checked, gradient, true, &call->gradient)))
        return status;
    if (!call->checked.no_output)
        status = attn_backward_plan_make(&call->checked, &call->gradient,
                                         executor ? executor->n_workers : 1, &call->plan);
    if (status == ATTN_OK && !(call->kernels = attn_kernels_in_use()))
        status = ATTN_ERROR_ISA;
    if (status == ATTN_OK && call->checked.no_output)
        attn_backward_zero(&call->checked, &call->gradient);
    return status;
}

attn_status attn_backward(const attn_problem *problem, const attn_gradient *gradient,
                          void *workspace, size_t workspace_size, attn_executor *executor) {
    struct backward_call call;
    const attn_status status = prepare_backward(problem, gradient, executor, &call);
    if (status != ATTN_OK || call.checked.no_output)
        return status;
    if (!workspace)
        return ATTN_ERROR_NULL;
    if (workspace_size < call.plan.workspace_bytes)
        return ATTN_ERROR_WORKSPACE;
    attn_backward_run(&call.checked, &call.gradient, &call.plan, call.kernels, workspace, executor);
    return ATTN_OK;
}

attn_status attn_backward_alloc(const attn_problem *problem, const attn_gradient *gradient,
                                attn_executor *executor) {
    struct backward_call call;
    const attn_status status = prepare_backward(problem, gradient, executor, &call);
    if (status != ATTN_OK || call.checked.no_output)
        return status;
    void *workspace = malloc(call.plan.workspace_bytes);
    if (!workspace)
        return ATTN_ERROR_MEMORY;
    attn_backward_run(&call.checked, &call.gradient, &call.plan, call.kernels, workspace, executor);
    free(workspace);
    return ATTN_OK;
}

attn_status attn_backward_workspace_size(const attn_problem *problem, const attn_gradient *gradient,
                                         size_t n_workers, size_t *size) {
    if (!size)
        return ATTN_ERROR_NULL;
    *size = 0;
    if (n_workers < 1)
        return ATTN_ERROR_EXECUTOR;
    struct backward_call call;
    attn_status status = attn_problem_check(problem, false, &call.checked, NULL);
    if (status != ATTN_OK ||
        (status = attn_gradient_check(&call.checked, gradient, false, &call.gradient)) ||
        call.checked.no_output)
        return status;
    status = attn_backward_plan_make(&call.checked, &call.gradient, n_workers, &call.plan);
    *size = status == ATTN_OK ? call.plan.workspace_bytes : 0;
    return status;
}

attn_status attn_softmax_backward(int64_t n, const float *weights, const float *dweights,
                                  float *dscores) {
    if (n < 0)
        return ATTN_ERROR_SIZE;
    if (n > 0 && (!weights || !dweights || !dscores))
        return ATTN_ERROR_NULL;
    const struct attn_kernels *kernels = attn_kernels_in_use();
    if (!kernels)
        return ATTN_ERROR_ISA;
    if (n > 0)
        kernels->softmax_gradient(weights, dweights, kernels->dot_row(weights, dweights, (size_t)n),
                                  (size_t)n, dscores);
    return ATTN_OK;
}

/* ---------------------------------------------------------------------------------------------- */

attn_status attn_check(const attn_problem *problem, char *buffer, size_t size) {
    struct attn_checked checked;
    struct attn_plan plan;
    const struct attn_sentence sentence = {buffer, size};
    if (buffer && size)
        buffer[0] = '\0';
    attn_status status = attn_problem_check(problem, true, &checked, &sentence);
    if (status != ATTN_OK)
        return status;
    if (!checked.no_output)
        status = attn_plan_make(&checked, 1, &plan);
    if (status == ATTN_OK && !attn_kernels_in_use())
        status = ATTN_ERROR_ISA;
    if (status != ATTN_OK && buffer && size)
        snprintf(buffer, size, "%s", attn_status_string(status));
    return status;
}

const char *attn_status_string(attn_status status) {
    switch (status) {
    case ATTN_OK:
        return "success";
    case ATTN_ERROR_NULL:
        return "a required pointer is null";
    case ATTN_ERROR_STRUCT_SIZE:
        return "struct_size is of no version that this library knows";
    case ATTN_ERROR_SIZE:
        return "a size is negative, or zero where it may not be";
    case ATTN_ERROR_OVERFLOW:
        return "an extent or the workspace does not fit in the address space";
    case ATTN_ERROR_HEADS:
        return "q_heads is not a multiple of kv_heads";
    case ATTN_ERROR_KV_LEN:
        return "a kv_len is negative or beyond kv_cap";
    case ATTN_ERROR_TYPE:
        return "an element type, or a mix of types, is not supported";
    case ATTN_ERROR_PARAMETER:
        return "a parameter is out of its range";
    case ATTN_ERROR_ALIGNMENT:
        return "where query rows stand among keys matters, and no alignment was picked";
    case ATTN_ERROR_WORKSPACE:
        return "the workspace is smaller than attn_workspace_size() says";
    case ATTN_ERROR_EXECUTOR:
        return "the executor has no run function or no worker";
    case ATTN_ERROR_ISA:
        return "the kernel set asked for is unknown or cannot run on this CPU";
    case ATTN_ERROR_MEMORY:
        return "no memory for the workspace";
    case ATTN_ERROR_STRIDE:
        return "the strides of an output make its rows share memory";
    case ATTN_ERROR_CU_Q:
        return "cu_q does not rise from 0 to q_len";
    case ATTN_ERROR_PAST_LEN:
        return "a past_len is negative or beyond past_cap, or keys in two pieces are not supported";
    case ATTN_ERROR_PAGE:
        return "a page or slot is outside the cache, or pages contradict other arguments";
    case ATTN_ERROR_MASK:
        return "the mask is incomplete or contradicts itself";
    }
    return "unknown status";
}

#define STRING(x) #x
#define VERSION_STRING(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)

const char *attn_version(void) {
    return VERSION_STRING(ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
}
