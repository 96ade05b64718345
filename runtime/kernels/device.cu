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

// Vectors of four numbers: widths are multiples of 16, and memory is aligned.
INSIDE float4 at(const float *p, long long i) { return ((const float4 *)p)[i]; }
INSIDE void put(float *p, long long i, float x, float y, float z, float w) {
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

// biasQuickGelu: a sigmoid(a), a = x + b, for [x, b].
KERNEL biasQuickGelu(task t) {
	long long n = t.width / 4;
	EACH_FOUR(i, t.rows * n) {
		float4 x = at(t.in[0], i), b = at(t.in[1], i % n);
		put(t.out[0], i, GELU(x.x, b.x), GELU(x.y, b.y), GELU(x.z, b.z), GELU(x.w, b.w));
	}
}

// biasQuickGeluGrad: its gradient with respect to a, for [x, b, dy].
KERNEL biasQuickGeluGrad(task t) {
	long long n = t.width / 4;
	EACH_FOUR(i, t.rows * n) {
		float4 x = at(t.in[0], i), b = at(t.in[1], i % n), dy = at(t.in[2], i);
		put(t.out[0], i, GELU_GRAD(x.x, b.x, dy.x), GELU_GRAD(x.y, b.y, dy.y), GELU_GRAD(x.z, b.z, dy.z),
			GELU_GRAD(x.w, b.w, dy.w));
	}
}

// addSameShape: x + y for [x, y] of any number of elements.
KERNEL addSameShape(task t) {
	EACH_FOUR(i, t.rows * t.width) t.out[0][i] = t.in[0][i] + t.in[1][i];
}

// addBiasSameShape: x + b + y for [x, b, y].
KERNEL addBiasSameShape(task t) {
	long long n = t.width / 4;
	EACH_FOUR(i, t.rows * n) {
		float4 x = at(t.in[0], i), b = at(t.in[1], i % n), y = at(t.in[2], i);
		put(t.out[0], i, x.x + b.x + y.x, x.y + b.y + y.y, x.z + b.z + y.z, x.w + b.w + y.w);
	}
}

// A block computes one row in each of the following kernels.
#define EACH_OF_ROW(c) for (int c = threadIdx.x; c < t.width; c += ROW_THREADS)

// layerNorm: layer norm for [x, gain, bias], mean and 1/deviation.
KERNEL layerNorm(task t) {
	const float *x = t.in[0] + t.width * blockIdx.x;
	float *y = t.out[0] + t.width * blockIdx.x, total = 0, squares = 0;
	EACH_OF_ROW(c) total += x[c];
	float mean = rowSum(total) / t.width;
	EACH_OF_ROW(c) squares += (x[c] - mean) * (x[c] - mean);
	float inverse = 1.f / sqrtf(rowSum(squares) / t.width + t.scale);
	EACH_OF_ROW(c) y[c] = (x[c] - mean) * inverse * t.in[1][c] + t.in[2][c];
	if (threadIdx.x == 0) t.out[1][blockIdx.x] = mean, t.out[2][blockIdx.x] = inverse;
}

// layerNormGrad: the gradient of layer norm with respect to x (+ plus), for [x, gain, mean, 1/deviation, dy, optional plus].
KERNEL layerNormGrad(task t) {
	const float *x = t.in[0] + t.width * blockIdx.x, *gain = t.in[1], *dy = t.in[4] + t.width * blockIdx.x;
	float *out = t.out[0] + t.width * blockIdx.x, mean = t.in[2][blockIdx.x], inverse = t.in[3][blockIdx.x];
	float plain = 0, along = 0;
	EACH_OF_ROW(c) {
		float g = dy[c] * gain[c];
		plain += g;
		along += g * (x[c] - mean);
	}
	float a = rowSum(plain) / t.width, b = rowSum(along) / t.width * inverse * inverse;
	EACH_OF_ROW(c) {
		float d = (dy[c] * gain[c] - a - (x[c] - mean) * b) * inverse;
		out[c] = t.in[5] ? d + t.in[5][t.width * blockIdx.x + c] : d;
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
KERNEL crossEntropy(task t) {
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

INSIDE float dot(const float *x, const float *y, int width) {
	float sum = 0;
	for (int i = 0; i < width / 4; i++) {
		float4 a = at(x, i), b = at(y, i);
		sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
	}
	return sum;
}

// gathered adds the rows that a query attends to, times p, in an element.
INSIDE float gathered(const float *m, long long stride, const long long *s, const float *p, int n) {
	float sum = 0;
	for (int k = 0; k < n; k++)
		sum += p[k] * m[stride * keyRow(s, k)];
	return sum;
}

// attention: for [qkv, spans], sums of values and weights. A warp computes one head of one query.
KERNEL attention(task t) {
	ROOM(room); // t.keys numbers for each warp
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, width = (int)(t.width / t.heads);
	long long i = (long long)blockIdx.x * (blockDim.x / WARP) + warp, stride = 3 * t.width;
	if (i >= t.queries * t.heads) return;
	const long long *s = t.spans + 5 * (i / t.heads);
	const float *head = t.in[0] + i % t.heads * width;
	float *p = room + t.keys * warp, *y = t.out[0] + t.width * (i / t.heads) + i % t.heads * width;
	float most = -INFINITY, total = 0, scale = 1.f / sqrtf((float)width);
	int n = keysOf(&t, s);
	for (int k = lane; k < n; k += WARP) {
		p[k] = dot(head + stride * s[4], head + stride * keyRow(s, k) + t.width, width) * scale;
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
		y[c] = gathered(head + 2 * t.width + c, stride, s, p, n);
}

// queryGrad computes the gradient of the query of a row in one head, by one warp with room for t.keys numbers. The
// weights' gradient is p (dy·v - Σ p dy·v).
INSIDE void queryGrad(const task *t, long long r, const float *head, long long h, float *room, float *to) {
	int lane = threadIdx.x % WARP, width = (int)(t->width / t->heads), n = 0;
	long long stride = 3 * t->width;
	const long long *s = t->spans + 5 * r;
	if (r >= 0 && r < t->queries) n = keysOf(t, s);
	const float *p = t->in[2] + (t->heads * r + h) * t->keys, *dy = t->in[3] + t->width * r + h * width;
	float along = 0, scale = 1.f / sqrtf((float)width);
	for (int k = lane; k < n; k += WARP) {
		room[k] = dot(dy, head + stride * keyRow(s, k) + 2 * t->width, width);
		along += p[k] * room[k];
	}
	along = warpSum(along);
	for (int k = lane; k < n; k += WARP) room[k] = p[k] * (room[k] - along) * scale;
	__syncwarp();
	for (int c = lane; c < width; c += WARP) to[c] = gathered(head + t->width + c, stride, s, room, n);
}

// attentionGrad: the gradient of attention with respect to qkv, for [qkv, spans, weights, dy, y, asked]. A block computes
// one head of one row: its first warp the row's query, the others key and value, over the queries that attend to it. Of
// these, Σ p dy·v is dy·y.
KERNEL attentionGrad(task t) {
	ROOM(room); // of the first warp; then 2 heads' width for each of the others
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, others = KEY_THREADS / WARP - 1;
	int width = (int)(t.width / t.heads);
	long long j = blockIdx.x / t.heads, h = blockIdx.x % t.heads, stride = 3 * t.width;
	const float *head = t.in[0] + h * width, *value = head + stride * j + 2 * t.width;
	float *sums = room + t.keys, *out = t.out[0] + stride * j + h * width;
	if (warp == 0)
		queryGrad(&t, t.asked[ASKED * j + 2], head, h, room, out);
	else {
		float key[PER_LANE] = {0}, values[PER_LANE] = {0}, scale = 1.f / sqrtf((float)width);
		long long to = t.asked[ASKED * j + 1] < t.queries ? t.asked[ASKED * j + 1] : t.queries;
		for (long long r = (t.asked[ASKED * j] > 0 ? t.asked[ASKED * j] : 0) + warp - 1; r < to; r += others) {
			const long long *s = t.spans + 5 * r;
			long long first = s[1] - s[0], k = j >= s[0] && j < s[1] ? j - s[0] : j >= s[2] && j < s[3] ? first + j - s[2] : -1;
			if (k < 0 || !keysOf(&t, s)) continue;
			const float *dy = t.in[3] + t.width * r + h * width, *y = t.in[4] + t.width * r + h * width;
			const float *query = head + stride * s[4];
			float p = t.in[2][(t.heads * r + h) * t.keys + k], g = 0;
			for (int i = 0, c = lane; i < PER_LANE && c < width; i++, c += WARP) g += dy[c] * (value[c] - y[c]);
			g = warpSum(g) * p * scale;
			for (int i = 0, c = lane; i < PER_LANE && c < width; i++, c += WARP) {
				key[i] += g * query[c];
				values[i] += p * dy[c];
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
		out[t.width * (1 + c / width) + c % width] = total;
	}
}
