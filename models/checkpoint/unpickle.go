package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/nlpodyssey/gopickle/pickle"
	"github.com/nlpodyssey/gopickle/types"
)

// unpickle runs one pickle (see readPickle) with gopickle's stack machine, which executes no code: a global is a Go
// value of ours or an error. persistent turns a persistent id into a storage; scripted allows the classes of a
// TorchScript archive.
func unpickle(data []byte, persistent func(any) (any, error), scripted bool) (v any, err error) {
	defer func() {
		if r := recover(); r != nil { // gopickle asserts and indexes without checks
			v, err = nil, fmt.Errorf("pickle is malformed (%v)", r)
		}
		if err != nil {
			err = errors.New(oneLine(err.Error()))
		}
	}()
	u := pickle.NewUnpickler(bytes.NewReader(data))
	u.PersistentLoad = persistent
	u.FindClass = func(module, name string) (any, error) { return global(module, name, scripted) }
	v, err = u.Load()
	if err != nil {
		return nil, fmt.Errorf("pickle: %w", err)
	}
	return v, nil
}

// storageType is a class such as torch.FloatStorage; dtype is a value such as torch.float16; both hold a safetensors
// name.
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

// inert values turn up in training checkpoints beside the weights (scores, devices, settings); they are kept as
// nothing.
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

// global resolves a name a pickle asks for. Everything that is not on the list is an error that names it.
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
		"save a plain state dict (torch.save(model.state_dict(), ...)) or safetensors", oneLine(module+"."+name))
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

// moduleClass is a class of a TorchScript archive; its instances are attributes in stored order.
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

func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > 400 {
		s = strings.ToValidUTF8(s[:400], "") + "..."
	}
	return s
}
