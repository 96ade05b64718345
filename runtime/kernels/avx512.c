// The operators with AVX-512.
#include "kernels.h"
#ifdef X86
#define TARGET TARGET_AVX512
#define WIDTH 16
#define OPERATORS avx512Operators
#include "operators.h"
#endif
