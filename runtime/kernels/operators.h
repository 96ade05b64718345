// The operators between the matrix products of a training step, for one instruction set. Each takes one pass over
// memory, where ONNX Runtime's own operators take five to twenty. All compute in float32. The order of sums is fixed and
// does not depend on the number of threads, so results are the same for any number of threads.
//
// Before the #include, a file defines TARGET (an attribute of functions) and WIDTH (numbers in a register).
#include <math.h>
#include <string.h>

#define FUNCTION INLINE TARGET

// A sum has L parts, in N registers; they are added at the end. Sums of GROUP rows and BLOCKS times L columns fit into
// the registers.
enum { N = L / WIDTH, BLOCKS = N == 1 ? 4 : 1 };

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef float quarter __attribute__((vector_size(L), aligned(4), may_alias));

FUNCTION vec load(const float *p) { return *(const vec *)p; }
FUNCTION void store(float *p, vec x) { *(vec *)p = x; }
FUNCTION vec all(float x) { return x - (vec){0}; }

// folded adds the L parts of a sum to four.
FUNCTION quarter folded(const vec s[N]) {
#if WIDTH == 4
	return (s[0] + s[2]) + (s[1] + s[3]);
#else
	float __attribute__((vector_size(2 * L), aligned(4), may_alias)) h[2];
#if WIDTH == 8
	h[0] = s[0] + s[1];
#else
	memcpy(h, s, sizeof h);
	h[0] += h[1];
#endif
	quarter q[2];
	memcpy(q, h, sizeof q);
	return q[0] + q[1];
#endif
}

FUNCTION float sum(const vec s[N]) {
	quarter q = folded(s);
	return (q[0] + q[2]) + (q[1] + q[3]);
}

// sums returns sum(s[0]) to sum(s[3]).
FUNCTION quarter sums(const vec s[4][N]) {
	quarter a = folded(s[0]), b = folded(s[1]), c = folded(s[2]), d = folded(s[3]);
	quarter ab = (quarter){a[0], b[0], a[1], b[1]} + (quarter){a[2], b[2], a[3], b[3]};
	quarter cd = (quarter){c[0], d[0], c[1], d[1]} + (quarter){c[2], d[2], c[3], d[3]};
	return (quarter){ab[0], ab[1], cd[0], cd[1]} + (quarter){ab[2], ab[3], cd[2], cd[3]};
}

// larger returns max(x, y), and x where x is NaN.
FUNCTION vec larger(vec x, vec y) {
	ivec less = x < y;
	return (vec)((less & (ivec)y) | (~less & (ivec)x));
}

// expo returns e^x for x <= 88 with a relative error of 2e-7, and about 1e-38 for x < -87 (Cephes' expf, by Moshier).
FUNCTION vec expo(vec x) {
	x = larger(x, all(-87));
	vec t = x * 1.44269504088896341f + 12582912.f; // rounds to an integer exponent of 2, in the low bits
	vec n = t - 12582912.f;
	x = x - n * 0.693359375f + n * 2.12194440e-4f;
	vec y = x * 1.9875691500e-4f + 1.3981999507e-3f;
	y = y * x + 8.3334519073e-3f;
	y = y * x + 4.1665795894e-2f;
	y = y * x + 1.6666665459e-1f;
	y = y * x + 5.0000001201e-1f;
	y = y * x * x + x + 1.f;
	return y * (vec)(((ivec)t - 0x4B400000 + 127) << 23);
}

FUNCTION vec sigmoid(vec x) { return 1.f / (1.f + expo(-larger(x, all(-87)))); }

// biasGelu computes y = a sigmoid(a), a = x + b, for the inputs [x, b].
static TARGET void biasGelu(void *data, size_t i) {
	const job *j = data;
	int64_t from, to, w = j->width;
	part(j, i, &from, &to);
	for (int64_t r = from; r < to; r++)
		for (int64_t c = 0; c < w; c += WIDTH) {
			vec a = load(j->in[0] + r * w + c) + load(j->in[1] + c);
			store(j->out[0] + r * w + c, a * sigmoid(a));
		}
}

