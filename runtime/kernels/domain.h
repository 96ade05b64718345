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
	KernelContext_ParallelFor = 274,
};

typedef const void *const *table;

// newDomain creates the domain with the operators of kernels.c, for all sessions. It returns an OrtStatus.
void *newDomain(table t, void **domain);

// hasProduct reports whether this processor runs the operator Product.
int hasProduct(void);

enum { PANEL = 32 }; // adjacent columns of a packed matrix

// packWeights copies w [k,n], or the transpose of w [n,k], into panels [n/PANEL,k,PANEL].
void packWeights(const float *w, int64_t k, int64_t n, int transposed, float *to);

// allocatePanels allocates memory for panels, aligned to a cache line.
void *allocatePanels(size_t bytes);
