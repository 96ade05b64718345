// ONNX Runtime's C functions are a table (OrtApi) that releases only extend: the static_asserts at the end of its
// onnxruntime_c_api.cc fix the indices. TestIndicesOfOrtApi in runtime/ort compares these with the binding's header.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum {
	CreateStatus = 0,
	CreateCustomOpDomain = 26,
	CustomOpDomain_Add = 27,
	GetTensorMutableData = 51,
	GetDimensionsCount = 61,
	GetDimensions = 62,
	GetTensorTypeAndShape = 65,
	KernelInfoGetAttribute_float = 85,
	KernelInfoGetAttribute_int64 = 86,
	KernelContext_GetInput = 90,
	KernelContext_GetOutput = 91,
	ReleaseTensorTypeAndShapeInfo = 99,
	KernelContext_GetGPUComputeStream = 193,
	KernelContext_ParallelFor = 274,
};

struct tile;
typedef const void *const *table;

// Levels of vector instructions. With PLAIN, code uses those that every processor of the architecture has.
enum { PLAIN, AVX2, AVX512 };

// newDomain creates the domain with the operators of kernels.c, for all sessions and a processor of this level. It
// returns an OrtStatus.
void *newDomain(table t, int level, void **domain);

// driver are the functions of CUDA's driver library that start kernels. They return 0 or an error.
typedef struct {
	int (*start)(unsigned flags);
	int (*load)(void **library, const void *code, void *, void *, unsigned, void *, void *, unsigned); // options
	int (*find)(void **kernel, void *library, const char *name);
	int (*launch)(void *kernel, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned, unsigned shared,
		void *stream, void **parameters, void **more);
} driver;

// newDeviceDomain creates the domain for sessions of a CUDA device, once, with the kernels of device.cu as code for the
// driver to load and a provider of this name. It returns an OrtStatus, or sets an error of the driver.
void *newDeviceDomain(table t, const driver *of, const char *provider, const void *code, void **domain, int *error);

// form is the operator Product for one instruction set (product.c).
typedef struct {
	const char *name;
	int level;
	int64_t panel, tile, tall; // adjacent columns of a packed matrix; rows that are computed together, and in one block
	int64_t flops;             // of peak(1)
	float (*peak)(int64_t n, float x);
	void (*rows[13])(const struct tile *t); // by number of rows
} form;

// formAt returns the i-th form that a processor of this level runs, the fastest first, or NULL.
const form *formAt(int level, size_t i);

// peak multiplies and adds in registers, and returns the number of operations, which is proportional to n.
double peak(const form *f, int64_t n);

// packWeights copies w [k,n], or the transpose of w [n,k], into panels [n/panel,k,panel].
void packWeights(const float *w, int64_t k, int64_t n, int transposed, int64_t panel, float *to);

// allocatePanels allocates memory for panels, aligned to a cache line, which freePanels frees.
void *allocatePanels(size_t bytes);
void freePanels(void *panels);
