// Operators of the domain "promptfed" for the steps between the matrix products of a training step. Each takes one pass
// over memory, where ONNX Runtime's own operators take five to twenty. All compute in float32. The order of sums is
// fixed and does not depend on the number of threads, so results are the same for any number of threads.
#include "kernels.h"
#include <string.h>

// OPERATOR lists the versions of an operator, by level of vector instructions.
typedef void (*partFunc)(void *job, size_t part);
#ifdef X86
#define OPERATOR(f) \
	static TARGET_AVX2 void f##Avx2(void *data, size_t i) { f(data, i); } \
	static TARGET_AVX512 void f##Avx512(void *data, size_t i) { f(data, i); } \
	static const partFunc f##Versions[] = {f, f##Avx2, f##Avx512};
#else
#define OPERATOR(f) static const partFunc f##Versions[] = {f, f, f};
#endif

INLINE float sum(vec x) {
	half h[2];
	memcpy(h, &x, sizeof x);
	h[0] += h[1];
	quarter q[2];
	memcpy(q, h, sizeof q);
	q[0] += q[1];
	return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}

// larger returns max(x, y), and x where x is NaN.
INLINE vec larger(vec x, vec y) {
	ivec less = x < y;
	return (vec)((less & (ivec)y) | (~less & (ivec)x));
}

