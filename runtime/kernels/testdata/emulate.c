// Runs device.cu on a CPU, behind the functions of CUDA's driver library that start kernels. The threads of a block are
// contexts of one thread of the system, which change places where they wait for each other.
//
//   cc -shared -fPIC -O1 -I .. -o emulate.so emulate.c -lm
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

typedef struct { unsigned x, y, z; } dim;
typedef struct { float x, y, z, w; } float4;
typedef struct { unsigned x, y; } uint2;

enum { MOST = 1024, STACK = 1 << 15 };

static dim blockIdx, blockDim, gridDim, threadIdx;
static ucontext_t scheduler, contexts[MOST];
static int over[MOST], waits[MOST]; // whether a thread ended, and how often it waited for its block
static float said[MOST], shared[1 << 14];
static char *stacks;

// pause lets all other threads of the block run up to their next wait.
static void pause_(void) {
	unsigned own = threadIdx.x;
	swapcontext(&contexts[own], &scheduler);
	threadIdx.x = own;
}

static void __syncthreads(void) {
	int goal = ++waits[threadIdx.x];
	for (;;) {
		int all = 1;
		for (unsigned i = 0; i < blockDim.x; i++)
			all = all && (over[i] || waits[i] >= goal);
		if (all) return;
		pause_();
	}
}

static void __syncwarp(void) { pause_(); }

static float __shfl_xor_sync(unsigned mask, float x, int other) {
	(void)mask;
	said[threadIdx.x] = x;
	pause_();
	x = said[threadIdx.x ^ (unsigned)other];
	pause_();
	return x;
}

static unsigned __float_as_uint(float x) {
	unsigned bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

static float __uint_as_float(unsigned bits) {
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static float HALF(unsigned bits) {
	unsigned short low = (unsigned short)bits;
	_Float16 half;
	memcpy(&half, &low, sizeof half);
	return half;
}

static unsigned TO_HALF(float x) {
	_Float16 half = (_Float16)x;
	unsigned short bits;
	memcpy(&bits, &half, sizeof bits);
	return bits;
}

#define KERNEL static void
#define INSIDE static
#define ALL_THREADS
#define __shared__ static
#define ROOM(name) float *name = shared
#include "../device.cu"

#define NAMED(name) {#name, name}
static const struct { const char *name; void (*run)(task); } all[] = {NAMED(biasQuickGelu), NAMED(biasQuickGeluGrad),
	NAMED(addSameShape), NAMED(addBiasSameShape), NAMED(layerNorm), NAMED(layerNormGrad), NAMED(l2Normalize),
	NAMED(l2NormalizeGrad), NAMED(crossEntropy), NAMED(attention), NAMED(attentionGrad)};

static void (*kernel)(task);
static task given;

static void thread(void) {
	kernel(given);
	over[threadIdx.x] = 1;
	setcontext(&scheduler);
}

int cuInit(unsigned flags) { return (int)flags; }

int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
	(void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
	*library = NULL;
	return !strstr(code, ".entry attentionGrad(");
}

int cuLibraryGetKernel(void **found, void *library, const char *name) {
	(void)library;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(all[i].name, name)) {
			*found = (void *)&all[i];
			return 0;
		}
	return 500; // CUDA_ERROR_NOT_FOUND
}

int cuLaunchKernel(void *which, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
	unsigned room, void *stream, void **parameters, void **more) {
	(void)stream, (void)more;
	if (y != 1 || z != 1 || ty != 1 || tz != 1 || threads > MOST || room > 48 << 10) return 1; // CUDA_ERROR_INVALID_VALUE
	if (!stacks && !(stacks = malloc((size_t)MOST * STACK))) return 2;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (which == &all[i]) kernel = all[i].run;
	given = *(task *)parameters[0];
	gridDim.x = x, blockDim.x = threads;
	for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++) {
		memset(over, 0, sizeof over), memset(waits, 0, sizeof waits);
		memset(shared, 0xff, sizeof shared); // not a number
		for (unsigned i = 0; i < threads; i++) {
			getcontext(&contexts[i]);
			contexts[i].uc_stack.ss_sp = stacks + (size_t)i * STACK, contexts[i].uc_stack.ss_size = STACK;
			makecontext(&contexts[i], thread, 0);
		}
		for (unsigned left = threads; left;) {
			left = 0;
			for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) {
				unsigned i = threadIdx.x;
				if (!over[i]) swapcontext(&scheduler, &contexts[i]);
				threadIdx.x = i;
				left += !over[i];
			}
		}
	}
	return 0;
}
