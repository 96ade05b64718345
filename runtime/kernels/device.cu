// The operators of operators.h for a CUDA device, where each costs one start. Sums have a fixed order. generate.sh writes
// device.ptx, which the driver compiles for its device. emulate.h runs this file on a CPU.
#include "device.h"

// The largest width of a head is PER_LANE times the threads of a warp.
enum { PER_LANE = 4 };

INSIDE float warpSum(float x) {
	for (int other = WARP / 2; other > 0; other /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, other);
	return x;
}

INSIDE float warpMax(float x) {
	for (int other = WARP / 2; other > 0; other /= 2)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, other));
	return x;
}

// rowSum adds x of the ROW_THREADS threads of a block.
INSIDE float rowSum(float x) {
	__shared__ float parts[ROW_THREADS / WARP];
	x = warpSum(x);
	__syncthreads(); // nobody reads the parts of an earlier sum any more
	if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = x;
	__syncthreads();
	return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

INSIDE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// Numbers of float32 (type 0), FLOAT16 or BFLOAT16, one or four at a time: widths are multiples of 16, and memory is
// aligned.
INSIDE float widened(unsigned bits, int type) { return type == FLOAT16 ? HALF(bits) : __uint_as_float(bits << 16); }

INSIDE unsigned narrowed(float x, int type) {
	unsigned bits = __float_as_uint(x);
	if (type == FLOAT16) return TO_HALF(x);
	return x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff; // to the nearest even number
}

INSIDE float one(const void *p, long long i, int type) {
	return type ? widened(((const unsigned short *)p)[i], type) : ((const float *)p)[i];
}

INSIDE void putOne(void *p, long long i, float x, int type) {
	if (type) ((unsigned short *)p)[i] = (unsigned short)narrowed(x, type);
	else ((float *)p)[i] = x;
}

INSIDE float4 four(const void *p, long long i, int type) {
	if (!type) return ((const float4 *)p)[i];
	uint2 bits = ((const uint2 *)p)[i];
	float4 v;
	v.x = widened(bits.x & 0xffff, type), v.y = widened(bits.x >> 16, type);
	v.z = widened(bits.y & 0xffff, type), v.w = widened(bits.y >> 16, type);
	return v;
}

INSIDE void putFour(void *p, long long i, float x, float y, float z, float w, int type) {
	if (type) {
		uint2 bits;
		bits.x = narrowed(x, type) | narrowed(y, type) << 16, bits.y = narrowed(z, type) | narrowed(w, type) << 16;
		((uint2 *)p)[i] = bits;
		return;
	}
	float4 v;
	v.x = x, v.y = y, v.z = z, v.w = w;
	((float4 *)p)[i] = v;
}

// EACH_FOUR goes over the four numbers i of all rows that fall to this thread.
#define EACH_FOUR(i, n) for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
	i += (long long)gridDim.x * blockDim.x)
#define GELU(x, b) ((x + b) * sigmoid(x + b))
#define GELU_GRAD(x, b, dy) geluGrad(x + b, dy)

INSIDE float geluGrad(float a, float dy) {
	float s = sigmoid(a);
	return dy * (s + a * s * (1.f - s));
}

// biasQuickGelu: a sigmoid(a), a = x + b, for [x, b]. x and the result may be of lower precision.
KERNEL biasQuickGelu(task t) {
	long long n = t.width / 4;
	EACH_FOUR(i, t.rows * n) {
		float4 x = four(t.in[0], i, t.low), b = four(t.in[1], i % n, 0);
		putFour(t.out[0], i, GELU(x.x, b.x), GELU(x.y, b.y), GELU(x.z, b.z), GELU(x.w, b.w), t.low);
	}
}

// biasQuickGeluGrad: its gradient with respect to a, for [x, b, dy]. x, dy and the result may be of lower precision.
KERNEL biasQuickGeluGrad(task t) {
	long long n = t.width / 4;
	EACH_FOUR(i, t.rows * n) {
		float4 x = four(t.in[0], i, t.low), b = four(t.in[1], i % n, 0), dy = four(t.in[2], i, t.low);
		putFour(t.out[0], i, GELU_GRAD(x.x, b.x, dy.x), GELU_GRAD(x.y, b.y, dy.y), GELU_GRAD(x.z, b.z, dy.z),
			GELU_GRAD(x.w, b.w, dy.w), t.low);
	}
}

