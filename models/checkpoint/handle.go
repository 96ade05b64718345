package checkpoint

import (
	"fmt"
	"io"
	"slices"

	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Handle is a tensor of a checkpoint that has not been read yet.
//
// If File is not empty, Length bytes at Offset of that file are the elements, row-major, little-endian and
// uncompressed, so other programs may map them (ONNX external data). This holds for tensors of safetensors files, and
// for contiguous tensors of .pt and .bin files.
type Handle struct {
	Name  string // as stored
	DType string // as stored, with the names of safetensors: F32, F16, BF16, F64, I64, ...
	Shape []int

	File           string
	Offset, Length int64

	Computed bool // computed from several tensors on Load, and not stored in the checkpoint

	r    io.ReaderAt // the file, if File is set
	load func() (*tensor.Tensor, error)
}

// Load reads the tensor: floats of any precision as float32 (F16 and BF16 exactly), integers and booleans as int64.
func (h *Handle) Load() (*tensor.Tensor, error) {
	t, err := h.load()
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", h.Name, err)
	}
	return t, nil
}

// Number returns the element of a tensor with one element.
func (h *Handle) Number() (float64, error) {
	if tensor.Size(h.Shape) != 1 {
		return 0, fmt.Errorf("%s is %v, want one number", h.Name, h.Shape)
	}

	t, err := h.Load()
	if err != nil {
		return 0, err
	}

	if len(t.Data) != 1 || t.NonFinite() >= 0 {
		return 0, fmt.Errorf("%s is %v %v, want one number", h.Name, t, t.Data)
	}

	return float64(t.Data[0]), nil
}

// Rows returns the part [low, high) of the first axis, unread; it has a File if h has one.
func (h *Handle) Rows(low, high int) (*Handle, error) {
	if len(h.Shape) == 0 || low < 0 || high < low || high > h.Shape[0] {
		return nil, fmt.Errorf("tensor %q of shape %v has no rows %d to %d", h.Name, h.Shape, low, high)
	}

	name, n := fmt.Sprintf("%s[%d:%d]", h.Name, low, high), tensor.Size(h.Shape[1:])
	shape := append([]int{high - low}, h.Shape[1:]...)
	if h.File != "" {
		row := int64(n * elementSize(h.DType))
		return inFile(name, h.File, h.r, safetensors.Info{DType: h.DType, Shape: shape,
			Offset: h.Offset + int64(low)*row, Length: int64(high-low) * row}), nil
	}

	return &Handle{Name: name, DType: h.DType, Shape: shape, load: func() (*tensor.Tensor, error) {
		t, err := h.load()
		if err != nil {
			return nil, err
		}
		if t.IsInt() {
			return tensor.OfInts(slices.Clone(t.Ints[low*n:high*n]), shape...), nil
		}
		return tensor.Of(slices.Clone(t.Data[low*n:high*n]), shape...), nil
	}}, nil
}

// reshaped returns the same float elements in another shape of the same size.
func (h *Handle) reshaped(shape ...int) *Handle {
	out := *h
	out.Shape = shape
	out.load = func() (*tensor.Tensor, error) {
		t, err := h.load()
		if err != nil {
			return nil, err
		}
		return tensor.Of(t.Data, shape...), nil
	}

	return &out
}

// concat concatenates handles of equal trailing shape along the first axis; no file holds the result.
func concat(parts ...*Handle) *Handle {
	handle := &Handle{Name: parts[0].Name, DType: parts[0].DType, Shape: slices.Clone(parts[0].Shape), Computed: true}
	for _, p := range parts[1:] {
		handle.Shape[0] += p.Shape[0]
	}

	handle.load = func() (*tensor.Tensor, error) {
		out := tensor.New(handle.Shape...)
		at := 0
		for _, p := range parts {
			t, err := p.Load()
			if err != nil {
				return nil, err
			}
			at += copy(out.Data[at:], t.Data)
		}
		return out, nil
	}

	return handle
}

func elementSize(dtype string) int { return safetensors.ElementSize(dtype) }

// inFile returns the handle of a contiguous tensor in r, which is the file called path.
func inFile(name, path string, r io.ReaderAt, info safetensors.Info) *Handle {
	return &Handle{Name: name, DType: info.DType, Shape: info.Shape, File: path, Offset: info.Offset,
		Length: info.Length,
		r:      r, load: func() (*tensor.Tensor, error) { return safetensors.ReadTensor(r, info) }}
}

// buffers returns the bytes of storages.
type buffers interface {
	// place returns the offset of a storage in the file; stored is false if the file holds it compressed.
	place(*storage) (at int64, stored bool, err error)
	// open returns the bytes of a storage, which begin at an offset of r.
	open(*storage) (r io.ReaderAt, at int64, err error)
}

// handle returns the handle of a view of a PyTorch storage in the file called path.
func (v *view) handle(name, path string, from buffers) (*Handle, error) {
	handle := &Handle{Name: name, DType: v.dtype, Shape: v.shape, load: func() (*tensor.Tensor, error) {
		r, at, err := from.open(v.storage)
		if err != nil {
			return nil, err
		}
		return v.gather(r, at)
	}}

	if !v.contiguous() {
		return handle, nil
	}

	at, stored, err := from.place(v.storage)
	if err != nil || !stored {
		return handle, err
	}

	r, _, err := from.open(v.storage)
	unit := int64(elementSize(v.dtype))
	return inFile(name, path, r, safetensors.Info{DType: v.dtype, Shape: v.shape, Offset: at + v.offset*unit,
		Length: int64(tensor.Size(v.shape)) * unit}), err
}

// gather copies the elements of a view in row-major order. It reads only the part of the storage that the view covers.
func (v *view) gather(reader io.ReaderAt, at int64) (*tensor.Tensor, error) {
	out, err := safetensors.NewTensor(v.dtype, v.shape)
	if err != nil || out.Len() == 0 {
		return out, err
	}

	reach := int64(1)
	for i, d := range v.shape {
		reach += int64(d-1) * v.strides[i]
	}

	unit := int64(elementSize(v.dtype))
	flat, err := safetensors.ReadTensor(reader, safetensors.Info{DType: v.dtype, Shape: []int{int(reach)},
		Offset: at + v.offset*unit, Length: reach * unit})
	if err != nil {
		return nil, err
	}

	index := make([]int, len(v.shape))
	src := int64(0)
	for i := range out.Len() {
		if out.IsInt() {
			out.Ints[i] = flat.Ints[src]
		} else {
			out.Data[i] = flat.Data[src]
		}

		for d := len(index) - 1; d >= 0; d-- {
			index[d]++
			src += v.strides[d]
			if index[d] < v.shape[d] {
				break
			}
			src -= v.strides[d] * int64(index[d])
			index[d] = 0
		}
	}

	return out, nil
}
