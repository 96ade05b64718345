// The operators with AVX2 and FMA.
#include "kernels.h"
#ifdef X86
#define TARGET TARGET_AVX2
#define WIDTH 8
#define OPERATORS avx2Operators
#include "operators.h"
#endif
