// Products of rows with a weight matrix that is packed in panels of columns, on processors with AVX-512. ONNX Runtime
// packs matrices likewise, but here the next panel is prefetched while the current one is multiplied: with few rows and
// no prefetch, a product takes the time to read the weights plus the time to multiply.
#include "kernels.h"

#if defined(__x86_64__) && defined(__gnu_linux__)
#include <immintrin.h>
#define PRODUCTS
#define EACH(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < n; i++)
#define WIDE __attribute__((target("avx512f")))
#endif

_Static_assert(PANEL == 2 * L, "a row of a panel is two vectors");

// TILE rows of one panel fit into the registers. DEEP rows of a panel stay in the L2 cache, together with DEEP columns
// of TALL rows of x. LINE is the size of a cache line in bytes.
enum { TILE = 12, DEEP = 512, TALL = 32 * TILE, LINE = 64 };

int hasProduct(void) {
#ifdef PRODUCTS
	return __builtin_cpu_supports("avx512f") != 0;
#else
	return 0;
#endif
}

void *allocatePanels(size_t bytes) {
#ifdef PRODUCTS
	return aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
#else
	return (void)bytes, NULL;
#endif
}

void packWeights(const float *w, int64_t k, int64_t n, int transposed, float *to) {
	int64_t along = transposed ? 1 : n, across = transposed ? k : 1;
	for (int64_t c = 0; c < n; c += PANEL)
		for (int64_t r = 0; r < k; r++)
			for (int64_t i = 0; i < PANEL; i++)
				*to++ = w[along * r + across * (c + i)];
}

#ifdef PRODUCTS

// tile computes some rows of one panel of y from k rows of the panel of w. It adds to y unless these k rows are the
// first ones. Each of its k steps prefetches from next, then advances next by step bytes.
typedef struct {
	const float *x, *w, *bias;
	float *y;
	int64_t nextX, nextY, k;
	const char *next;
	int64_t step;
	float scale;
	int first, last;
} tile;

// compute sums in registers from zero, then adds to y: several short sums have a smaller rounding error than a long one.
INLINE WIDE void compute(const tile *t, const int rows) {
	__m512 s[TILE][2];
	EACH(r, rows) EACH(v, 2) s[r][v] = _mm512_setzero_ps();
	const float *x = t->x, *w = t->w;
	const char *next = t->next;
	const int64_t nextX = t->nextX, step = t->step;
	for (int64_t i = t->k; i > 0; i--, x++, w += PANEL, next += step) {
		__m512 a = _mm512_loadu_ps(w), b = _mm512_loadu_ps(w + L);
		_mm_prefetch(next, _MM_HINT_T1);
		EACH(r, rows) {
			__m512 f = _mm512_set1_ps(x[r * nextX]);
			s[r][0] = _mm512_fmadd_ps(f, a, s[r][0]);
			s[r][1] = _mm512_fmadd_ps(f, b, s[r][1]);
		}
	}
	float *y = t->y;
	const int64_t nextY = t->nextY;
	if (!t->first) EACH(r, rows) EACH(v, 2) s[r][v] = _mm512_add_ps(s[r][v], _mm512_loadu_ps(y + r * nextY + L * v));
	if (t->last) {
		const __m512 scale = _mm512_set1_ps(t->scale);
		EACH(r, rows) EACH(v, 2) s[r][v] = _mm512_mul_ps(s[r][v], scale);
		const float *bias = t->bias;
		if (bias) EACH(r, rows) EACH(v, 2) s[r][v] = _mm512_add_ps(s[r][v], _mm512_loadu_ps(bias + L * v));
	}
	EACH(r, rows) EACH(v, 2) _mm512_storeu_ps(y + r * nextY + L * v, s[r][v]);
}

#define ROWS(n) static WIDE __attribute__((noinline)) void compute##n(const tile *t) { compute(t, n); }
ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12)

static void (*const computes[])(const tile *) = {NULL, compute1, compute2, compute3, compute4, compute5, compute6,
	compute7, compute8, compute9, compute10, compute11, compute12};

// panel multiplies the rows [from,to) of x, at most DEEP columns from k on, by panel p of w.
static void panel(const job *j, int64_t p, int64_t from, int64_t to, int64_t k) {
	int64_t tiles = (to - from + TILE - 1) / TILE, at = from;
	tile t = {.nextX = j->width, .nextY = j->columns, .k = j->width - k < DEEP ? j->width - k : DEEP, .scale = j->scale,
		.first = k == 0};
	t.last = k + t.k == j->width;
	t.w = j->in[1] + (p * j->width + k) * PANEL;
	if (j->in[2]) t.bias = j->in[2] + p * PANEL;
	const char *next = (const char *)(t.w + j->width * PANEL);
	int64_t lines = t.k * PANEL * sizeof(float) / LINE, each = (lines + tiles - 1) / tiles;
	t.step = each > t.k ? 2 * LINE : LINE;
	for (int64_t i = 0; i < tiles; i++) {
		int64_t rows = (to - at + tiles - i - 1) / (tiles - i);
		t.x = j->in[0] + at * j->width + k, t.y = j->out[0] + at * j->columns + p * PANEL;
		t.next = next + i * each * LINE;
		computes[rows](&t);
		at += rows;
	}
}

void product(void *data, size_t i) {
	const job *j = data;
	int64_t first, end;
	part(j, i, &first, &end);
	for (int64_t from = 0; from < j->rows; from += TALL)
		for (int64_t k = 0; k < j->width; k += DEEP)
			for (int64_t p = first; p < end; p++)
				panel(j, p, from, from + TALL < j->rows ? from + TALL : j->rows, k);
}

#else

void product(void *data, size_t i) { (void)data, (void)i; }

#endif
