package ort

/*
#include "native.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"promptfed/runtime/onnx"
)

// panelWidth is of panels of packed matrices. leastProduct is from how many numbers of a matrix on products with it are
// our own (product.c): smaller ones stay in the processor's caches, where ONNX Runtime's are as fast.
const (
	panelWidth   = 32
	leastProduct = 1 << 16
)

// HasProducts tells whether this processor has the instructions that products of our own need (AVX-512).
func HasProducts() bool { return C.hasProducts() != 0 }

// ownProducts tells whether products with packed weights are our own.
func (o Options) ownProducts() bool {
	return o.Provider == CPU && o.Prepack && !o.Bind && !o.PlainProducts && HasProducts()
}

// products makes them the operator of product.c.
func (p *program) products(m *onnx.ModelProto) *onnx.ModelProto {
	m, packed := onnx.Products(m, panelWidth, leastProduct)
	p.packed = map[string]onnx.Packed{}
	for _, w := range packed {
		p.packed[w.Name] = w
	}
	return m
}

// panels is a packed matrix, of which sessions over the same folder share one.
func (h *sharer) panels(w weight, m onnx.Packed, data []byte) (unsafe.Pointer, error) {
	if w.at.Offset+w.at.Length > int64(len(data)) {
		return nil, fmt.Errorf("%s has %d bytes and was longer before", w.at.File, len(data))
	}
	containers.Lock()
	defer containers.Unlock()
	key := fmt.Sprint(w.at.File, " ", w.at.Offset, w.shape, m.Transposed)
	if h.in.values[key] != nil {
		return h.in.values[key], nil
	}
	memory := C.allocatePanels(C.size_t(w.at.Length))
	if memory == nil {
		return nil, errors.New("no memory to pack it")
	}
	h.in.memory = append(h.in.memory, memory)
	transposed := C.int(0)
	if m.Transposed {
		transposed = 1
	}
	C.packWeights((*C.float)(unsafe.Pointer(&data[w.at.Offset])), C.int64_t(m.K), C.int64_t(m.N), transposed,
		(*C.float)(memory))
	v, err := h.api.wrap(w.shape, unsafe.Slice((*byte)(memory), w.at.Length))
	if err == nil {
		h.in.values[key] = v
	}
	return v, err
}

// freePanels frees the memory of packed matrices.
func (c *container) freePanels() {
	for _, m := range c.memory {
		C.free(m)
	}
}
