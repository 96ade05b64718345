// Stands in for CUDA's runtime library on the CPU. Functions fail on a thread that has not chosen the device of what they
// take, where CUDA would work on device 0.
//
//   cc -shared -fPIC -o cudart.so cudart.c
#include <stdlib.h>
#include <string.h>

static _Thread_local int device = -1;
static int living; // streams and pinned memory

typedef struct { int device; } stream;

static int wrong(const stream *s) { return device < 0 || (s && s->device != device) ? 400 : 0; } // invalid handle

int cudaSetDevice(int number) { return device = number, 0; }

int cudaStreamCreateWithFlags(stream **out, unsigned flags) {
	if (wrong(NULL) || flags != 1 || !(*out = malloc(sizeof **out))) return 1; // invalid value
	(*out)->device = device;
	__sync_fetch_and_add(&living, 1);
	return 0;
}

int cudaStreamDestroy(stream *s) {
	if (wrong(s)) return 400;
	__sync_fetch_and_sub(&living, 1);
	free(s);
	return 0;
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, stream *s) {
	if (wrong(s) || kind != 4) return 400;
	memcpy(to, from, bytes);
	return 0;
}

int cudaStreamSynchronize(stream *s) { return wrong(s); }
int cudaStreamEndCapture(stream *s, void **graph) { return (void)graph, wrong(s) ? 400 : 401; } // no capture
int cudaGraphDestroy(void *graph) { return graph ? 0 : 1; }

int cudaMemGetInfo(size_t *free, size_t *total) {
	*free = __sync_fetch_and_add(&living, 0), *total = 0;
	return 0;
}

int cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
	if (wrong(NULL) || flags || !(*memory = malloc(bytes))) return 2; // no memory
	__sync_fetch_and_add(&living, 1);
	return 0;
}

int cudaFreeHost(void *memory) {
	if (wrong(NULL)) return 400;
	__sync_fetch_and_sub(&living, 1);
	free(memory);
	return 0;
}

const char *cudaGetErrorString(int error) { return error ? "refused" : ""; }