// biasGeluGrad computes the gradient of biasGelu with respect to a, for the inputs [x, b, dy].
static TARGET void biasGeluGrad(void *data, size_t i) {
	const job *j = data;
	int64_t from, to, w = j->width;
	part(j, i, &from, &to);
	for (int64_t r = from; r < to; r++)
		for (int64_t c = 0; c < w; c += WIDTH) {
			vec a = load(j->in[0] + r * w + c) + load(j->in[1] + c);
			vec s = sigmoid(a);
			store(j->out[0] + r * w + c, load(j->in[2] + r * w + c) * (s + a * s * (1.f - s)));
		}
}

// norm computes layer norm, for the inputs [x, gain, bias]. Other outputs are mean and 1/deviation of each row.
static TARGET void norm(void *data, size_t i) {
	const job *j = data;
	int64_t from, to, w = j->width;
	part(j, i, &from, &to);
	for (int64_t r = from; r < to; r++) {
		const float *x = j->in[0] + r * w;
		vec total[N] = {0}, squares[N] = {0};
		for (int64_t c = 0; c < w; c += L)
			EACH(v, N) total[v] += load(x + c + WIDTH * v);
		float mean = sum(total) / w;
		for (int64_t c = 0; c < w; c += L)
			EACH(v, N) {
				vec d = load(x + c + WIDTH * v) - mean;
				squares[v] += d * d;
			}
		float inverse = 1 / __builtin_sqrtf(sum(squares) / w + j->scale);
		for (int64_t c = 0; c < w; c += WIDTH)
			store(j->out[0] + r * w + c, (load(x + c) - mean) * inverse * load(j->in[1] + c) + load(j->in[2] + c));
		j->out[1][r] = mean, j->out[2][r] = inverse;
	}
}

// plus computes x + y for the inputs [x, y].
static TARGET void plus(void *data, size_t i) {
	const job *j = data;
	int64_t from, to;
	part(j, i, &from, &to);
	for (int64_t c = from * j->width; c < to * j->width; c++)
		j->out[0][c] = j->in[0][c] + j->in[1][c];
}

// normGrad computes the gradient of layer norm with respect to x (+ plus), for the inputs [x, gain, mean, 1/deviation,
// dy, optional plus].
static TARGET void normGrad(void *data, size_t i) {
	const job *j = data;
	int64_t from, to, w = j->width;
	part(j, i, &from, &to);
	for (int64_t r = from; r < to; r++) {
		const float *x = j->in[0] + r * w, *gain = j->in[1], *dy = j->in[4] + r * w;
		float mean = j->in[2][r], inverse = j->in[3][r];
		vec plain[N] = {0}, along[N] = {0};
		for (int64_t c = 0; c < w; c += L)
			EACH(v, N) {
				vec g = load(dy + c + WIDTH * v) * load(gain + c + WIDTH * v);
				plain[v] += g;
				along[v] += g * (load(x + c + WIDTH * v) - mean);
			}
		float a = sum(plain) / w, b = sum(along) / w * inverse * inverse;
		for (int64_t c = 0; c < w; c += WIDTH) {
			vec d = (load(dy + c) * load(gain + c) - a - (load(x + c) - mean) * b) * inverse;
			if (j->in[5]) d += load(j->in[5] + r * w + c);
			store(j->out[0] + r * w + c, d);
		}
	}
}

// unit divides each row of x by its Euclidean norm. Outputs are these rows, and 1/norm of each.
static TARGET void unit(void *data, size_t i) {
	const job *j = data;
	int64_t from, to, w = j->width;
	part(j, i, &from, &to);
	for (int64_t r = from; r < to; r++) {
		vec squares[N] = {0};
		for (int64_t c = 0; c < w; c += L)
			EACH(v, N) {
				vec x = load(j->in[0] + r * w + c + WIDTH * v);
				squares[v] += x * x;
			}
		float inverse = 1 / __builtin_sqrtf(sum(squares) + 1e-30f); // finite for a row of zeros
		for (int64_t c = 0; c < w; c += WIDTH)
			store(j->out[0] + r * w + c, load(j->in[0] + r * w + c) * inverse);
		j->out[1][r] = inverse;
	}
}

