// Declarations that the operators of the domain "promptfed" share: vectors, and the parts of a run.
#include "domain.h"

#pragma GCC diagnostic ignored "-Wpsabi"

#define INLINE static inline __attribute__((always_inline))

// On Windows, GCC does not align the stack for vectors that it moves there (its bug 54412).
#if defined(__x86_64__) && (!defined(_WIN32) || defined(__clang__))
#define X86
#define TARGET_AVX2 __attribute__((target("avx2,fma")))
#define TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")))
#endif

enum { L = 16 }; // elements of a vector
typedef float vec __attribute__((vector_size(4 * L), aligned(4), may_alias));
typedef float half __attribute__((vector_size(2 * L), aligned(4), may_alias));
typedef float quarter __attribute__((vector_size(L), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * L), aligned(4), may_alias));

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE void store(float *p, vec x) { *(vec *)p = x; }
INLINE vec all(float x) { return x - (vec){0}; }

// job is one run of an operator. Its parts run on several threads.
typedef struct {
	const float *in[5];
	const int64_t *spans;
	float *out[2];
	int64_t rows, width; // of the first input; for attention: number of tokens, width of the queries
	int64_t heads, keys, length; // length: rows of a sequence
	int64_t columns;             // of a product
	const form *form;            // of a product
	float scale;
	int64_t units, parts; // number of units (rows, heads of attention, or panels of a product), and of parts
	float *room;          // scratch memory, roomOfPart floats for each part; NULL if the operator needs none
	int64_t roomOfPart;
} job;

// part computes the range [from,to) of the units of part i.
INLINE void part(const job *j, size_t i, int64_t *from, int64_t *to) {
	*from = j->units * (int64_t)i / j->parts;
	*to = j->units * ((int64_t)i + 1) / j->parts;
}

// product computes scale * x w (+ bias) for the inputs [x, packed w, optional bias] (product.c).
void product(void *data, size_t part);
