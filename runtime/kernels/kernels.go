package kernels

/*
#cgo CFLAGS: -O3
#cgo linux LDFLAGS: -lm
#include "domain.h"
*/
import "C"

import (
	"errors"
	"unsafe"
)

const (
	panelWidth = C.PANEL // columns of a packed matrix that are adjacent in memory

	// minProduct is the smallest number of elements of a matrix for which Product is used. ONNX Runtime multiplies by
	// smaller matrices as fast, because they stay in the processor's caches (BenchmarkProducts in runtime/ort).
	minProduct = 1 << 16
)

// NewDomain creates the custom operator domain onnx.Kernels, to be added to the options of sessions. api is ONNX
// Runtime's OrtApi table; status is an OrtStatus, nil on success.
func NewDomain(api unsafe.Pointer) (domain, status unsafe.Pointer) {
	status = C.newDomain(C.table(api), &domain)
	return domain, status
}

// HasProduct reports whether this processor runs the operator Product, which needs AVX-512.
func HasProduct() bool { return C.hasProduct() != 0 }

// Pack returns a copy of the matrix at the start of data, float32 in row order, in panels. Free releases the copy.
func (m PackedMatrix) Pack(data []byte) (panels unsafe.Pointer, err error) {
	if panels = C.allocatePanels(C.size_t(4 * m.K * m.N)); panels == nil {
		return nil, errors.New("no memory to pack it")
	}
	transposed := C.int(0)
	if m.Transposed {
		transposed = 1
	}
	C.packWeights((*C.float)(unsafe.Pointer(unsafe.SliceData(data))), C.int64_t(m.K), C.int64_t(m.N), transposed,
		(*C.float)(panels))
	return panels, nil
}

// Free releases memory that Pack allocated.
func Free(panels unsafe.Pointer) { C.free(panels) }
