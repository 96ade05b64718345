package checkpoint

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/nlpodyssey/gopickle/types"
)

// storage is a flat little-endian buffer of a PyTorch checkpoint: count elements of dtype under a key.
type storage struct {
	dtype string
	key   string
	count int64
	start int64 // the first element within the buffer of key: 0 but for views in files before PyTorch 0.4
}

// view is a tensor over a storage; offset and strides count elements.
type view struct {
	storage *storage
	dtype   string
	offset  int64
	shape   []int
	strides []int64
}

// rebuildTensor mirrors torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks).
func rebuildTensor(args ...any) (any, error) {
	if len(args) < 4 {
		return nil, fmt.Errorf("a tensor is rebuilt from %d values, want 4 or more", len(args))
	}
	st, ok := args[0].(*storage)
	if !ok {
		return nil, fmt.Errorf("a tensor is rebuilt from %T, want a storage", args[0])
	}
	return newView(st, st.dtype, args[1], args[2], args[3])
}

// rebuildTensorV3 adds the dtype of an untyped storage: (storage, offset, size, stride, requires_grad, hooks, dtype,
// ...).
func rebuildTensorV3(args ...any) (any, error) {
	if len(args) < 7 {
		return nil, fmt.Errorf("a tensor is rebuilt from %d values, want 7 or more", len(args))
	}
	st, ok := args[0].(*storage)
	dtype, ok2 := args[6].(dtypeValue)
	if !ok || !ok2 {
		return nil, fmt.Errorf("a tensor is rebuilt from %T and %T, want a storage and a dtype", args[0], args[6])
	}
	return newView(st, string(dtype), args[1], args[2], args[3])
}

// rebuildParameter mirrors torch._utils._rebuild_parameter(data, requires_grad, hooks).
func rebuildParameter(args ...any) (any, error) {
	if len(args) < 1 {
		return nil, fmt.Errorf("a parameter is rebuilt from nothing")
	}
	return args[0], nil
}

// rebuildFromType mirrors torch._tensor._rebuild_from_type_v2(func, type, args, state).
func rebuildFromType(args ...any) (any, error) {
	if len(args) < 3 {
		return nil, fmt.Errorf("a tensor subclass is rebuilt from %d values, want 4", len(args))
	}
	f, ok := args[0].(call)
	inner, ok2 := args[2].(*types.Tuple)
	if !ok || !ok2 {
		return nil, fmt.Errorf("a tensor subclass is rebuilt by %T, which is not a tensor", args[0])
	}
	return f(*inner...)
}

// newView checks that every element of the view lies in the storage. Views that repeat elements (stride 0) may not be
// larger than repeatLimit, since their size is bounded by nothing in the file.
func newView(st *storage, dtype string, offset, size, stride any) (*view, error) {
	unit, stUnit := elementSize(dtype), elementSize(st.dtype)
	if unit == 0 {
		return nil, fmt.Errorf("unknown dtype %q", dtype)
	}
	at, ok := offset.(int)
	dims, ok2 := integers(size)
	steps, ok3 := integers(stride)
	if !ok || !ok2 || !ok3 || len(dims) != len(steps) || len(dims) > 64 || at < 0 {
		return nil, errors.New(oneLine(fmt.Sprintf("a tensor has offset %v, shape %v and strides %v", offset, dims,
			steps)))
	}
	v := &view{storage: st, dtype: dtype, offset: int64(at), shape: make([]int, len(dims)), strides: steps}
	count := st.count * int64(stUnit) / int64(unit)
	n, last := uint64(1), uint64(at)
	empty := false
	for i, d := range dims {
		if d < 0 || steps[i] < 0 {
			return nil, fmt.Errorf("a tensor has shape %v and strides %v", dims, steps)
		}
		v.shape[i] = int(d)
		if d == 0 {
			empty = true
			continue
		}
		hi, reach := bits.Mul64(uint64(d-1), uint64(steps[i]))
		hi2, size := bits.Mul64(n, uint64(d))
		if hi != 0 || hi2 != 0 || reach > 1<<60 || size > 1<<60 || last > 1<<60 {
			return nil, fmt.Errorf("the size of shape %v with strides %v overflows", dims, steps)
		}
		n, last = size, last+reach
	}
	if empty {
		return v, nil
	}
	if last >= uint64(count) {
		return nil, fmt.Errorf("a tensor of shape %v, strides %v and offset %d runs past its storage of %d elements",
			dims, steps, at, count)
	}
	const repeatLimit = 1 << 24
	if n > uint64(count) && n > repeatLimit {
		return nil, fmt.Errorf("a tensor of shape %v repeats a storage of %d elements", dims, count)
	}
	return v, nil
}

// contiguous tells whether the elements lie in row-major order without gaps.
func (v *view) contiguous() bool {
	step := int64(1)
	for i := len(v.shape) - 1; i >= 0; i-- {
		if v.shape[i] != 1 && v.strides[i] != step {
			return false
		}
		step *= int64(v.shape[i])
	}
	return true
}

// integers reads a tuple or list of ints.
func integers(v any) ([]int64, bool) {
	var items []any
	switch s := v.(type) {
	case *types.Tuple:
		items = *s
	case *types.List:
		items = *s
	default:
		return nil, false
	}
	out := make([]int64, len(items))
	for i, item := range items {
		n, ok := item.(int)
		if !ok {
			return nil, false
		}
		out[i] = int64(n)
	}
	return out, true
}
