// The tile of product.c for one instruction set. Before each #include, product.c defines SET (its name), TARGET (an
// attribute of functions), WIDTH (elements of a vector), VECTORS (of a row of a panel), TILE (rows of x whose sums,
// with a row of the panel and one element of x, fit into the registers), TALL and FMA(s, a, x) = s + a x for vectors s
// and a and a number x, rounded once.
#define NAMED_(what, set) what##_##set
#define NAMED(what, set) NAMED_(what, set)
#define NAME(what) NAMED(what, SET)
#define STRING_(set) #set
#define STRING(set) STRING_(set)
#define VEC NAME(vector)
#define EVERY EACH(r, rows) EACH(v, VECTORS)

typedef float VEC __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

// compute sums in registers from zero, then adds to y: several short sums have a smaller rounding error than a long one.
INLINE TARGET void NAME(compute)(const tile *t, const int rows) {
	VEC s[TILE][VECTORS], a[VECTORS];
	EVERY s[r][v] = (VEC){0};
	const float *x = t->x, *w = t->w;
	const char *next = t->next;
	const int64_t nextX = t->nextX, step = t->step;
	for (int64_t i = t->k; i > 0; i--, x++, w += WIDTH * VECTORS, next += step) {
		EACH(v, VECTORS) a[v] = *(const VEC *)(w + WIDTH * v);
		__builtin_prefetch(next, 0, 2); // into the L2 cache
		EVERY s[r][v] = FMA(s[r][v], a[v], x[r * nextX]);
	}
	float *y = t->y;
	const int64_t nextY = t->nextY;
	if (!t->first) EVERY s[r][v] += *(VEC *)(y + r * nextY + WIDTH * v);
	if (t->last) {
		EVERY s[r][v] *= t->scale;
		const float *bias = t->bias;
		if (bias) EVERY s[r][v] += *(const VEC *)(bias + WIDTH * v);
		const float *plus = t->plus;
		if (plus) EVERY s[r][v] += *(const VEC *)(plus + r * nextY + WIDTH * v);
	}
	EVERY *(VEC *)(y + r * nextY + WIDTH * v) = s[r][v];
}

#define ROWS(n) static TARGET __attribute__((noinline)) void NAME(rows##n)(const tile *t) { NAME(compute)(t, n); }
ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6)
#if TILE == 12
ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12)
#endif

// peak computes 12 n products and sums of vectors in registers.
static TARGET float NAME(peak)(int64_t n, float x) {
	VEC s[12], a = (VEC){0} + x;
	EACH(r, 12) s[r] = a * (float)r;
	for (; n > 0; n--) EACH(r, 12) s[r] = FMA(s[r], a, x);
	EACH(r, 12) x += s[r][0];
	return x;
}

static const form NAME(form) = {STRING(SET), LEVEL, WIDTH * VECTORS, TILE, TALL, 24 * WIDTH, NAME(peak), {NULL,
	NAME(rows1), NAME(rows2), NAME(rows3), NAME(rows4), NAME(rows5), NAME(rows6),
#if TILE == 12
	NAME(rows7), NAME(rows8), NAME(rows9), NAME(rows10), NAME(rows11), NAME(rows12),
#endif
}};

#undef SET
#undef LEVEL
#undef TARGET
#undef WIDTH
#undef VECTORS
#undef TILE
#undef TALL
#undef FMA
