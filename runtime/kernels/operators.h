// The operators between the matrix products of a training step, for one instruction set. Each takes one pass over
// memory, where ONNX Runtime's own operators take five to twenty. All compute in float32. The order of sums is fixed and
// does not depend on the number of threads, so results are the same for any number of threads.
//
// Before the #include, a file defines TARGET (an attribute of functions) and WIDTH (numbers in a register).
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

// normGrad computes the gradient of layer norm with respect to x, for the inputs [x, gain, mean, 1/deviation, dy].
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
		for (int64_t c = 0; c < w; c += WIDTH)
			store(j->out[0] + r * w + c, (load(dy + c) * load(gain + c) - a - (load(x + c) - mean) * b) * inverse);
	}
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

// weigh replaces the scores of a row's n keys by their softmax. Elements from n to keys become about 1e-38; they are
// not read.
FUNCTION void weigh(float *p, int64_t n, int64_t keys) {
	for (int64_t i = n; i < keys; i++)
		p[i] = p[0];
	vec most = load(p);
	for (int64_t i = WIDTH; i < keys; i += WIDTH)
		most = larger(most, load(p + i));
	float m = most[0];
	EACH(i, WIDTH) m = most[i] > m ? most[i] : m;
	for (int64_t i = n; i < keys; i++)
		p[i] = -3e38f;
	vec total[N] = {0};
	for (int64_t i = 0; i < keys; i += L)
		EACH(v, N) {
			vec e = expo(load(p + i + WIDTH * v) - m);
			store(p + i + WIDTH * v, e);
			total[v] += e;
		}
	float inverse = 1 / sum(total);
	for (int64_t i = 0; i < keys; i += WIDTH)
		store(p + i, load(p + i) * inverse);
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

// together returns GROUP if the GROUP rows from r on have the same first span, else 1.
FUNCTION int together(const job *j, int64_t r) {
	const int64_t *s = j->spans + 4 * r;
	int n = 1;
	while (n < GROUP && r + n < j->rows && s[4 * n] == s[0] && s[4 * n + 1] == s[1])
		n++;
	return n == GROUP ? GROUP : 1;
}

// attend computes attention of one head for some rows with the same first span: weights, and weighted sums of values.
FUNCTION void attend(const job *j, head h, int64_t r, const int rows, const int blocks) {
	const int64_t *s = j->spans + 4 * r;
	int64_t n = s[1] - s[0];
	float *p = h.p + h.weights * r, *y = h.y + h.out * r;
	scores(h.q + h.row * r, h.row, rows, h.key, h.row, s[0], s[1], h.scale, p, h.weights, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + 4 * i + 2;
		scores(h.q + h.row * (r + i), 0, 1, h.key, h.row, own[0], own[1], h.scale, p + h.weights * i + n, 0, blocks);
	}
	for (int i = 0; i < rows; i++)
		weigh(p + h.weights * i, n + s[4 * i + 3] - s[4 * i + 2], h.keys);
	gather(y, h.out, rows, h.value, h.row, s[0], s[1], p, h.weights, 1, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + 4 * i + 2;
		gather(y + h.out * i, 0, 1, h.value, h.row, own[0], own[1], p + h.weights * i + n, 0, 0, blocks);
	}
}

// attendGrad computes the gradient of attend with respect to query, key and value; d has space for rows x keys numbers.
FUNCTION void attendGrad(const job *j, head h, int64_t r, const int rows, const int blocks, float *d) {
	const int64_t *s = j->spans + 4 * r;
	int64_t n = s[1] - s[0];
	const float *p = h.p + h.weights * r, *dy = h.dy + h.out * r, *q = h.q + h.row * r;
	float *dq = h.dq + h.row * r;
	scores(dy, h.out, rows, h.value, h.row, s[0], s[1], 1, d, h.keys, blocks);
	spread(dy, h.out, rows, h.dvalue, h.row, s[0], s[1], p, h.weights, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + 4 * i + 2;
		int64_t all = n + own[1] - own[0];
		scores(dy + h.out * i, 0, 1, h.value, h.row, own[0], own[1], 1, d + h.keys * i + n, 0, blocks);
		spread(dy + h.out * i, 0, 1, h.dvalue, h.row, own[0], own[1], p + h.weights * i + n, 0, blocks);
		float along = 0;
		for (int64_t k = 0; k < all; k++)
			along += p[h.weights * i + k] * d[h.keys * i + k];
		for (int64_t k = 0; k < all; k++)
			d[h.keys * i + k] = p[h.weights * i + k] * (d[h.keys * i + k] - along) * h.scale;
	}
	gather(dq, h.row, rows, h.key, h.row, s[0], s[1], d, h.keys, 1, blocks);
	spread(q, h.row, rows, h.dkey, h.row, s[0], s[1], d, h.keys, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + 4 * i + 2;
		gather(dq + h.row * i, 0, 1, h.key, h.row, own[0], own[1], d + h.keys * i + n, 0, 0, blocks);
		spread(q + h.row * i, 0, 1, h.dkey, h.row, own[0], own[1], d + h.keys * i + n, 0, blocks);
	}
}

// eachRow goes over the rows of a head, several at a time where they share their first span.
FUNCTION void eachRow(const job *j, int64_t i, const int blocks, int backwards) {
	head h = headOf(j, i, L * blocks, backwards);
	float d[GROUP * j->keys];
	if (backwards)
		for (int64_t r = 0; r < j->rows; r++) {
			memset(h.dkey + h.row * r, 0, L * blocks * sizeof *h.dkey);
			memset(h.dvalue + h.row * r, 0, L * blocks * sizeof *h.dvalue);
		}
	for (int64_t r = 0, n; r < j->rows; r += n) {
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
		if (blocks == 4) // with a constant the compiler unrolls the loops
			eachRow(j, from, 4, backwards);
		else
			eachRow(j, from, blocks, backwards);
}

// attention computes attention for the inputs [qkv, spans]: the query of each row attends to the keys and values of two
// spans of rows. Outputs are the weighted sums of values [rows,width] and the weights [rows,heads,keys].
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
	int64_t keys = h.keys, all = L * blocks * keys;
	float *p = room + 2 * all, *d = p + GROUP * keys;
	against(h.q + h.row * r, h.row, rows, room, keys, h.scale, p, blocks);
	for (int i = 0; i < rows; i++)
		weigh(p + keys * i, n, keys);
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

const partFunc OPERATORS[] = {biasGelu, biasGeluGrad, normGrad, attention, attentionGrad, sequences, sequencesGrad, product};
