package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strings"

	"github.com/nlpodyssey/gopickle/types"

	"promptfed/runtime/oneline"
	"promptfed/runtime/unpickle"
)

// maxName limits the bytes of a tensor's or storage's name, so that an error can quote it; published ones have fewer
// than 100.
const maxName = 512

// readPickle reads the pickle at the start of r; the largest CLIP needs half a megabyte, and a tensor takes about ten
// objects. A global is a Go value of this package or an error. persistent converts a persistent id to a storage;
// scripted allows the classes of a TorchScript archive.
func readPickle(r io.Reader, persistent func(any) (any, error), scripted bool) (v any, size int64, err error) {
	return unpickle.Options{Bytes: 16 << 20, Line: 4096, Marks: 256, Objects: 1 << 19, Persistent: persistent,
		Global: func(module, name string) (any, error) { return global(module, name, scripted) }}.Read(r)
}

// storageType is a class such as torch.FloatStorage; dtypeValue is a value such as torch.float16; both hold a
// safetensors name.
type (
	storageType string
	dtypeValue  string
)

var storageTypes = map[string]string{
	"FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16", "DoubleStorage": "F64",
	"LongStorage": "I64",
	"IntStorage":  "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage": "BOOL",
	"UntypedStorage": "U8",
}

var dtypeValues = map[string]string{
	"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int64": "I64", "int32": "I32",
	"int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "uint16": "U16", "uint32": "U32", "uint64": "U64",
}

// inert lists classes of values that occur in training checkpoints beside the weights (scores, devices, settings); the
// values are dropped.
var inert = map[string]bool{
	"torch device": true, "torch Size": true, "torch.serialization _get_layout": true,
	"numpy.core.multiarray scalar": true, "numpy._core.multiarray scalar": true, "numpy dtype": true,
	"numpy.core.multiarray _reconstruct": true, "numpy._core.multiarray _reconstruct": true, "numpy ndarray": true,
	"_codecs encode": true, "argparse Namespace": true, "collections defaultdict": true, "collections Counter": true,
	"builtins set": true, "__builtin__ set": true, "builtins dict": true, "builtins list": true,
	"torch.jit._pickle build_intlist": true, "torch.jit._pickle build_doublelist": true,
	"torch.jit._pickle build_boollist": true, "torch.jit._pickle build_tensorlist": true,
	"torch.jit._pickle restore_type_tag": true,
}

// global resolves a global of a pickle. Every global that is not on the list is an error that names it.
func global(module, name string, scripted bool) (any, error) {
	full := module + " " + name
	switch full {
	case "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor":
		return call(rebuildTensor), nil
	case "torch._utils _rebuild_tensor_v3":
		return call(rebuildTensorV3), nil
	case "torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state":
		return call(rebuildParameter), nil
	case "torch._tensor _rebuild_from_type_v2":
		return call(rebuildFromType), nil
	case "torch.nn.parameter Parameter", "torch Tensor":
		return opaque{}, nil
	case "torch.storage UntypedStorage":
		return storageType("U8"), nil
	}

	if module == "torch" || module == "torch.cuda" {
		if d, ok := storageTypes[name]; ok {
			return storageType(d), nil
		}
		if d, ok := dtypeValues[name]; ok {
			return dtypeValue(d), nil
		}
	}

	if inert[full] {
		return opaque{}, nil
	}

	if scripted && (strings.HasPrefix(module, "__torch__.") || module == "__torch__") {
		return moduleClass{}, nil
	}

	return nil, fmt.Errorf("it asks for the global %q, which is not on the list of harmless ones; "+
		"save a plain state dict (torch.save(model.state_dict(), ...)) or safetensors", oneline.Short(module+"."+name))
}

// call makes a Go function callable from a pickle.
type call func(args ...any) (any, error)

func (c call) Call(args ...any) (any, error) { return c(args...) }

// opaque accepts every call and every state and holds nothing.
type opaque struct{}

func (opaque) Call(...any) (any, error)    { return opaque{}, nil }
func (opaque) PyNew(...any) (any, error)   { return opaque{}, nil }
func (opaque) PySetState(any) error        { return nil }
func (opaque) PyDictSet(any, any) error    { return nil }
func (opaque) Set(any, any)                {}
func (opaque) Append(any)                  {}
func (opaque) PySetAttr(string, any) error { return nil }

// moduleClass is a class of a TorchScript archive; its instances hold attributes in stored order.
type moduleClass struct{}

func (moduleClass) PyNew(...any) (any, error) { return &module{}, nil }

type module struct{ attrs []attribute }

type attribute struct {
	name  string
	value any
}

func (m *module) PySetState(state any) error {
	d, ok := state.(*types.Dict)
	if !ok {
		return fmt.Errorf("the state of a TorchScript object is %T, want a dict", state)
	}

	for _, e := range *d {
		name, ok := e.Key.(string)
		if !ok {
			return fmt.Errorf("a TorchScript attribute is named by %T, want a string", e.Key)
		}
		m.attrs = append(m.attrs, attribute{name, e.Value})
	}

	return nil
}

// storage is a flat little-endian buffer of a PyTorch checkpoint: count elements of dtype under a key.
type storage struct {
	dtype string
	key   string
	count int64
	start int64 // the first element in the buffer of key: 0 except for views in files before PyTorch 0.4
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

// newView checks that the storage contains every element of the view. Views that repeat elements (stride 0) may not be
// larger than repeatLimit, since the file does not limit their size.
func newView(st *storage, dtype string, offset, size, stride any) (*view, error) {
	unit, stUnit := elementSize(dtype), elementSize(st.dtype)
	if unit == 0 {
		return nil, fmt.Errorf("unknown dtype %q", dtype)
	}

	at, ok := offset.(int)
	dims, ok2 := integers(size)
	steps, ok3 := integers(stride)
	if !ok || !ok2 || !ok3 || len(dims) != len(steps) || len(dims) > 64 || at < 0 {
		return nil, errors.New(oneline.Short(fmt.Sprintf("a tensor has offset %v, shape %v and strides %v", offset,
			dims, steps)))
	}

	view := &view{storage: st, dtype: dtype, offset: int64(at), shape: make([]int, len(dims)), strides: steps}
	count := st.count * int64(stUnit) / int64(unit)
	n, last := uint64(1), uint64(at)
	empty := false
	for i, extent := range dims {
		if extent < 0 || steps[i] < 0 {
			return nil, fmt.Errorf("a tensor has shape %v and strides %v", dims, steps)
		}

		view.shape[i] = int(extent)
		if extent == 0 {
			empty = true
			continue
		}

		hi, reach := bits.Mul64(uint64(extent-1), uint64(steps[i]))
		hi2, size := bits.Mul64(n, uint64(extent))
		if hi != 0 || hi2 != 0 || reach > 1<<60 || size > 1<<60 || last > 1<<60 {
			return nil, fmt.Errorf("the size of shape %v with strides %v overflows", dims, steps)
		}

		n, last = size, last+reach
	}

	if empty {
		return view, nil
	}

	if last >= uint64(count) {
		return nil, fmt.Errorf("a tensor of shape %v, strides %v and offset %d runs past its storage of %d elements",
			dims, steps, at, count)
	}

	const repeatLimit = 1 << 24
	if n > uint64(count) && n > repeatLimit {
		return nil, fmt.Errorf("a tensor of shape %v repeats a storage of %d elements", dims, count)
	}

	return view, nil
}

// contiguous reports whether the elements are row-major without gaps.
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
