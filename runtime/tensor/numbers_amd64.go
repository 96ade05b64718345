//go:build cgo

package tensor

/*
#cgo CFLAGS: -O3
#cgo noescape blend
#cgo nocallback blend
#cgo noescape add
#cgo nocallback add
#cgo noescape allFinite
#cgo nocallback allFinite
#include <stdint.h>
#include <string.h>

// AVX2 is without FMA, whose results have other bits.
#define AVX2 __attribute__((target("avx2")))

AVX2 static void blend(double keep, float *y, double take, const float *x, int64_t n) {
	for (int64_t i = 0; i < n; i++)
		y[i] = (float)(keep * (double)y[i] + take * (double)x[i]);
}

AVX2 static void add(double *sum, double weight, const float *x, int64_t n) {
	for (int64_t i = 0; i < n; i++)
		sum[i] += weight * (double)x[i];
}

// allFinite reports whether no exponent has all bits set.
AVX2 static int allFinite(const float *x, int64_t n) {
	uint32_t bad = 0;
	for (int64_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, x + i, sizeof bits);
		bad |= (bits & 0x7f800000u) == 0x7f800000u;
	}
	return !bad;
}
*/
import "C"

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// leastVector is the number of elements from which on a call of C is faster than a loop in Go.
const leastVector = 256

func vectors(elements int) bool { return elements >= leastVector && cpu.X86.HasAVX2 }

func floats(x []float32) *C.float { return (*C.float)(unsafe.Pointer(unsafe.SliceData(x))) }

func blendVectors(keep float64, y []float32, take float64, x []float32) {
	C.blend(C.double(keep), floats(y), C.double(take), floats(x), C.int64_t(len(y)))
}

func addVectors(sum []float64, weight float64, x []float32) {
	C.add((*C.double)(unsafe.Pointer(unsafe.SliceData(sum))), C.double(weight), floats(x), C.int64_t(len(sum)))
}

func finiteVectors(x []float32) bool { return C.allFinite(floats(x), C.int64_t(len(x))) != 0 }
