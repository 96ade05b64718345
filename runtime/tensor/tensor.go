package tensor

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Tensor is a dense row-major array of float32 or, for indices and labels, of int64. A float tensor has Data, an
// integer tensor has Ints; the other one is nil.
type Tensor struct {
	Shape []int
	Data  []float32
	Ints  []int64
}

// New returns a zeroed float tensor.
func New(shape ...int) *Tensor {
	return &Tensor{Shape: slices.Clone(shape), Data: make([]float32, Size(shape))}
}

// spare has the memory of released tensors, by their number of elements. What is not used for some time is freed.
var spare sync.Map // of *sync.Pool of *Tensor

func spareOf(elements int) *sync.Pool {
	p, _ := spare.LoadOrStore(elements, new(sync.Pool))
	return p.(*sync.Pool)
}

// Reuse returns a float tensor of unknown values, in the memory of a released one if there is one of that size. Large
// new memory takes the time of several passes over it.
func Reuse(shape ...int) *Tensor {
	if n := Size(shape); n >= large {
		if t, ok := spareOf(n).Get().(*Tensor); ok {
			return &Tensor{Shape: slices.Clone(shape), Data: t.Data}
		}
	}
	return New(shape...)
}

// Release gives the memory of a tensor that nobody needs any more to later tensors. The tensor has no elements then.
func (t *Tensor) Release() {
	if n := len(t.Data); n >= large {
		spareOf(n).Put(&Tensor{Data: t.Data})
	}
	t.Data = nil
}

// Of wraps data, which must hold the product of shape values, without copying.
func Of(data []float32, shape ...int) *Tensor {
	if len(data) != Size(shape) {
		panic(fmt.Sprintf("tensor.Of: %d values for shape %v", len(data), shape))
	}
	return &Tensor{Shape: slices.Clone(shape), Data: data}
}

// OfInts wraps integer data, which must hold the product of shape values, without copying.
func OfInts(data []int64, shape ...int) *Tensor {
	if len(data) != Size(shape) {
		panic(fmt.Sprintf("tensor.OfInts: %d values for shape %v", len(data), shape))
	}
	return &Tensor{Shape: slices.Clone(shape), Ints: data}
}

// Scalar returns a float tensor of rank 0.
func Scalar(v float32) *Tensor { return &Tensor{Shape: []int{}, Data: []float32{v}} }

// Size returns the number of elements of a shape; 1 for rank 0.
func Size(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// IsInt reports whether t is an int64 tensor.
func (t *Tensor) IsInt() bool { return t.Ints != nil && t.Data == nil }

// Len returns the number of elements.
func (t *Tensor) Len() int {
	if t.IsInt() {
		return len(t.Ints)
	}
	return len(t.Data)
}

// Bytes returns the size of the elements in bytes: 4 for a float, 8 for an integer.
func (t *Tensor) Bytes() int { return 4*len(t.Data) + 8*len(t.Ints) }

// Clone copies t.
func (t *Tensor) Clone() *Tensor {
	return &Tensor{Shape: slices.Clone(t.Shape), Data: slices.Clone(t.Data), Ints: slices.Clone(t.Ints)}
}

// Row returns row i of the first axis as a view of the same data.
func (t *Tensor) Row(i int) *Tensor {
	n := Size(t.Shape[1:])
	r := &Tensor{Shape: t.Shape[1:]}
	if t.IsInt() {
		r.Ints = t.Ints[i*n : (i+1)*n]
	} else {
		r.Data = t.Data[i*n : (i+1)*n]
	}

	return r
}

// Rows copies the given rows of the first axis, in that order.
func (t *Tensor) Rows(index []int) *Tensor {
	n, shape := Size(t.Shape[1:]), append([]int{len(index)}, t.Shape[1:]...)
	if t.IsInt() {
		out := &Tensor{Shape: shape, Ints: make([]int64, 0, n*len(index))}
		for _, i := range index {
			out.Ints = append(out.Ints, t.Ints[i*n:(i+1)*n]...)
		}
		return out
	}

	out := Reuse(shape...)
	InParts(len(out.Data), func(from, to int) {
		for from < to {
			row, column := from/n, from%n
			from += copy(out.Data[from:to], t.Data[index[row]*n+column:(index[row]+1)*n])
		}
	})

	return out
}

// Stack joins tensors of one shape along a new first axis.
func Stack(list []*Tensor) *Tensor {
	out := &Tensor{Shape: append([]int{len(list)}, list[0].Shape...)}
	if list[0].IsInt() {
		out.Ints = []int64{} // also without elements
	}

	for _, t := range list {
		out.Data = append(out.Data, t.Data...)
		out.Ints = append(out.Ints, t.Ints...)
	}
	return out
}

// Norm returns the Euclidean norm, summed in float64.
func (t *Tensor) Norm() float64 {
	s := 0.0
	for _, v := range t.Data {
		s += float64(v) * float64(v)
	}
	return math.Sqrt(s)
}

// NonFinite returns the index of the first NaN or infinite element, or -1 if there is none.
func (t *Tensor) NonFinite() int {
	var found atomic.Bool
	InParts(len(t.Data), func(from, end int) {
		if nonFinite(t.Data[from:end]) >= 0 {
			found.Store(true)
		}
	})

	if !found.Load() {
		return -1
	}

	return nonFinite(t.Data)
}

// Part is the largest number of elements in a part of InParts. Tensors of at least large numbers are worth the work of
// several cores, and their memory is worth being used again.
const Part, large = 1 << 14, 1 << 18

// InParts calls f for consecutive parts [from,to) of n elements that together fit into the cache of a core. The cores
// share the parts of more than half a million elements, so f must be safe for concurrent use.
func InParts(n int, f func(from, to int)) {
	var next atomic.Int64
	work := func() {
		for from := int(next.Add(Part)) - Part; from < n; from = int(next.Add(Part)) - Part {
			f(from, min(n, from+Part))
		}
	}

	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n/large) - 1 {
		others.Go(work)
	}

	work()
	others.Wait()
}

// MaxAbs returns the largest absolute value; 0 for an empty tensor.
func (t *Tensor) MaxAbs() float64 {
	m := 0.0
	for _, v := range t.Data {
		m = max(m, math.Abs(float64(v)))
	}
	return m
}

// SameShape reports whether t and x have the same shape and kind.
func (t *Tensor) SameShape(x *Tensor) bool {
	return slices.Equal(t.Shape, x.Shape) && t.IsInt() == x.IsInt()
}

// String returns kind and shape, for messages.
func (t *Tensor) String() string { return Spec{Int: t.IsInt(), Shape: t.Shape}.String() }