// unitGrad computes the gradient of unit with respect to x, for its outputs and dy: the inputs [y, 1/norm, dy].
static TARGET void unitGrad(void *data, size_t i) {
	const job *j = data;
	int64_t from, to, w = j->width;
	part(j, i, &from, &to);
	for (int64_t r = from; r < to; r++) {
		const float *y = j->in[0] + r * w, *dy = j->in[2] + r * w;
		vec along[N] = {0};
		for (int64_t c = 0; c < w; c += L)
			EACH(v, N) along[v] += load(y + c + WIDTH * v) * load(dy + c + WIDTH * v);
		float a = sum(along);
		for (int64_t c = 0; c < w; c += WIDTH)
			store(j->out[0] + r * w + c, (load(dy + c) - load(y + c) * a) * j->in[1][r]);
	}
}

// crossEntropy computes the mean over rows of -log softmax(x)[label], and its gradient with respect to x.
static TARGET void crossEntropy(void *data, size_t i) {
	const job *j = data;
	int64_t w = j->width;
	double loss = 0;
	for (int64_t r = 0; r < j->rows; r++) {
		const float *x = j->in[0] + r * w;
		float *d = j->out[1] + r * w, most = x[0];
		for (int64_t c = 1; c < w; c++)
			most = x[c] > most ? x[c] : most;
		for (int64_t c = 0; c < w; c += WIDTH) {
			size_t bytes = (w - c < WIDTH ? w - c : WIDTH) * sizeof *x;
			vec e = {0};
			memcpy(&e, x + c, bytes);
			e = expo(e - most);
			memcpy(d + c, &e, bytes);
		}
		double total = 0;
		for (int64_t c = 0; c < w; c++)
			total += d[c];
		loss += log(total) + most - x[j->labels[r]];
		for (int64_t c = 0; c < w; c++)
			d[c] = (d[c] / total - (c == j->labels[r])) / j->rows;
	}
	j->out[0][0] = loss / j->rows;
	(void)i;
}

// head holds the pointers and strides of one head of attention.
typedef struct {
	const float *q, *key, *value, *dy;
	float *dq, *dkey, *dvalue, *y, *p;
	int64_t row, out, weights; // strides between rows of qkv, of results, of weights
	int64_t keys;
	float scale;
} head;

FUNCTION head headOf(const job *j, int64_t h, int64_t d, int backwards) {
	int64_t w = j->width;
	head x = {.q = j->in[0] + h * d, .row = 3 * w, .out = w, .weights = j->heads * j->keys, .keys = j->keys,
		.scale = 1 / __builtin_sqrtf(d)};
	x.key = x.q + w, x.value = x.key + w;
	if (backwards) {
		x.p = (float *)j->in[2] + h * j->keys, x.dy = j->in[3] + h * d;
		x.dq = j->out[0] + h * d, x.dkey = x.dq + w, x.dvalue = x.dkey + w;
	} else
		x.p = j->out[1] + h * j->keys, x.y = j->out[0] + h * d;
	return x;
}

// largest returns the largest part of x.
FUNCTION float largest(vec x) {
	float p[WIDTH];
	store(p, x);
	for (int half = WIDTH / 2; half > 0; half /= 2)
		for (int i = 0; i < half; i++)
			p[i] = p[i + half] > p[i] ? p[i + half] : p[i];
	return p[0];
}

// weigh replaces the scores of n[i] keys by their softmax, in some rows i of p. Elements from n[i] to keys become about
// 1e-38; they are not read.
FUNCTION void weigh(float *p, int64_t next, const int rows, const int64_t *n, int64_t keys) {
	vec most[GROUP], total[GROUP][N] = {0};
	float m[GROUP], inverse[GROUP];
	for (int i = 0; i < rows; i++)
		for (int64_t k = n[i]; k < keys; k++)
			p[next * i + k] = p[next * i];
	EACH(i, rows) most[i] = load(p + next * i);
	for (int64_t k = WIDTH; k < keys; k += WIDTH)
		EACH(i, rows) most[i] = larger(most[i], load(p + next * i + k));
	EACH(i, rows) m[i] = largest(most[i]);
	for (int i = 0; i < rows; i++)
		for (int64_t k = n[i]; k < keys; k++)
			p[next * i + k] = -3e38f;
	for (int64_t k = 0; k < keys; k += L)
		EACH(v, N) EACH(i, rows) {
			vec e = expo(load(p + next * i + k + WIDTH * v) - m[i]);
			store(p + next * i + k + WIDTH * v, e);
			total[i][v] += e;
		}
	EACH(i, rows) inverse[i] = 1 / sum(total[i]);
	for (int64_t k = 0; k < keys; k += WIDTH)
		EACH(i, rows) store(p + next * i + k, load(p + next * i + k) * inverse[i]);
}

