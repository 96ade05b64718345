// The operators with the vector instructions that every processor of the architecture has.
#include "kernels.h"
#define TARGET
#define WIDTH 4
#define OPERATORS plainOperators
#include "operators.h"