// addSameShape: x + y for [x, y] of any number of elements.
KERNEL addSameShape(task t) {
	EACH_FOUR(i, t.rows * t.width) t.out[0][i] = t.in[0][i] + t.in[1][i];
}

// addBiasSameShape: x + b + y for [x, b, y]. x may be of lower precision.
KERNEL addBiasSameShape(task t) {
	long long n = t.width / 4;
	EACH_FOUR(i, t.rows * n) {
		float4 x = four(t.in[0], i, t.low), b = four(t.in[1], i % n, 0), y = four(t.in[2], i, 0);
		putFour(t.out[0], i, x.x + b.x + y.x, x.y + b.y + y.y, x.z + b.z + y.z, x.w + b.w + y.w, 0);
	}
}

// A block computes one row in each of the following kernels.
#define EACH_OF_ROW(c) for (int c = threadIdx.x; c < t.width; c += ROW_THREADS)

// layerNorm: layer norm for [x, gain, bias], which may be of lower precision, mean and 1/deviation.
KERNEL layerNorm(task t) {
	const float *x = t.in[0] + t.width * blockIdx.x;
	float total = 0, squares = 0;
	EACH_OF_ROW(c) total += x[c];
	float mean = rowSum(total) / t.width;
	EACH_OF_ROW(c) squares += (x[c] - mean) * (x[c] - mean);
	float inverse = 1.f / sqrtf(rowSum(squares) / t.width + t.scale);
	EACH_OF_ROW(c)
		putOne(t.out[0], t.width * blockIdx.x + c, (x[c] - mean) * inverse * t.in[1][c] + t.in[2][c], t.low);
	if (threadIdx.x == 0) t.out[1][blockIdx.x] = mean, t.out[2][blockIdx.x] = inverse;
}

// layerNormGrad: the gradient of layer norm with respect to x (+ plus), for [x, gain, mean, 1/deviation, dy, optional
// plus]. dy may be of lower precision. The second output is the first one in lower precision.
KERNEL layerNormGrad(task t) {
	long long row = t.width * blockIdx.x;
	const float *x = t.in[0] + row, *gain = t.in[1];
	float mean = t.in[2][blockIdx.x], inverse = t.in[3][blockIdx.x], plain = 0, along = 0;
	EACH_OF_ROW(c) {
		float g = one(t.in[4], row + c, t.low) * gain[c];
		plain += g;
		along += g * (x[c] - mean);
	}
	float a = rowSum(plain) / t.width, b = rowSum(along) / t.width * inverse * inverse;
	EACH_OF_ROW(c) {
		float d = (one(t.in[4], row + c, t.low) * gain[c] - a - (x[c] - mean) * b) * inverse;
		if (t.in[5]) d += t.in[5][row + c];
		t.out[0][row + c] = d;
		if (t.low) putOne(t.out[1], row + c, d, t.low);
	}
}

// l2Normalize: rows of [x] divided by their norm, and 1/norm.
KERNEL l2Normalize(task t) {
	const float *x = t.in[0] + t.width * blockIdx.x;
	float squares = 0;
	EACH_OF_ROW(c) squares += x[c] * x[c];
	float inverse = 1.f / sqrtf(rowSum(squares) + 1e-30f);
	EACH_OF_ROW(c) t.out[0][t.width * blockIdx.x + c] = x[c] * inverse;
	if (threadIdx.x == 0) t.out[1][blockIdx.x] = inverse;
}

// l2NormalizeGrad: its gradient for [y, 1/norm, dy].
KERNEL l2NormalizeGrad(task t) {
	const float *y = t.in[0] + t.width * blockIdx.x, *dy = t.in[2] + t.width * blockIdx.x;
	float along = 0;
	EACH_OF_ROW(c) along += y[c] * dy[c];
	float a = rowSum(along), inverse = t.in[1][blockIdx.x];
	EACH_OF_ROW(c) t.out[0][t.width * blockIdx.x + c] = (dy[c] - y[c] * a) * inverse;
}