// scores computes p[i,k] = scale * x[i] · m[from+k] for some rows i of x and the rows [from,to) of m.
FUNCTION void scores(const float *x, int64_t next, const int rows, const float *m, int64_t row, int64_t from, int64_t to,
	float scale, float *p, int64_t nextP, const int blocks) {
	for (int64_t k = from; k < to; k++) {
		vec s[GROUP][N] = {0};
		for (int b = 0; b < blocks; b++)
			EACH(v, N) {
				int64_t c = L * b + WIDTH * v;
				vec y = load(m + row * k + c);
				EACH(i, rows) s[i][v] += load(x + next * i + c) * y;
			}
		if (rows == GROUP) {
			quarter all = sums(s) * scale;
			EACH(i, GROUP) p[nextP * i + k - from] = all[i];
		} else
			p[k - from] = sum(s[0]) * scale;
	}
}

#define EVERY EACH(b, blocks) EACH(v, N) EACH(i, rows)

// gatherBlocks computes some blocks of gather.
FUNCTION void gatherBlocks(float *y, int64_t nextY, const int rows, const float *m, int64_t row, int64_t from, int64_t to,
	const float *p, int64_t nextP, int first, const int blocks) {
	vec s[GROUP][BLOCKS][N] = {0};
	if (!first) EVERY s[i][b][v] = load(y + nextY * i + L * b + WIDTH * v);
	for (int64_t k = from; k < to; k++)
		EACH(b, blocks) EACH(v, N) {
			vec x = load(m + row * k + L * b + WIDTH * v);
			EACH(i, rows) s[i][b][v] += p[nextP * i + k - from] * x;
		}
	EVERY store(y + nextY * i + L * b + WIDTH * v, s[i][b][v]);
}

// gather adds the sum over k of p[i,k] m[from+k] to y[i], or to 0 at first, for some rows i of y and the rows [from,to)
// of m.
FUNCTION void gather(float *y, int64_t nextY, const int rows, const float *m, int64_t row, int64_t from, int64_t to,
	const float *p, int64_t nextP, int first, const int blocks) {
	int b = 0;
	for (; b + BLOCKS <= blocks; b += BLOCKS)
		gatherBlocks(y + L * b, nextY, rows, m + L * b, row, from, to, p, nextP, first, BLOCKS);
	for (; b < blocks; b++)
		gatherBlocks(y + L * b, nextY, rows, m + L * b, row, from, to, p, nextP, first, 1);
}

// spreadBlocks computes some blocks of spread.
FUNCTION void spreadBlocks(const float *x, int64_t next, const int rows, float *m, int64_t row, int64_t from, int64_t to,
	const float *p, int64_t nextP, const int blocks) {
	vec s[GROUP][BLOCKS][N];
	EVERY s[i][b][v] = load(x + next * i + L * b + WIDTH * v);
	for (int64_t k = from; k < to; k++)
		EACH(b, blocks) EACH(v, N) {
			vec y = load(m + row * k + L * b + WIDTH * v);
			EACH(i, rows) y += p[nextP * i + k - from] * s[i][b][v];
			store(m + row * k + L * b + WIDTH * v, y);
		}
}

