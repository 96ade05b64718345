package kernels

/*
#cgo CFLAGS: -O3
#cgo linux LDFLAGS: -lm
#include "domain.h"
*/
import "C"

import (
	_ "embed"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// minProduct is the smallest number of elements of a matrix for which Product is used. Below, ONNX Runtime's time for
// one operator exceeds that of multiplying 50 rows.
const minProduct = 1 << 12

// InstructionSet is a set of vector instructions for which the operator Product is written.
type InstructionSet struct {
	Name string // avx512, avx2 or neon
	form *C.form
}

// InstructionSets lists those that this processor has, the fastest first.
func InstructionSets() (out []InstructionSet) {
	for {
		form := C.formAt(level(), C.size_t(len(out)))
		if form == nil {
			return out
		}
		out = append(out, InstructionSet{C.GoString(form.name), form})
	}
}

// Peak multiplies and adds in registers of one core, and returns the number of operations, which is proportional to n.
// No product is faster.
func (s InstructionSet) Peak(n int) float64 { return float64(C.peak(s.form, C.int64_t(n))) }

// level returns the level of vector instructions. GODEBUG=cpu.avx512f=off makes a processor one without AVX-512.
func level() C.int {
	switch x := cpu.X86; {
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512CD && x.HasAVX512DQ && x.HasAVX512VL:
		return C.AVX512
	case x.HasAVX2 && x.HasFMA:
		return C.AVX2
	}
	return C.PLAIN
}

// NewDomain creates the custom operator domain onnx.Kernels, to be added to the options of sessions. api is ONNX
// Runtime's OrtApi table; status is an OrtStatus, nil on success.
func NewDomain(api unsafe.Pointer) (domain, status unsafe.Pointer) {
	status = C.newDomain(C.table(api), level(), &domain)
	return domain, status
}

// deviceCode has the kernels of device.cu in CUDA's assembly language.
//
//go:embed device.ptx
var deviceCode string

// DriverFunctions are the functions of CUDA's driver library that NewDeviceDomain takes, in its order.
func DriverFunctions() []string {
	return []string{"cuInit", "cuLibraryLoadData", "cuLibraryGetKernel", "cuLaunchKernel"}
}

// NewDeviceDomain is NewDomain for sessions of a CUDA device, to be called once. It has the operators that a device
// runs, on an execution provider of ONNX Runtime.
func NewDeviceDomain(api unsafe.Pointer, driver [4]unsafe.Pointer, provider string) (domain, status unsafe.Pointer,
	err error) {
	functions := (*C.driver)(unsafe.Pointer(&driver))
	code := C.CString(deviceCode) // neither is ever freed: the domain keeps them
	var failed C.int
	status = C.newDeviceDomain(C.table(api), functions, C.CString(provider), unsafe.Pointer(code), &domain, &failed)
	if failed != 0 {
		err = fmt.Errorf("CUDA's driver does not load promptfed's kernels (error %d): install NVIDIA's driver 580 or "+
			"later", int(failed))
	}
	return domain, status, err
}

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
		C.int64_t(m.Panel), (*C.float)(panels))
	return panels, nil
}

// Free releases memory that Pack allocated.
func Free(panels unsafe.Pointer) { C.freePanels(panels) }