// crossEntropy: the mean over rows of -log softmax(x)[label], and its gradient, by one block. A label that is no class
// makes the loss NaN.
KERNEL ALL_THREADS crossEntropy(task t) {
	__shared__ float losses[LABEL_THREADS / WARP];
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	float loss = 0;
	for (long long r = warp; r < t.rows; r += LABEL_THREADS / WARP) {
		const float *x = t.in[0] + t.width * r;
		float *d = t.out[1] + t.width * r, most = x[0], total = 0;
		long long label = t.labels[r];
		for (int c = lane; c < t.width; c += WARP) most = fmaxf(most, x[c]);
		most = warpMax(most);
		for (int c = lane; c < t.width; c += WARP) total += expf(x[c] - most);
		total = warpSum(total);
		for (int c = lane; c < t.width; c += WARP) d[c] = (expf(x[c] - most) / total - (c == label)) / t.rows;
		loss += label >= 0 && label < t.width ? logf(total) + most - x[label] : NAN;
	}
	if (lane == 0) losses[warp] = loss;
	__syncthreads();
	loss = warpSum(losses[lane]);
	if (threadIdx.x == 0) t.out[0][0] = loss / t.rows;
}

// keysOf returns how many rows a query attends to, none where its spans do not fit.
INSIDE int keysOf(const task *t, const long long *s) {
	long long n = s[1] - s[0] + s[3] - s[2];
	int fits = s[0] >= 0 && s[0] <= s[1] && s[1] <= t->rows && s[2] >= 0 && s[2] <= s[3] && s[3] <= t->rows &&
		n <= t->keys && s[4] >= 0 && s[4] < t->rows;
	return fits ? (int)n : 0;
}

INSIDE long long keyRow(const long long *s, int k) { return k < s[1] - s[0] ? s[0] + k : s[2] + k - (s[1] - s[0]); }

// dot multiplies two rows from the i-th and the k-th number on.
INSIDE float dot(const void *x, long long i, const void *y, long long k, int width, int type) {
	float sum = 0;
	for (int c = 0; c < width / 4; c++) {
		float4 a = four(x, i / 4 + c, type), b = four(y, k / 4 + c, type);
		sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
	}
	return sum;
}

// gathered adds number i of the rows that a query attends to, times p.
INSIDE float gathered(const task *t, long long i, const long long *s, const float *p, int n) {
	float sum = 0;
	for (int k = 0; k < n; k++)
		sum += p[k] * one(t->in[0], i + 3 * t->width * keyRow(s, k), t->low);
	return sum;
}

// attention: for [qkv, spans], sums of values and weights. A warp computes one head of one query. qkv and sums may be of
// lower precision.
KERNEL attention(task t) {
	ROOM(room); // t.keys numbers for each warp
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, width = (int)(t.width / t.heads);
	long long i = (long long)blockIdx.x * (blockDim.x / WARP) + warp, stride = 3 * t.width;
	if (i >= t.queries * t.heads) return;
	const long long *s = t.spans + 5 * (i / t.heads);
	long long head = i % t.heads * width, key = head + t.width, value = key + t.width;
	float *p = room + t.keys * warp, most = -INFINITY, total = 0, scale = 1.f / sqrtf((float)width);
	int n = keysOf(&t, s);
	for (int k = lane; k < n; k += WARP) {
		p[k] = dot(t.in[0], head + stride * s[4], t.in[0], key + stride * keyRow(s, k), width, t.low) * scale;
		most = fmaxf(most, p[k]);
	}
	most = warpMax(most);
	for (int k = lane; k < n; k += WARP) {
		p[k] = expf(p[k] - most);
		total += p[k];
	}
	total = warpSum(total);
	for (int k = lane; k < t.keys; k += WARP) {
		if (k < n) p[k] /= total;
		t.out[1][t.keys * i + k] = k < n ? p[k] : 0;
	}
	__syncwarp();
	for (int c = lane; c < width; c += WARP)
		putOne(t.out[0], t.width * (i / t.heads) + head + c, gathered(&t, value + c, s, p, n), t.low);
}