// spread computes m[from+k] += sum over i of p[i,k] x[i] for some rows i of x and the rows [from,to) of m.
FUNCTION void spread(const float *x, int64_t next, const int rows, float *m, int64_t row, int64_t from, int64_t to,
	const float *p, int64_t nextP, const int blocks) {
	int b = 0;
	for (; b + BLOCKS <= blocks; b += BLOCKS)
		spreadBlocks(x + L * b, next, rows, m + L * b, row, from, to, p, nextP, BLOCKS);
	for (; b < blocks; b++)
		spreadBlocks(x + L * b, next, rows, m + L * b, row, from, to, p, nextP, 1);
}

// together returns GROUP if the GROUP queries from r on have the same first span, else 1.
FUNCTION int together(const job *j, int64_t r) {
	const int64_t *s = j->spans + SPANS * r;
	int n = 1;
	while (n < GROUP && r + n < j->queries && s[SPANS * n] == s[0] && s[SPANS * n + 1] == s[1])
		n++;
	return n == GROUP ? GROUP : 1;
}

// asked copies the queries of some entries of spans.
FUNCTION void asked(head h, const int64_t *s, const int rows, const int blocks, float *q) {
	EACH(i, rows) memcpy(q + L * blocks * i, h.q + h.row * s[SPANS * i + 4], L * blocks * sizeof *q);
}

// attend computes attention of one head for some queries with the same first span: weights, weighted sums of values.
FUNCTION void attend(const job *j, head h, int64_t r, const int rows, const int blocks) {
	const int64_t *s = j->spans + SPANS * r;
	int64_t n = s[1] - s[0], d = L * blocks, all[GROUP];
	float *p = h.p + h.weights * r, *y = h.y + h.out * r, q[GROUP * L * WIDEST];
	asked(h, s, rows, blocks, q);
	scores(q, d, rows, h.key, h.row, s[0], s[1], h.scale, p, h.weights, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + SPANS * i + 2;
		scores(q + d * i, 0, 1, h.key, h.row, own[0], own[1], h.scale, p + h.weights * i + n, 0, blocks);
	}
	EACH(i, rows) all[i] = n + s[SPANS * i + 3] - s[SPANS * i + 2];
	weigh(p, h.weights, rows, all, h.keys);
	gather(y, h.out, rows, h.value, h.row, s[0], s[1], p, h.weights, 1, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + SPANS * i + 2;
		gather(y + h.out * i, 0, 1, h.value, h.row, own[0], own[1], p + h.weights * i + n, 0, 0, blocks);
	}
}

// attendGrad computes the gradient of attend with respect to query, key and value; d has space for rows x keys numbers.
FUNCTION void attendGrad(const job *j, head h, int64_t r, const int rows, const int blocks, float *d) {
	const int64_t *s = j->spans + SPANS * r;
	int64_t n = s[1] - s[0], width = L * blocks;
	const float *p = h.p + h.weights * r, *dy = h.dy + h.out * r;
	float q[GROUP * L * WIDEST], dq[GROUP * L * WIDEST];
	asked(h, s, rows, blocks, q);
	scores(dy, h.out, rows, h.value, h.row, s[0], s[1], 1, d, h.keys, blocks);
	spread(dy, h.out, rows, h.dvalue, h.row, s[0], s[1], p, h.weights, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + SPANS * i + 2;
		int64_t all = n + own[1] - own[0];
		scores(dy + h.out * i, 0, 1, h.value, h.row, own[0], own[1], 1, d + h.keys * i + n, 0, blocks);
		spread(dy + h.out * i, 0, 1, h.dvalue, h.row, own[0], own[1], p + h.weights * i + n, 0, blocks);
		float along = 0;
		for (int64_t k = 0; k < all; k++)
			along += p[h.weights * i + k] * d[h.keys * i + k];
		for (int64_t k = 0; k < all; k++)
			d[h.keys * i + k] = p[h.weights * i + k] * (d[h.keys * i + k] - along) * h.scale;
	}
	gather(dq, width, rows, h.key, h.row, s[0], s[1], d, h.keys, 1, blocks);
	spread(q, width, rows, h.dkey, h.row, s[0], s[1], d, h.keys, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + SPANS * i + 2;
		gather(dq + width * i, 0, 1, h.key, h.row, own[0], own[1], d + h.keys * i + n, 0, 0, blocks);
		spread(q + width * i, 0, 1, h.dkey, h.row, own[0], own[1], d + h.keys * i + n, 0, blocks);
		float *to = h.dq + h.row * s[SPANS * i + 4];
		for (int64_t c = 0; c < width; c += WIDTH)
			store(to + c, load(to + c) + load(dq + width * i + c));
	}
}

