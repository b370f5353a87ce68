/* The first program of a new user: causal attention of two queries over three keys.
 *
 * SPDX-License-Identifier: MIT */
#include <attn.h>
#include <stdio.h>

int main(void) {
    /* One head, 2 queries, 3 keys, 4 features. */
    const float q[2][4] = {{1, 0, 0, 0}, {0, 2, 0, 0}};
    const float k[3][4] = {{2, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 2, 0}};
    const float v[3][2] = {{1, 0}, {0, 1}, {5, 5}};
    float out[2][2];

    attn_problem p = attn_problem_bhld(1, 1, 1, 2, 3, 4, 2, *q, *k, *v, *out);
    p.causal = 1;
    p.align = ATTN_ALIGN_TOP_LEFT; /* query i sees keys 0 .. i */

    const attn_status status = attn_forward_alloc(&p, NULL);
    if (status != ATTN_OK)
        return fprintf(stderr, "%s\n", attn_status_string(status)), 1;
    printf("%s: [%g %g] [%g %g]\n", attn_isa(), out[0][0], out[0][1], out[1][0], out[1][1]);
    return 0;
}
