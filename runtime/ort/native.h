// ONNX Runtime's C functions are a table (OrtApi) that releases only extend: the static_asserts at the end of its
// onnxruntime_c_api.cc fix the indices. TestIndicesOfOrtApi compares these with the binding's header.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum {
	GetErrorMessage = 2,
	CreateEnv = 3,
	Run = 9,
	AddCustomOpDomain = 28,
	CreateTensorAsOrtValue = 48,
	CreateTensorWithDataAsOrtValue = 49,
	GetTensorMutableData = 51,
	GetTensorElementType = 60,
	GetDimensionsCount = 61,
	GetDimensions = 62,
	GetTensorTypeAndShape = 65,
	CreateMemoryInfo = 68,
	CreateCpuMemoryInfo = 69,
	AllocatorFree = 76,
	GetAllocatorWithDefaultOptions = 78,
	ReleaseStatus = 93,
	ReleaseMemoryInfo = 94,
	ReleaseSession = 95,
	ReleaseValue = 96,
	ReleaseTensorTypeAndShapeInfo = 99,
	CreateAllocator = 131,
	ReleaseAllocator = 132,
	RunWithBinding = 133,
	CreateIoBinding = 134,
	ReleaseIoBinding = 135,
	BindInput = 136,
	BindOutput = 137,
	BindOutputToDevice = 138,
	GetBoundOutputValues = 140,
	AddInitializer = 150,
	AddRunConfigEntry = 165,
	CreatePrepackedWeightsContainer = 166,
	ReleasePrepackedWeightsContainer = 167,
	CreateSessionFromArrayWithPrepackedWeightsContainer = 169,
	GetTensorMemoryInfo = 194,
	SynchronizeBoundInputs = 202,
	SynchronizeBoundOutputs = 203,
	GetBuildInfoString = 254,
	UpdateCUDAProviderOptionsWithValue = 263,
	Session_GetEpGraphAssignmentInfo = 407,
	EpAssignedSubgraph_GetEpName = 408,
	EpAssignedSubgraph_GetNodes = 409,
	EpAssignedNode_GetName = 410,
	EpAssignedNode_GetDomain = 411,
	EpAssignedNode_GetOperatorType = 412,
};

enum { version = 24 }; // of the table; the binding requests the same

typedef const void *const *table;