// eachQuery goes over the queries of a head, several at a time where they share their first span.
FUNCTION void eachQuery(const job *j, int64_t i, const int blocks, int backwards) {
	head h = headOf(j, i, L * blocks, backwards);
	float d[GROUP * j->keys];
	if (backwards)
		for (int64_t r = 0; r < j->rows; r++) {
			memset(h.dq + h.row * r, 0, L * blocks * sizeof *h.dq);
			memset(h.dkey + h.row * r, 0, L * blocks * sizeof *h.dkey);
			memset(h.dvalue + h.row * r, 0, L * blocks * sizeof *h.dvalue);
		}
	for (int64_t r = 0, n; r < j->queries; r += n) {
		n = together(j, r);
		if (backwards && n == GROUP) attendGrad(j, h, r, GROUP, blocks, d);
		else if (backwards) attendGrad(j, h, r, 1, blocks, d);
		else if (n == GROUP) attend(j, h, r, GROUP, blocks);
		else attend(j, h, r, 1, blocks);
	}
}

FUNCTION void eachHead(const job *j, size_t i, int backwards) {
	int64_t from, to, blocks = j->width / j->heads / L;
	part(j, i, &from, &to);
	for (; from < to; from++)
		switch (blocks) { // with a constant the compiler unrolls the loops
		case 2: eachQuery(j, from, 2, backwards); break;
		case 4: eachQuery(j, from, 4, backwards); break;
		default: eachQuery(j, from, blocks, backwards);
		}
}

// attention computes attention for the inputs [qkv, spans]: each entry of spans names two spans of rows, to whose keys
// and values the query of a fifth row attends. Outputs are the weighted sums of values [queries,width] and the weights
// [queries,heads,keys].
static TARGET void attention(void *data, size_t i) { eachHead(data, i, 0); }

// attentionGrad computes the gradient of attention with respect to qkv, for the inputs [qkv, spans, weights, dy].
static TARGET void attentionGrad(void *data, size_t i) { eachHead(data, i, 1); }

// Attention over whole sequences, in which all rows attend to each other, stores no weights: the gradient recomputes
// them. The keys and values of each head are transposed, so that a vector holds one component of several keys.

// transposed copies n rows of blocks·L elements to blocks·L rows of keys elements, with zeros from the n-th on.
FUNCTION void transposed(const float *x, int64_t row, int64_t n, int64_t keys, float *to, int blocks) {
	for (int c = 0; c < L * blocks; c++) {
		for (int64_t k = 0; k < n; k++)
			to[keys * c + k] = x[row * k + c];
		memset(to + keys * c + n, 0, (keys - n) * sizeof *to);
	}
}

// tile computes p[i] = scale * x[i] t for some rows i of x and the first vectors·WIDTH columns of t [blocks·L,keys].
FUNCTION void tile(const float *x, int64_t next, const int rows, const float *t, int64_t keys, float scale, float *p,
	const int vectors, const int blocks) {
	vec s[GROUP][2] = {0};
	for (int c = 0; c < L * blocks; c++)
		EACH(v, vectors) {
			vec k = load(t + keys * c + WIDTH * v);
			EACH(i, rows) s[i][v] += x[next * i + c] * k;
		}
	EACH(i, rows) EACH(v, vectors) store(p + keys * i + WIDTH * v, s[i][v] * scale);
}

// against does the same for all columns of t.
FUNCTION void against(const float *x, int64_t next, const int rows, const float *t, int64_t keys, float scale, float *p,
	const int blocks) {
	int64_t k = 0;
	for (; k + 2 * WIDTH <= keys; k += 2 * WIDTH)
		tile(x, next, rows, t + k, keys, scale, p + k, 2, blocks);
	if (k < keys)
		tile(x, next, rows, t + k, keys, scale, p + k, 1, blocks);
}

