// What the operators of the domain "promptfed" have in common: vectors, and what the parts of a run read and write.
#include "native.h"

#pragma GCC diagnostic ignored "-Wpsabi"

#define INLINE static inline __attribute__((always_inline))

enum { L = 16 }; // numbers of a vector
typedef float vec __attribute__((vector_size(4 * L), aligned(4), may_alias));
typedef float half __attribute__((vector_size(2 * L), aligned(4), may_alias));
typedef float quarter __attribute__((vector_size(L), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * L), aligned(4), may_alias));

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE void store(float *p, vec x) { *(vec *)p = x; }
INLINE vec all(float x) { return x - (vec){0}; }

// job is one run of an operator: what the parts that threads take read and write.
typedef struct {
	const float *in[5];
	const int64_t *spans;
	float *out[2];
	int64_t rows, width; // of the first input; of attention: tokens, and width of queries
	int64_t heads, keys, length; // length: rows of a sequence
	int64_t columns;             // of a product
	float scale;
	int64_t units, parts; // rows, heads of attention, or panels of a product, and into how many parts they are cut
	float *room;          // for each part, where it needs some
	int64_t roomOfPart;
} job;

// part is the units of a part, [from,to).
INLINE void part(const job *j, size_t i, int64_t *from, int64_t *to) {
	*from = j->units * (int64_t)i / j->parts;
	*to = j->units * ((int64_t)i + 1) / j->parts;
}

// product is x w times scale, plus a bias where there is one, of [x, w packed, bias] (product.c).
void product(void *data, size_t part);
