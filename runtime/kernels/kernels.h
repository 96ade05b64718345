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

#define EACH(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < n; i++)

// The width of a head is a multiple of L, at most WIDEST times. Attention processes GROUP rows at once. SPANS are the
// numbers that describe a query: the begin and end of two spans of rows that it attends to, and its own row.
enum { L = 16, WIDEST = 8, GROUP = 4, SPANS = 5 };

// job is one run of an operator. Its parts run on several threads.
typedef struct {
	const float *in[6];
	const int64_t *spans, *labels, *asked;
	float *out[3];
	int64_t rows, width; // of the first input; for attention: number of tokens, width of the queries
	int64_t queries, heads, keys, length; // length: rows of a sequence
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

// product computes scale * x w (+ bias) (+ plus): inputs [x, packed w, optional bias, optional plus] (product.c).
void product(void *data, size_t part);

typedef void (*partFunc)(void *job, size_t part);

// Functions for each instruction set (operators.h, plain.c, avx2.c, avx512.c), by operator.
enum { BIAS_GELU, BIAS_GELU_GRAD, NORM, NORM_GRAD, ADD_SAME_SHAPE, L2_NORMALIZE, L2_NORMALIZE_GRAD, CROSS_ENTROPY,
	ATTENTION, ATTENTION_GRAD, SEQUENCES, SEQUENCES_GRAD, PRODUCT, DEVICE_ALONE, ADD_BIAS = DEVICE_ALONE };
extern const partFunc plainOperators[], avx2Operators[], avx512Operators[];