// ofRows computes some rows from r on of a sequence of n: their weighted sums of values, or (backwards) their part of
// the gradient. room holds the transposed keys and values, then the weights of the rows and the gradients of the weights.
FUNCTION void ofRows(head h, int64_t n, int64_t r, const int rows, const int blocks, int backwards, float *room) {
	int64_t keys = h.keys, all = L * blocks * keys, length[GROUP] = {n, n, n, n};
	float *p = room + 2 * all, *d = p + GROUP * keys;
	against(h.q + h.row * r, h.row, rows, room, keys, h.scale, p, blocks);
	weigh(p, keys, rows, length, keys);
	if (!backwards) {
		gather(h.y + h.out * r, h.out, rows, h.value, h.row, 0, n, p, keys, 1, blocks);
		return;
	}
	const float *dy = h.dy + h.out * r;
	against(dy, h.out, rows, room + all, keys, 1, d, blocks);
	spread(dy, h.out, rows, h.dvalue, h.row, 0, n, p, keys, blocks);
	for (int i = 0; i < rows; i++) {
		vec along[N] = {0};
		for (int64_t k = 0; k < keys; k += L)
			EACH(v, N) along[v] += load(p + keys * i + k + WIDTH * v) * load(d + keys * i + k + WIDTH * v);
		float a = sum(along);
		for (int64_t k = 0; k < keys; k += WIDTH)
			store(d + keys * i + k, load(p + keys * i + k) * (load(d + keys * i + k) - a) * h.scale);
	}
	gather(h.dq + h.row * r, h.row, rows, h.key, h.row, 0, n, d, keys, 1, blocks);
	spread(h.q + h.row * r, h.row, rows, h.dkey, h.row, 0, n, d, keys, blocks);
}

FUNCTION void eachSequence(const job *j, int64_t i, const int blocks, int backwards, float *room) {
	int64_t n = j->length, w = j->width, d = L * blocks, at = i / j->heads * n;
	head h = {.q = j->in[0] + 3 * w * at + i % j->heads * d, .row = 3 * w, .out = w, .keys = j->keys,
		.scale = 1 / __builtin_sqrtf(d)};
	h.key = h.q + w, h.value = h.key + w;
	if (backwards) {
		h.dy = j->in[1] + w * at + i % j->heads * d;
		h.dq = j->out[0] + (h.q - j->in[0]), h.dkey = h.dq + w, h.dvalue = h.dkey + w;
		for (int64_t r = 0; r < n; r++) {
			memset(h.dkey + h.row * r, 0, d * sizeof *h.dkey);
			memset(h.dvalue + h.row * r, 0, d * sizeof *h.dkey);
		}
		transposed(h.value, h.row, n, h.keys, room + d * h.keys, blocks);
	} else
		h.y = j->out[0] + w * at + i % j->heads * d;
	transposed(h.key, h.row, n, h.keys, room, blocks);
	int64_t r = 0;
	for (; r + GROUP <= n; r += GROUP)
		ofRows(h, n, r, GROUP, blocks, backwards, room);
	for (; r < n; r++)
		ofRows(h, n, r, 1, blocks, backwards, room);
}

FUNCTION void eachHeadOfSequences(const job *j, size_t i, int backwards) {
	int64_t from, to, blocks = j->width / j->heads / L;
	part(j, i, &from, &to);
	for (; from < to; from++)
		if (blocks == 4)
			eachSequence(j, from, 4, backwards, j->room + i * j->roomOfPart);
		else
			eachSequence(j, from, blocks, backwards, j->room + i * j->roomOfPart);
}

// sequences computes self-attention of each sequence of j->length rows of qkv: weighted sums of values [rows,width].
static TARGET void sequences(void *data, size_t i) { eachHeadOfSequences(data, i, 0); }

// sequencesGrad computes the gradient of sequences with respect to qkv, for the inputs [qkv, dy].
static TARGET void sequencesGrad(void *data, size_t i) { eachHeadOfSequences(data, i, 1); }

const partFunc OPERATORS[] = {biasGelu, biasGeluGrad, norm, normGrad, plus, unit, unitGrad, crossEntropy, attention,
	attentionGrad, sequences, sequencesGrad, product};
