// Products of rows with a weight matrix that is packed in panels of columns, for each instruction set of tile.h. ONNX
// Runtime packs matrices likewise, but here the next panel is prefetched while the current one is multiplied: with few
// rows and no prefetch, a product takes the time to read the weights plus the time to multiply.
#include "kernels.h"
#include <string.h>
#ifdef _WIN32
#include <malloc.h>
#endif

// DEEP rows of a panel stay in the L2 cache, together with DEEP columns of TALL rows of x. LINE is the size of a cache
// line in bytes, and NUMBERS are in one.
enum { DEEP = 512, LINE = 64, NUMBERS = LINE / sizeof(float) };

// tile computes some rows of one panel of y from k rows of the panel of w. It adds to y unless these k rows are the
// first ones. Each of its k steps prefetches from next, then advances next by step bytes.
typedef struct tile {
	const float *x, *w, *bias, *plus;
	float *y;
	int64_t nextX, nextY, k;
	const char *next;
	int64_t step;
	float scale;
	int first, last;
} tile;

#ifdef X86
#include <immintrin.h>

#define SET avx512
#define LEVEL AVX512
#define TARGET TARGET_AVX512
#define WIDTH 16
#define VECTORS 2
#define TILE 12
#define TALL 384
#define FMA(s, a, x) (VEC)_mm512_fmadd_ps(_mm512_set1_ps(x), (__m512)(a), (__m512)(s))
#include "tile.h"

#define SET avx2
#define LEVEL AVX2
#define TARGET TARGET_AVX2
#define WIDTH 8
#define VECTORS 2
#define TILE 6
#define TALL 96
#define FMA(s, a, x) (VEC)_mm256_fmadd_ps(_mm256_set1_ps(x), (__m256)(a), (__m256)(s))
#include "tile.h"

static const form *const forms[] = {&form_avx512, &form_avx2, NULL};

#elif defined(__aarch64__)
#include <arm_neon.h>
#ifndef __clang__
#pragma GCC optimize("no-schedule-insns") // GCC would load numbers so early that sums leave the registers
#endif

#define SET neon
#define LEVEL PLAIN
#define TARGET
#define WIDTH 4
#define VECTORS 4
#define TILE 6
#define TALL 96
#define FMA(s, a, x) (VEC)vfmaq_n_f32((float32x4_t)(s), (float32x4_t)(a), x)
#include "tile.h"

static const form *const forms[] = {&form_neon, NULL};

#else
static const form *const forms[] = {NULL};
#endif

const form *formAt(int level, size_t i) {
	for (size_t n = 0; forms[n]; n++)
		if (forms[n]->level <= level && i-- == 0) return forms[n];
	return NULL;
}

double peak(const form *f, int64_t n) {
	volatile float sink = f->peak(n, 1e-9f);
	return (void)sink, (double)f->flops * n;
}

void *allocatePanels(size_t bytes) {
#ifdef _WIN32
	return _aligned_malloc(bytes, LINE);
#else
	return aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
#endif
}

void freePanels(void *panels) {
#ifdef _WIN32
	_aligned_free(panels);
#else
	free(panels);
#endif
}

void packWeights(const float *w, int64_t k, int64_t n, int transposed, int64_t panel, float *to) {
	for (int64_t c = 0; c < n; c += panel, to += k * panel)
		if (!transposed)
			for (int64_t r = 0; r < k; r++)
				memcpy(to + r * panel, w + r * n + c, panel * sizeof *w);
		else
			for (int64_t at = 0; at < k; at += NUMBERS) // whole cache lines of w
				for (int64_t i = 0; i < panel; i++)
					for (int64_t r = at; r < at + NUMBERS && r < k; r++)
						to[r * panel + i] = w[(c + i) * k + r];
}

// panel multiplies the rows [from,to) of x, at most DEEP columns from k on, by panel p of w.
static void panel(const job *j, int64_t p, int64_t from, int64_t to, int64_t k) {
	const form *f = j->form;
	int64_t tiles = (to - from + f->tile - 1) / f->tile, at = from;
	tile t = {.nextX = j->width, .nextY = j->columns, .k = j->width - k < DEEP ? j->width - k : DEEP, .scale = j->scale,
		.first = k == 0};
	t.last = k + t.k == j->width;
	t.w = j->in[1] + (p * j->width + k) * f->panel;
	if (j->in[2]) t.bias = j->in[2] + p * f->panel;
	const char *next = (const char *)(t.w + j->width * f->panel);
	int64_t lines = t.k * f->panel * sizeof(float) / LINE, each = (lines + tiles - 1) / tiles;
	t.step = each > t.k ? 2 * LINE : LINE;
	for (int64_t i = 0; i < tiles; i++) {
		int64_t rows = (to - at + tiles - i - 1) / (tiles - i);
		t.x = j->in[0] + at * j->width + k, t.y = j->out[0] + at * j->columns + p * f->panel;
		if (j->in[3]) t.plus = j->in[3] + at * j->columns + p * f->panel;
		t.next = next + i * each * LINE;
		f->rows[rows](&t);
		at += rows;
	}
}

void product(void *data, size_t i) {
	const job *j = data;
	const int64_t blocks = (j->rows + j->form->tall - 1) / j->form->tall;
	int64_t first, end;
	part(j, i, &first, &end);
	for (int64_t b = 0; b < blocks; b++)
		for (int64_t k = 0; k < j->width; k += DEEP)
			for (int64_t p = first; p < end; p++)
				panel(j, p, j->rows * b / blocks, j->rows * (b + 1) / blocks, k);
}