// expo returns e^x for x <= 88 with a relative error of 2e-7, and about 1e-38 for x < -87 (Cephes' expf, by Moshier).
INLINE vec expo(vec x) {
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

INLINE vec sigmoid(vec x) { return 1.f / (1.f + expo(-larger(x, all(-87)))); }

// biasGelu computes y = a sigmoid(a), a = x + b, for the inputs [x, b].
INLINE void biasGelu(void *data, size_t i) {
	const job *j = data;
	int64_t from, to, w = j->width;
	part(j, i, &from, &to);
	for (int64_t r = from; r < to; r++)
		for (int64_t c = 0; c < w; c += L) {
			vec a = load(j->in[0] + r * w + c) + load(j->in[1] + c);
			store(j->out[0] + r * w + c, a * sigmoid(a));
		}
}
OPERATOR(biasGelu)

// biasGeluGrad computes the gradient of biasGelu with respect to a, for the inputs [x, b, dy].
INLINE void biasGeluGrad(void *data, size_t i) {
	const job *j = data;
	int64_t from, to, w = j->width;
	part(j, i, &from, &to);
	for (int64_t r = from; r < to; r++)
		for (int64_t c = 0; c < w; c += L) {
			vec a = load(j->in[0] + r * w + c) + load(j->in[1] + c);
			vec s = sigmoid(a);
			store(j->out[0] + r * w + c, load(j->in[2] + r * w + c) * (s + a * s * (1.f - s)));
		}
}
OPERATOR(biasGeluGrad)

// normGrad computes the gradient of layer norm with respect to x, for the inputs [x, gain, mean, 1/deviation, dy].
INLINE void normGrad(void *data, size_t i) {
	const job *j = data;
	int64_t from, to, w = j->width;
	part(j, i, &from, &to);
	for (int64_t r = from; r < to; r++) {
		const float *x = j->in[0] + r * w, *gain = j->in[1], *dy = j->in[4] + r * w;
		float mean = j->in[2][r], inverse = j->in[3][r];
		vec plain = {0}, along = {0};
		for (int64_t c = 0; c < w; c += L) {
			vec g = load(dy + c) * load(gain + c);
			plain += g;
			along += g * (load(x + c) - mean);
		}
		float a = sum(plain) / w, b = sum(along) / w * inverse * inverse;
		for (int64_t c = 0; c < w; c += L)
			store(j->out[0] + r * w + c, (load(dy + c) * load(gain + c) - a - (load(x + c) - mean) * b) * inverse);
	}
}
OPERATOR(normGrad)

enum { GROUP = 4, WIDEST = 8 }; // rows that attention processes at once; vectors of the widest head

// head holds the pointers and strides of one head of attention.
typedef struct {
	const float *q, *key, *value, *dy;
	float *dq, *dkey, *dvalue, *y, *p;
	int64_t row, out, weights; // strides between rows of qkv, of results, of weights
	int64_t keys;
	float scale;
} head;

INLINE head headOf(const job *j, int64_t h, int64_t d, int backwards) {
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
INLINE void weigh(float *p, int64_t n, int64_t keys) {
	for (int64_t i = n; i < keys; i++)
		p[i] = -3e38f;
	float most = p[0];
	for (int64_t i = 1; i < n; i++)
		most = p[i] > most ? p[i] : most;
	vec total = {0};
	for (int64_t i = 0; i < keys; i += L) {
		vec e = expo(load(p + i) - most);
		store(p + i, e);
		total += e;
	}
	float inverse = 1 / sum(total);
	for (int64_t i = 0; i < keys; i += L)
		store(p + i, load(p + i) * inverse);
}

// scores computes p[i,k] = scale * x[i] · m[from+k] for some rows i of x and the rows [from,to) of m.
INLINE void scores(const float *x, int64_t next, int rows, const float *m, int64_t row, int64_t from, int64_t to,
	float scale, float *p, int64_t nextP, int blocks) {
	for (int64_t k = from; k < to; k++) {
		vec s[GROUP] = {0};
		for (int b = 0; b < blocks; b++) {
			vec v = load(m + row * k + L * b);
			for (int i = 0; i < rows; i++)
				s[i] += load(x + next * i + L * b) * v;
		}
		for (int i = 0; i < rows; i++)
			p[nextP * i + k - from] = sum(s[i]) * scale;
	}
}

// gather computes y[i] += sum over k of p[i,k] m[from+k] for some rows i of y and the rows [from,to) of m.
INLINE void gather(vec y[GROUP][WIDEST], int rows, const float *m, int64_t row, int64_t from, int64_t to,
	const float *p, int64_t nextP, int blocks) {
	for (int64_t k = from; k < to; k++)
		for (int b = 0; b < blocks; b++) {
			vec v = load(m + row * k + L * b);
			for (int i = 0; i < rows; i++)
				y[i][b] += p[nextP * i + k - from] * v;
		}
}

// spread computes m[from+k] += sum over i of p[i,k] x[i] for some rows i of x and the rows [from,to) of m.
INLINE void spread(const float *x, int64_t next, int rows, float *m, int64_t row, int64_t from, int64_t to,
	const float *p, int64_t nextP, int blocks) {
	for (int64_t k = from; k < to; k++)
		for (int b = 0; b < blocks; b++) {
			vec v = load(m + row * k + L * b);
			for (int i = 0; i < rows; i++)
				v += p[nextP * i + k - from] * load(x + next * i + L * b);
			store(m + row * k + L * b, v);
		}
}

// together returns GROUP if the GROUP rows from r on have the same first span, else 1.
INLINE int together(const job *j, int64_t r) {
	const int64_t *s = j->spans + 4 * r;
	int n = 1;
	while (n < GROUP && r + n < j->rows && s[4 * n] == s[0] && s[4 * n + 1] == s[1])
		n++;
	return n == GROUP ? GROUP : 1;
}

// attend computes attention of one head for some rows with the same first span: weights, and weighted sums of values.
INLINE void attend(const job *j, head h, int64_t r, int rows, int blocks) {
	const int64_t *s = j->spans + 4 * r;
	int64_t n = s[1] - s[0];
	float *p = h.p + h.weights * r;
	vec y[GROUP][WIDEST] = {0};
	scores(h.q + h.row * r, h.row, rows, h.key, h.row, s[0], s[1], h.scale, p, h.weights, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + 4 * i + 2;
		scores(h.q + h.row * (r + i), 0, 1, h.key, h.row, own[0], own[1], h.scale, p + h.weights * i + n, 0, blocks);
	}
	for (int i = 0; i < rows; i++)
		weigh(p + h.weights * i, n + s[4 * i + 3] - s[4 * i + 2], h.keys);
	gather(y, rows, h.value, h.row, s[0], s[1], p, h.weights, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + 4 * i + 2;
		gather(y + i, 1, h.value, h.row, own[0], own[1], p + h.weights * i + n, 0, blocks);
		for (int b = 0; b < blocks; b++)
			store(h.y + h.out * (r + i) + L * b, y[i][b]);
	}
}

// attendGrad computes the gradient of attend with respect to query, key and value; d has space for rows x keys numbers.
INLINE void attendGrad(const job *j, head h, int64_t r, int rows, int blocks, float *d) {
	const int64_t *s = j->spans + 4 * r;
	int64_t n = s[1] - s[0];
	const float *p = h.p + h.weights * r, *dy = h.dy + h.out * r, *q = h.q + h.row * r;
	vec dq[GROUP][WIDEST] = {0};
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
	gather(dq, rows, h.key, h.row, s[0], s[1], d, h.keys, blocks);
	spread(q, h.row, rows, h.dkey, h.row, s[0], s[1], d, h.keys, blocks);
	for (int i = 0; i < rows; i++) {
		const int64_t *own = s + 4 * i + 2;
		gather(dq + i, 1, h.key, h.row, own[0], own[1], d + h.keys * i + n, 0, blocks);
		spread(q + h.row * i, 0, 1, h.dkey, h.row, own[0], own[1], d + h.keys * i + n, 0, blocks);
		for (int b = 0; b < blocks; b++)
			store(h.dq + h.row * (r + i) + L * b, dq[i][b]);
	}
}

// eachRow goes over the rows of a head, several at a time where they share their first span.
INLINE void eachRow(const job *j, int64_t i, int blocks, int backwards) {
	head h = headOf(j, i, L * blocks, backwards);
	float d[GROUP * j->keys];
	if (backwards)
		for (int64_t r = 0; r < j->rows; r++)
			for (int b = 0; b < blocks; b++) {
				store(h.dkey + h.row * r + L * b, (vec){0});
				store(h.dvalue + h.row * r + L * b, (vec){0});
			}
	for (int64_t r = 0, n; r < j->rows; r += n) {
		n = together(j, r);
		if (backwards && n == GROUP) attendGrad(j, h, r, GROUP, blocks, d);
		else if (backwards) attendGrad(j, h, r, 1, blocks, d);
		else if (n == GROUP) attend(j, h, r, GROUP, blocks);
		else attend(j, h, r, 1, blocks);
	}
}

INLINE void eachHead(const job *j, size_t i, int backwards) {
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
INLINE void attention(void *data, size_t i) { eachHead(data, i, 0); }
OPERATOR(attention)

// attentionGrad computes the gradient of attention with respect to qkv, for the inputs [qkv, spans, weights, dy].
INLINE void attentionGrad(void *data, size_t i) { eachHead(data, i, 1); }
OPERATOR(attentionGrad)

// Attention over whole sequences, in which all rows attend to each other, stores no weights: the gradient recomputes
// them. The keys and values of each head are transposed, so that a vector holds one component of L keys.

// transposed copies n rows of blocks·L elements to blocks·L rows of keys elements, with zeros from the n-th on.
INLINE void transposed(const float *x, int64_t row, int64_t n, int64_t keys, float *to, int blocks) {
	for (int c = 0; c < L * blocks; c++) {
		for (int64_t k = 0; k < n; k++)
			to[keys * c + k] = x[row * k + c];
		memset(to + keys * c + n, 0, (keys - n) * sizeof *to);
	}
}

// tile computes p[i] = scale * x[i] t for some rows i of x and the first vectors·L columns of t [blocks·L,keys].
INLINE void tile(const float *x, int64_t next, int rows, const float *t, int64_t keys, float scale, float *p, int vectors,
	int blocks) {
	vec s[GROUP][2] = {0};
	for (int c = 0; c < L * blocks; c++)
		for (int v = 0; v < vectors; v++) {
			vec k = load(t + keys * c + L * v);
			for (int i = 0; i < rows; i++)
				s[i][v] += x[next * i + c] * k;
		}
	for (int i = 0; i < rows; i++)
		for (int v = 0; v < vectors; v++)
			store(p + keys * i + L * v, s[i][v] * scale);
}

// against does the same for all columns of t.
INLINE void against(const float *x, int64_t next, int rows, const float *t, int64_t keys, float scale, float *p,
	int blocks) {
	int64_t k = 0;
	for (; k + 2 * L <= keys; k += 2 * L)
		tile(x, next, rows, t + k, keys, scale, p + k, 2, blocks);
	if (k < keys)
		tile(x, next, rows, t + k, keys, scale, p + k, 1, blocks);
}

// ofRows computes some rows from r on of a sequence of n: their weighted sums of values, or (backwards) their part of
// the gradient. room holds the transposed keys and values, then the weights of the rows and the gradients of the weights.
INLINE void ofRows(head h, int64_t n, int64_t r, int rows, int blocks, int backwards, float *room) {
	int64_t keys = h.keys, all = L * blocks * keys;
	float *p = room + 2 * all, *d = p + GROUP * keys;
	vec y[GROUP][WIDEST] = {0};
	against(h.q + h.row * r, h.row, rows, room, keys, h.scale, p, blocks);
	for (int i = 0; i < rows; i++)
		weigh(p + keys * i, n, keys);
	if (!backwards)
		gather(y, rows, h.value, h.row, 0, n, p, keys, blocks);
	else {
		const float *dy = h.dy + h.out * r;
		against(dy, h.out, rows, room + all, keys, 1, d, blocks);
		spread(dy, h.out, rows, h.dvalue, h.row, 0, n, p, keys, blocks);
		for (int i = 0; i < rows; i++) {
			vec along = {0};
			for (int64_t k = 0; k < keys; k += L)
				along += load(p + keys * i + k) * load(d + keys * i + k);
			float a = sum(along);
			for (int64_t k = 0; k < keys; k += L)
				store(d + keys * i + k, load(p + keys * i + k) * (load(d + keys * i + k) - a) * h.scale);
		}
		gather(y, rows, h.key, h.row, 0, n, d, keys, blocks);
		spread(h.q + h.row * r, h.row, rows, h.dkey, h.row, 0, n, d, keys, blocks);
	}
	for (int i = 0; i < rows; i++)
		for (int b = 0; b < blocks; b++)
			store((backwards ? h.dq + h.row * (r + i) : h.y + h.out * (r + i)) + L * b, y[i][b]);
}

INLINE void eachSequence(const job *j, int64_t i, int blocks, int backwards, float *room) {
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

INLINE void eachHeadOfSequences(const job *j, size_t i, int backwards) {
	int64_t from, to, blocks = j->width / j->heads / L;
	part(j, i, &from, &to);
	for (; from < to; from++)
		if (blocks == 4)
			eachSequence(j, from, 4, backwards, j->room + i * j->roomOfPart);
		else
			eachSequence(j, from, blocks, backwards, j->room + i * j->roomOfPart);
}

// sequences computes self-attention of each sequence of j->length rows of qkv: weighted sums of values [rows,width].
INLINE void sequences(void *data, size_t i) { eachHeadOfSequences(data, i, 0); }
OPERATOR(sequences)

// sequencesGrad computes the gradient of sequences with respect to qkv, for the inputs [qkv, dy].
INLINE void sequencesGrad(void *data, size_t i) { eachHeadOfSequences(data, i, 1); }
OPERATOR(sequencesGrad)

// op is version 16 of ONNX Runtime's OrtCustomOp, followed by the fields that the functions here read.
typedef struct op {
	uint32_t version;
	void *create;
	const char *(*name)(const struct op *);
	const char *(*provider)(const struct op *);
	int (*inputType)(const struct op *, size_t);
	size_t (*inputs)(const struct op *);
	int (*outputType)(const struct op *, size_t);
	size_t (*outputs)(const struct op *);
	void *compute;
	void (*destroy)(void *);
	int (*inputKind)(const struct op *, size_t);
	int (*outputKind)(const struct op *, size_t);
	int (*inputMemory)(const struct op *, size_t);
	int (*leastVariadicIn)(const struct op *);
	int (*oneTypeIn)(const struct op *);
	int (*leastVariadicOut)(const struct op *);
	int (*oneTypeOut)(const struct op *);
	void *(*createState)(const struct op *, table, const void *, void **);
	void *(*computeState)(void *, void *);

	const char *called;
	size_t in, out;
	partFunc run;
	const partFunc *versions; // of run, by level
} op;

typedef struct {
	table t;
	const op *op;
	int64_t heads, keys, length;
	float scale;
} state;

static int level; // of vector instructions that this processor has

enum { LARGE = 1 << 21 }; // multiplications: runs with fewer take one thread, because waking others costs more

static void *wrong(table t, const char *message) {
	return ((void *(*)(int, const char *))t[CreateStatus])(2, message); // 2: invalid argument
}

static void *createState(const op *o, table t, const void *info, void **out) {
	state *s = calloc(1, sizeof *s);
	if (!s) return wrong(t, "out of memory");
	*s = (state){t, o, 1, 0, 0, 1};
	*out = s;
	if (o->run == product)
		return !formAt(level, 0) ? wrong(t, "product: this processor has no AVX2, AVX-512 or NEON") :
			((void *(*)(const void *, const char *, float *))t[KernelInfoGetAttribute_float])(info, "alpha", &s->scale);
	int spans = o->run == attention || o->run == attentionGrad;
	if (!spans && o->run != sequences && o->run != sequencesGrad) return NULL;
	void *(*get)(const void *, const char *, int64_t *) = (void *(*)(const void *, const char *, int64_t *))
		t[KernelInfoGetAttribute_int64];
	void *status = get(info, "heads", &s->heads);
	if (status) return status;
	return spans ? get(info, "keys", &s->keys) : get(info, "rows", &s->length);
}

enum { MOST = 8 }; // axes

// tensor reads data, rank and shape (padded with 1) of input i. It leaves data unchanged if the input is omitted.
static void *tensor(table t, void *context, size_t i, void **data, size_t *rankOf, int64_t shape[MOST]) {
	void *value = NULL, *info = NULL, *status;
	size_t rank = 0;
	for (size_t d = 0; d < MOST; d++)
		shape[d] = 1;
	status = ((void *(*)(void *, size_t, void **))t[KernelContext_GetInput])(context, i, &value);
	if (status || !value) return status;
	status = ((void *(*)(void *, void **))t[GetTensorMutableData])(value, data);
	if (!status) status = ((void *(*)(void *, void **))t[GetTensorTypeAndShape])(value, &info);
	if (!status) status = ((void *(*)(void *, size_t *))t[GetDimensionsCount])(info, &rank);
	if (!status && rank > MOST) status = wrong(t, "an input of rank above 8");
	if (!status) status = ((void *(*)(void *, int64_t *, size_t))t[GetDimensions])(info, shape, rank);
	if (info) ((void (*)(void *))t[ReleaseTensorTypeAndShapeInfo])(info);
	*rankOf = rank;
	return status;
}

static void *result(table t, void *context, size_t i, const int64_t *shape, size_t rank, float **data) {
	void *value = NULL;
	void *status = ((void *(*)(void *, size_t, const int64_t *, size_t, void **))t[KernelContext_GetOutput])(context, i,
		shape, rank, &value);
	return status ? status : ((void *(*)(void *, void **))t[GetTensorMutableData])(value, (void **)data);
}

static int64_t count(const int64_t s[MOST]) {
	int64_t n = 1;
	for (size_t d = 0; d < MOST; d++)
		n *= s[d];
	return n;
}

// computeState runs the parts of an operator. It first checks shapes and spans, because a graph may be wrong.
static void *computeState(void *data, void *context) {
	state *s = data;
	table t = s->t;
	const partFunc run = s->op->versions[level];
	job j = {.heads = s->heads, .keys = s->keys, .length = s->length, .scale = s->scale};
	int64_t shape[5][MOST];
	size_t rank[5];
	int attends = s->op->run == attention || s->op->run == attentionGrad;
	int whole = s->op->run == sequences || s->op->run == sequencesGrad, backwards = s->op->in > 1;
	for (size_t i = 0; i < s->op->in; i++) {
		void *p = NULL, *status = tensor(t, context, i, &p, &rank[i], shape[i]);
		if (status) return status;
		if (attends && i == 1) j.spans = p;
		else j.in[i] = p;
	}
	j.rows = shape[0][0];
	j.width = count(shape[0]) / (j.rows ? j.rows : 1);
	if (attends) {
		j.width /= 3;
		if (s->heads < 1 || s->keys < 1 || s->keys % L || s->keys > 4096 || count(shape[0]) != 3 * j.rows * j.width ||
			j.width % (s->heads * L) || j.width / (s->heads * L) > WIDEST || count(shape[1]) != 4 * j.rows ||
			(s->op->in == 4 && (count(shape[2]) != j.rows * s->heads * s->keys || count(shape[3]) != j.rows * j.width)))
			return wrong(t, "attention: shapes, heads and keys do not fit");
		for (int64_t r = 0; r < j.rows; r++) {
			const int64_t *p = j.spans + 4 * r;
			if (p[0] < 0 || p[0] > p[1] || p[1] > j.rows || p[2] < 0 || p[2] > p[3] || p[3] > j.rows ||
				p[1] - p[0] + p[3] - p[2] > s->keys || p[1] - p[0] + p[3] - p[2] < 1)
				return wrong(t, "attention: spans do not fit");
		}
		j.units = j.heads;
		j.parts = j.rows * s->keys * j.width < (s->op->run == attention ? LARGE : LARGE / 2) ? 1 : j.heads;
	} else if (whole) {
		j.width /= 3;
		if (s->heads < 1 || s->length < 1 || s->length > 4096 || j.rows % s->length || count(shape[0]) != 3 * j.rows * j.width ||
			j.width % (s->heads * L) || j.width / (s->heads * L) > WIDEST ||
			(backwards && count(shape[1]) != j.rows * j.width))
			return wrong(t, "attention of sequences: shapes, heads and rows do not fit");
		j.keys = (s->length + L - 1) / L * L;
		j.units = j.rows / s->length * j.heads;
		j.parts = j.rows * j.keys * j.width < LARGE ? 1 : j.units < 32 ? j.units : 32;
		j.roomOfPart = 2 * j.keys * (j.width / j.heads + GROUP);
		if (!(j.room = malloc((j.parts ? j.parts : 1) * j.roomOfPart * sizeof *j.room))) return wrong(t, "out of memory");
	} else if (s->op->run == product) {
		j.width = rank[0] ? shape[0][rank[0] - 1] : 0;
		j.rows = j.width ? count(shape[0]) / j.width : 0;
		j.columns = shape[1][0] * shape[1][2];
		for (size_t i = 0; (j.form = formAt(level, i)) && j.form->panel != shape[1][2]; i++)
			;
		if (j.width < 1 || shape[1][1] != j.width || !j.form || rank[1] != 3 ||
			(j.in[2] && count(shape[2]) != j.columns))
			return wrong(t, "product: shapes do not fit");
		j.units = shape[1][0];
		j.parts = j.rows * j.width * j.columns < LARGE ? 1 : j.units < 16 ? j.units : 16;
	} else {
		size_t last = s->op->in - 1;
		if (j.width % L || count(shape[1]) != j.width || (last > 1 && count(shape[last]) != count(shape[0])) ||
			(last == 4 && (count(shape[2]) != j.rows || count(shape[3]) != j.rows)))
			return wrong(t, "shapes do not fit");
		j.units = j.rows;
		j.parts = j.rows * j.width < LARGE / 16 ? 1 : 16;
	}
	int64_t out[2] = {j.rows, j.width}, weights[3] = {j.rows, s->heads, s->keys};
	if (s->op->run == attentionGrad || s->op->run == sequencesGrad) out[1] *= 3;
	if (s->op->run == product) shape[0][rank[0] - 1] = j.columns;
	void *status = s->op->run == product ? result(t, context, 0, shape[0], rank[0], &j.out[0]) :
		result(t, context, 0, out, 2, &j.out[0]);
	if (!status && s->op->run == attention) status = result(t, context, 1, weights, 3, &j.out[1]);
	if (!status && j.parts == 1) run(&j, 0);
	else if (!status)
		status = ((void *(*)(void *, void (*)(void *, size_t), size_t, size_t, void *))t[KernelContext_ParallelFor])(
			context, run, j.parts, 0, &j);
	free(j.room);
	return status;
}

static const char *name(const op *o) { return o->called; }
static const char *provider(const op *o) { return (void)o, "CPUExecutionProvider"; }
static int inputType(const op *o, size_t i) { // 1: float32, 7: int64
	return (o->run == attention || o->run == attentionGrad) && i == 1 ? 7 : 1;
}
static int outputType(const op *o, size_t i) { return (void)o, (void)i, 1; }
static size_t inputs(const op *o) { return o->in; }
static size_t outputs(const op *o) { return o->out; }
static int kind(const op *o, size_t i) { return o->run == product && i > 1; } // 0: required, 1: optional
static int required(const op *o, size_t i) { return (void)o, (void)i, 0; }
static int one(const op *o) { return (void)o, 1; }

#define OP(called, in, out, run) \
	{16, NULL, name, provider, inputType, inputs, outputType, outputs, NULL, free, kind, required, required, one, \
		one, one, one, createState, computeState, called, in, out, run, run##Versions}

static const partFunc productVersions[] = {product, product, product}; // j.form selects the version

static const op ops[] = {
	OP("BiasQuickGelu", 2, 1, biasGelu),
	OP("BiasQuickGeluGrad", 3, 1, biasGeluGrad),
	OP("LayerNormGrad", 5, 1, normGrad),
	OP("Attention", 2, 2, attention),
	OP("AttentionGrad", 4, 1, attentionGrad),
	OP("SequenceAttention", 1, 1, sequences),
	OP("SequenceAttentionGrad", 2, 1, sequencesGrad),
	OP("Product", 3, 1, product),
};

void *newDomain(table t, int ofProcessor, void **domain) {
	level = ofProcessor;
	void *status = ((void *(*)(const char *, void **))t[CreateCustomOpDomain])("promptfed", domain);
	for (size_t i = 0; !status && i < sizeof ops / sizeof *ops; i++)
		status = ((void *(*)(void *, const op *))t[CustomOpDomain_Add])(*domain, &ops[i]);
	return status;
}