// queryGrad computes the gradient of the query of row j in one head, which begins at a number of a row, by one warp with
// room for t.keys numbers. The weights' gradient is p (dy·v - Σ p dy·v).
INSIDE void queryGrad(const task *t, long long j, long long head, float *room) {
	int lane = threadIdx.x % WARP, width = (int)(t->width / t->heads), n = 0;
	long long r = t->asked[ASKED * j + 2], stride = 3 * t->width;
	const long long *s = t->spans + 5 * r;
	if (r >= 0 && r < t->queries) n = keysOf(t, s);
	const float *p = t->in[2] + (t->heads * r + head / width) * t->keys;
	float along = 0, scale = 1.f / sqrtf((float)width);
	for (int k = lane; k < n; k += WARP) {
		long long value = head + 2 * t->width + stride * keyRow(s, k);
		room[k] = dot(t->in[3], t->width * r + head, t->in[0], value, width, t->low);
		along += p[k] * room[k];
	}
	along = warpSum(along);
	for (int k = lane; k < n; k += WARP) room[k] = p[k] * (room[k] - along) * scale;
	__syncwarp();
	for (int c = lane; c < width; c += WARP)
		putOne(t->out[0], stride * j + head + c, gathered(t, head + t->width + c, s, room, n), t->low);
}

// attentionGrad: the gradient of attention with respect to qkv, for [qkv, spans, weights, dy, y, asked]. A block computes
// one head of one row: its first warp the row's query, the others key and value, over the queries that attend to it. Of
// these, Σ p dy·v is dy·y. All but the weights may be of lower precision.
KERNEL attentionGrad(task t) {
	ROOM(room); // of the first warp; then 2 heads' width for each of the others
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, others = KEY_THREADS / WARP - 1;
	int width = (int)(t.width / t.heads);
	long long j = blockIdx.x / t.heads, h = blockIdx.x % t.heads, head = h * width, stride = 3 * t.width;
	float *sums = room + t.keys;
	if (warp == 0)
		queryGrad(&t, j, head, room);
	else {
		float key[PER_LANE] = {0}, values[PER_LANE] = {0}, own[PER_LANE] = {0}, scale = 1.f / sqrtf((float)width);
		for (int i = 0, c = lane; i < PER_LANE && c < width; i++, c += WARP)
			own[i] = one(t.in[0], stride * j + 2 * t.width + head + c, t.low);
		long long to = t.asked[ASKED * j + 1] < t.queries ? t.asked[ASKED * j + 1] : t.queries;
		for (long long r = (t.asked[ASKED * j] > 0 ? t.asked[ASKED * j] : 0) + warp - 1; r < to; r += others) {
			const long long *s = t.spans + 5 * r;
			long long first = s[1] - s[0], k = j >= s[0] && j < s[1] ? j - s[0] : j >= s[2] && j < s[3] ? first + j - s[2] : -1;
			if (k < 0 || !keysOf(&t, s)) continue;
			long long at = t.width * r + head, query = stride * s[4] + head;
			float p = t.in[2][(t.heads * r + h) * t.keys + k], g = 0, dy[PER_LANE] = {0};
			for (int i = 0, c = lane; i < PER_LANE && c < width; i++, c += WARP) {
				dy[i] = one(t.in[3], at + c, t.low);
				g += dy[i] * (own[i] - one(t.in[4], at + c, t.low));
			}
			g = warpSum(g) * p * scale;
			for (int i = 0, c = lane; i < PER_LANE && c < width; i++, c += WARP) {
				key[i] += g * one(t.in[0], query + c, t.low);
				values[i] += p * dy[i];
			}
		}
		for (int i = 0, c = lane; i < PER_LANE && c < width; i++, c += WARP) {
			sums[2 * width * (warp - 1) + c] = key[i];
			sums[2 * width * (warp - 1) + width + c] = values[i];
		}
	}
	__syncthreads();
	for (int c = threadIdx.x; c < 2 * width; c += KEY_THREADS) {
		float total = 0;
		for (int i = 0; i < others; i++) total += sums[2 * width * i + c];
		putOne(t.out[0], stride * j + head + t.width * (1 + c / width) + c % width, total, t.low);
	}
}
