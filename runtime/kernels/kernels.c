// The operators of the domain "promptfed", as ONNX Runtime sees them: states, checks of shapes and spans, and parts of a
// run for its threads, or a launch on a CUDA device.
#include "kernels.h"
#include "device.h"
#include <stdio.h>

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
	int kind;             // index of its function
	const char *onDevice; // its kernel in device.cu; NULL for an operator of the CPU alone
	int low;              // lower precision of some inputs and outputs, or 0
} op;

// device is the domain of a CUDA device. Its operators compute on the provider that it names.
static struct {
	driver of;
	const char *provider;
	op ops[48];
	char names[48][40];
	void *kernels[16];
} device;

typedef struct {
	table t;
	const op *op;
	int64_t heads, keys, length;
	float scale;
} state;

static int level; // of vector instructions that this processor has

#ifdef X86
static const partFunc *const operators[] = {plainOperators, avx2Operators, avx512Operators};
#else
static const partFunc *const operators[] = {plainOperators, plainOperators, plainOperators};
#endif

enum { LARGE = 1 << 21 }; // multiplications: runs with fewer take one thread, because waking others costs more

static void *wrong(table t, const char *message) {
	return ((void *(*)(int, const char *))t[CreateStatus])(2, message); // 2: invalid argument
}

static void *createState(const op *o, table t, const void *info, void **out) {
	state *s = calloc(1, sizeof *s);
	if (!s) return wrong(t, "out of memory");
	*s = (state){t, o, 1, 0, 0, 1};
	*out = s;
	if (o->kind == PRODUCT && !formAt(level, 0)) return wrong(t, "product: this processor has no AVX2, AVX-512 or NEON");
	if (o->kind == PRODUCT || o->kind == NORM)
		return ((void *(*)(const void *, const char *, float *))t[KernelInfoGetAttribute_float])(info,
			o->kind == NORM ? "epsilon" : "alpha", &s->scale);
	int spans = o->kind == ATTENTION || o->kind == ATTENTION_GRAD;
	if (!spans && o->kind != SEQUENCES && o->kind != SEQUENCES_GRAD) return NULL;
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

static const char *provider(const op *o) { return (void)o, "CPUExecutionProvider"; }
static const char *deviceProvider(const op *o) { return (void)o, device.provider; }

static int isInt(const op *o, size_t i) {
	int attends = o->kind == ATTENTION || o->kind == ATTENTION_GRAD;
	return ((attends || o->kind == CROSS_ENTROPY) && i == 1) || (attends && i == (o->kind == ATTENTION ? 2 : 5));
}

enum { SOME_BLOCKS = 4096, SHARED_NUMBERS = 12288 }; // of a grid that goes on to further elements; of the oldest devices

// launch starts the kernel of an operator in the stream of its run.
static void *launch(const state *s, const job *j, void *context) {
	task t = {.rows = j->rows, .width = j->width, .queries = j->queries, .heads = j->heads, .keys = j->keys,
		.scale = j->scale, .low = s->op->low, .spans = (const long long *)j->spans, .labels = (const long long *)j->labels,
		.asked = (const long long *)j->asked};
	for (size_t i = 0; i < 6; i++)
		t.in[i] = j->in[i];
	for (size_t i = 0; i < 3; i++)
		t.out[i] = j->out[i];
	int64_t blocks = j->rows, threads = ROW_THREADS, shared = 0;
	switch (s->op->kind) {
	case CROSS_ENTROPY: blocks = 1, threads = LABEL_THREADS; break;
	case ATTENTION: // fewer warps share a block where they need much room
		for (threads = 4 * WARP; threads / WARP * j->keys > SHARED_NUMBERS; threads /= 2)
			;
		blocks = (j->queries * j->heads + threads / WARP - 1) / (threads / WARP), shared = threads / WARP * j->keys;
		break;
	case ATTENTION_GRAD:
		blocks = j->rows * j->heads, threads = KEY_THREADS;
		shared = j->keys + 2 * (KEY_THREADS / WARP - 1) * (j->width / j->heads);
		break;
	case BIAS_GELU: case BIAS_GELU_GRAD: case ADD_BIAS: case ADD_SAME_SHAPE:
		blocks = (j->rows * j->width / (s->op->kind == ADD_SAME_SHAPE ? 1 : 4) + threads - 1) / threads;
		blocks = blocks < SOME_BLOCKS ? blocks : SOME_BLOCKS;
	}
	void *stream = NULL, *status = NULL, *parameters[] = {&t};
	if (blocks < 1) return NULL;
	status = ((void *(*)(const void *, void **))s->t[KernelContext_GetGPUComputeStream])(context, &stream);
	if (status) return status;
	int error = device.of.launch(device.kernels[s->op->kind], blocks, 1, 1, threads, 1, 1, shared * sizeof(float), stream,
		parameters, NULL);
	return error ? wrong(s->t, "CUDA's driver refuses to start a kernel of promptfed") : NULL;
}

// computeState runs the parts of an operator. It first checks shapes and spans, because a graph may be wrong.
static void *computeState(void *data, void *context) {
	state *s = data;
	table t = s->t;
	const partFunc run = s->op->kind < DEVICE_ALONE ? operators[level][s->op->kind] : NULL;
	job j = {.heads = s->heads, .keys = s->keys, .length = s->length, .scale = s->scale};
	int64_t shape[6][MOST];
	size_t rank[6];
	int attends = s->op->kind == ATTENTION || s->op->kind == ATTENTION_GRAD;
	int whole = s->op->kind == SEQUENCES || s->op->kind == SEQUENCES_GRAD, backwards = s->op->in > 1;
	int onDevice = s->op->provider != provider; // numbers there cannot be read
	for (size_t i = 0; i < s->op->in; i++) {
		void *p = NULL, *status = tensor(t, context, i, &p, &rank[i], shape[i]);
		if (status) return status;
		if (!isInt(s->op, i)) j.in[i] = p;
		else if (s->op->kind == CROSS_ENTROPY) j.labels = p;
		else if (i == 1) j.spans = p;
		else j.asked = p;
	}
	j.width = rank[0] ? shape[0][rank[0] - 1] : 1;
	j.rows = j.width ? count(shape[0]) / j.width : 0;
	if (attends) {
		j.width /= 3, j.queries = shape[1][0];
		if (s->heads < 1 || s->keys < 1 || s->keys % L || s->keys > 4096 || rank[0] != 2 || shape[0][1] != 3 * j.width ||
			j.width % (s->heads * L) || j.width / (s->heads * L) > WIDEST || count(shape[1]) != SPANS * j.queries ||
			(s->op->kind == ATTENTION_GRAD && (count(shape[2]) != j.queries * s->heads * s->keys ||
				count(shape[3]) != j.queries * j.width)) ||
			(onDevice && s->op->kind == ATTENTION_GRAD && (!j.in[4] || count(shape[4]) != j.queries * j.width ||
				!j.asked || count(shape[5]) != ASKED * j.rows)))
			return wrong(t, "attention: shapes, heads and keys do not fit");
		for (int64_t r = 0; r < j.queries && !onDevice; r++) {
			const int64_t *p = j.spans + SPANS * r;
			if (p[0] < 0 || p[0] > p[1] || p[1] > j.rows || p[2] < 0 || p[2] > p[3] || p[3] > j.rows ||
				p[1] - p[0] + p[3] - p[2] > s->keys || p[1] - p[0] + p[3] - p[2] < 1 || p[4] < 0 || p[4] >= j.rows)
				return wrong(t, "attention: spans do not fit");
		}
		j.units = j.heads;
		j.parts = j.queries * s->keys * j.width < (s->op->kind == ATTENTION ? LARGE : LARGE / 2) ? 1 : j.heads;
	} else if (whole) {
		j.width /= 3;
		if (s->heads < 1 || s->length < 1 || s->length > 4096 || j.rows % s->length || rank[0] != 2 ||
			shape[0][1] != 3 * j.width ||
			j.width % (s->heads * L) || j.width / (s->heads * L) > WIDEST ||
			(backwards && count(shape[1]) != j.rows * j.width))
			return wrong(t, "attention of sequences: shapes, heads and rows do not fit");
		j.keys = (s->length + L - 1) / L * L;
		j.units = j.rows / s->length * j.heads;
		j.parts = j.rows * j.keys * j.width < LARGE ? 1 : j.units < 32 ? j.units : 32;
		j.roomOfPart = 2 * j.keys * (j.width / j.heads + GROUP);
		if (!(j.room = malloc((j.parts ? j.parts : 1) * j.roomOfPart * sizeof *j.room))) return wrong(t, "out of memory");
	} else if (s->op->kind == PRODUCT) {
		j.columns = shape[1][0] * shape[1][2];
		for (size_t i = 0; (j.form = formAt(level, i)) && j.form->panel != shape[1][2]; i++)
			;
		if (j.width < 1 || shape[1][1] != j.width || !j.form || rank[0] < 1 || rank[1] != 3 ||
			(j.in[2] && count(shape[2]) != j.columns) || (j.in[3] && count(shape[3]) != j.rows * j.columns))
			return wrong(t, "product: shapes do not fit");
		j.units = shape[1][0];
		j.parts = j.rows * j.width * j.columns < LARGE ? 1 : j.units < 16 ? j.units : 16;
	} else if (s->op->kind == CROSS_ENTROPY) {
		if (rank[0] != 2 || count(shape[1]) != j.rows) return wrong(t, "cross entropy: shapes do not fit");
		for (int64_t r = 0; r < j.rows && !onDevice; r++)
			if (j.labels[r] < 0 || j.labels[r] >= j.width) return wrong(t, "cross entropy: a label is no class");
		j.parts = 1;
	} else {
		int64_t all = count(shape[0]);
		int fits = s->op->kind == ADD_SAME_SHAPE || j.width % L == 0; // other inputs fit too
		switch (s->op->kind) {
		case ADD_SAME_SHAPE: fits = fits && count(shape[1]) == all; break;
		case L2_NORMALIZE_GRAD: fits = fits && count(shape[1]) == j.rows && count(shape[2]) == all; break;
		case BIAS_GELU_GRAD: fits = fits && count(shape[2]) == all; // fall through
		case BIAS_GELU: fits = fits && count(shape[1]) == j.width; break;
		case ADD_BIAS: fits = fits && count(shape[1]) == j.width && count(shape[2]) == all; break;
		case NORM: fits = fits && count(shape[1]) == j.width && count(shape[2]) == j.width; break;
		case NORM_GRAD: fits = fits && count(shape[1]) == j.width && count(shape[2]) == j.rows &&
			count(shape[3]) == j.rows && count(shape[4]) == all && (!j.in[5] || count(shape[5]) == all);
		}
		if (!fits) return wrong(t, "shapes do not fit");
		j.units = j.rows;
		j.parts = j.rows * j.width < LARGE / 16 ? 1 : 16;
	}
	int64_t weights[3] = {j.queries, s->heads, s->keys};
	if (s->op->kind == ATTENTION) shape[0][0] = j.queries;
	if (s->op->kind == ATTENTION || s->op->kind == SEQUENCES) shape[0][rank[0] - 1] = j.width;
	if (s->op->kind == PRODUCT) shape[0][rank[0] - 1] = j.columns;
	void *status = result(t, context, 0, shape[0], s->op->kind == CROSS_ENTROPY ? 0 : rank[0], &j.out[0]);
	if (!status && s->op->kind == ATTENTION) status = result(t, context, 1, weights, 3, &j.out[1]);
	if (s->op->kind == L2_NORMALIZE || s->op->kind == NORM) shape[0][rank[0] - 1] = 1;
	for (size_t i = 1; !status && i < s->op->out && s->op->kind != ATTENTION; i++)
		status = result(t, context, i, shape[0], rank[0], &j.out[i]);
	if (!status && onDevice) status = launch(s, &j, context);
	else if (!status && j.parts == 1) run(&j, 0);
	else if (!status)
		status = ((void *(*)(void *, void (*)(void *, size_t), size_t, size_t, void *))t[KernelContext_ParallelFor])(
			context, run, j.parts, 0, &j);
	free(j.room);
	return status;
}

static const char *name(const op *o) { return o->called; }

// lowers says by bits which inputs and outputs of an operator may be of lower precision.
static const struct { unsigned in, out; } lowers[16] = {
	[BIAS_GELU] = {1, 1}, [BIAS_GELU_GRAD] = {1 | 4, 1}, [NORM] = {0, 1}, [NORM_GRAD] = {16, 2},
	[ATTENTION] = {1, 1}, [ATTENTION_GRAD] = {1 | 8 | 16, 1}, [ADD_BIAS] = {1, 0},
};

static int inputType(const op *o, size_t i) { // 7: int64, 1: float32
	return isInt(o, i) ? 7 : o->low && lowers[o->kind].in >> i & 1 ? o->low : 1;
}
static int outputType(const op *o, size_t i) { return o->low && lowers[o->kind].out >> i & 1 ? o->low : 1; }
static size_t inputs(const op *o) { return o->in; }
static size_t outputs(const op *o) { return o->out; }
static int optional(const op *o, size_t i) { // 0: required, 1: optional
	return o->kind == PRODUCT || o->kind == ATTENTION ? i > 1 : (o->kind == NORM_GRAD && i > 4) ||
		(o->kind == ATTENTION_GRAD && i > 3);
}
static int required(const op *o, size_t i) { return (void)o, (void)i, 0; }
static int one(const op *o) { return (void)o, 1; }

#define OP(called, in, out, kind, onDevice) \
	{16, NULL, name, provider, inputType, inputs, outputType, outputs, NULL, free, optional, required, required, one, \
		one, one, one, createState, computeState, called, in, out, kind, onDevice, 0}

// The last one is of devices alone.
static const op ops[] = {
	OP("BiasQuickGelu", 2, 1, BIAS_GELU, "biasQuickGelu"),
	OP("BiasQuickGeluGrad", 3, 1, BIAS_GELU_GRAD, "biasQuickGeluGrad"),
	OP("LayerNorm", 3, 3, NORM, "layerNorm"),
	OP("LayerNormGrad", 6, 1, NORM_GRAD, "layerNormGrad"),
	OP("AddSameShape", 2, 1, ADD_SAME_SHAPE, "addSameShape"),
	OP("L2Normalize", 1, 2, L2_NORMALIZE, "l2Normalize"),
	OP("L2NormalizeGrad", 3, 1, L2_NORMALIZE_GRAD, "l2NormalizeGrad"),
	OP("CrossEntropy", 2, 2, CROSS_ENTROPY, "crossEntropy"),
	OP("Attention", 3, 2, ATTENTION, "attention"),
	OP("AttentionGrad", 6, 1, ATTENTION_GRAD, "attentionGrad"),
	OP("SequenceAttention", 1, 1, SEQUENCES, NULL),
	OP("SequenceAttentionGrad", 2, 1, SEQUENCES_GRAD, NULL),
	OP("Product", 4, 1, PRODUCT, NULL),
	OP("AddBiasSameShape", 3, 1, ADD_BIAS, "addBiasSameShape"),
};

static void *addTo(table t, void *domain, const op *o) {
	return ((void *(*)(void *, const op *))t[CustomOpDomain_Add])(domain, o);
}

void *newDomain(table t, int ofProcessor, void **domain) {
	level = ofProcessor;
	void *status = ((void *(*)(const char *, void **))t[CreateCustomOpDomain])("promptfed", domain);
	for (size_t i = 0; !status && ops[i].kind < DEVICE_ALONE; i++)
		status = addTo(t, *domain, &ops[i]);
	return status;
}

void *newDeviceDomain(table t, const driver *of, const char *name, const void *code, void **domain, int *error) {
	void *library = NULL, *status = NULL;
	device.of = *of, device.provider = name;
	if ((*error = of->start(0)) || (*error = of->load(&library, code, NULL, NULL, 0, NULL, NULL, 0))) return NULL;
	status = ((void *(*)(const char *, void **))t[CreateCustomOpDomain])("promptfed", domain);
	static const struct { int type; const char *suffix; } types[] = {{0, ""}, {FLOAT16, "_float16"},
		{BFLOAT16, "_bfloat16"}};
	size_t n = 0;
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
		if (!ops[i].onDevice) continue;
		if ((*error = of->find(&device.kernels[ops[i].kind], library, ops[i].onDevice))) return NULL;
		for (size_t k = 0; !status && k < (lowers[ops[i].kind].in | lowers[ops[i].kind].out ? 3 : 1); k++, n++) {
			op *o = &device.ops[n];
			*o = ops[i];
			snprintf(device.names[n], sizeof device.names[n], "%s%s", ops[i].called, types[k].suffix);
			o->called = device.names[n], o->provider = deviceProvider, o->low = types[k].type;
			o->out += o->low && o->kind == NORM_GRAD; // the same in lower precision
			status = addTo(t, *domain, o);
		}
	}
	return status;
}
