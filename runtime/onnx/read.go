package onnx

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode"

	"google.golang.org/protobuf/proto"
)

// maxName bounds a name, in bytes.
const maxName = 4096

// Unmarshal decodes and checks a model (see Check). It does not look for external data files.
func Unmarshal(b []byte) (*ModelProto, error) {
	m, err := decode(b)
	if err != nil {
		return nil, err
	}
	return m, Check(m)
}

// ReadFile reads a model from a file of less than 2 GiB, checks it, and checks that its external data exist. It does
// not read them.
func ReadFile(path string) (*ModelProto, error) {
	in, _, err := open(path)
	if err != nil {
		return nil, err
	}

	in.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	m, err := Unmarshal(b)
	if err == nil {
		err = CheckExternal(m, filepath.Dir(path))
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return m, nil
}

func open(path string) (*os.File, int64, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, 0, err
	case !st.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%s is not a file", path)
	case st.Size() >= 2<<30:
		return nil, 0, fmt.Errorf("%s: %d bytes, an ONNX file has less than 2 GiB; export with external data", path,
			st.Size())
	}

	in, err := os.Open(path)
	return in, st.Size(), err
}

// Check rejects a model that cannot be valid: names with control characters or of more than 4096 bytes, tensors whose
// data do not have the length of their dimensions, and external data outside of the model's folder. It also rejects
// graphs for which ONNX Runtime is known to access memory out of bounds (see checkGraphs).
func Check(model *ModelProto) error {
	if model.GetGraph() == nil {
		return errors.New("not an ONNX model: it has no graph")
	}

	for _, o := range model.OpsetImport {
		if err := checkName("operator set", o.Domain); err != nil {
			return err
		}
	}

	for x := range Messages(model) {
		if err := checkMessage(x); err != nil {
			return err
		}
	}

	return checkGraphs(model)
}

func checkMessage(x proto.Message) error {
	switch message := x.(type) {
	case *GraphProto:
		return checkName("graph", message.Name)
	case *ValueInfoProto:
		if err := checkName("value", message.Name); err != nil {
			return err
		}
		for _, d := range message.GetType().GetTensorType().GetShape().GetDim() {
			if err := checkName("dimension", d.GetDimParam()); err != nil {
				return err
			}
			if n := d.GetDimValue(); n > MaxSize || n < -1 { // some exporters write -1 for an unknown size
				return fmt.Errorf("value %q: a size of %d; 0 to %d are supported, and -1 for an open one", message.Name,
					n, MaxSize)
			}
		}
	case *NodeProto:
		return cmp.Or(checkName("node", message.Name, message.OpType, message.Domain, message.Overload),
			checkName("value", message.Input...),
			checkName("value", message.Output...))
	case *AttributeProto:
		return checkName("attribute", message.Name, message.RefAttrName)
	case *FunctionProto:
		return cmp.Or(checkName("function", message.Name, message.Domain, message.Overload), checkName("value",
			message.Input...),
			checkName("value", message.Output...))
	case *SparseTensorProto:
		if _, err := NumElements(message.Dims); err != nil {
			return fmt.Errorf("sparse tensor %q: %w", message.GetValues().GetName(), err)
		}
	case *TensorProto:
		return cmp.Or(checkName("tensor", message.Name), checkTensor(message))
	}

	return nil
}

func checkName(what string, names ...string) error {
	for _, name := range names {
		if len(name) > maxName {
			return fmt.Errorf("%s name %.40q... has %d bytes; at most %d are supported", what, name, len(name), maxName)
		}
		for _, r := range name {
			if unprintable(r) {
				return fmt.Errorf("%s name %.60q holds a control character", what, name)
			}
		}
	}

	return nil
}

func unprintable(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }

// Version returns the version of ONNX's own operators in a list, 0 if it has none.
func Version(list []*OperatorSetIdProto) int64 {
	version := int64(0)
	for _, o := range list {
		if Standard(o.Domain) {
			version = o.Version
		}
	}
	return version
}

// Standard reports whether a domain is that of ONNX's own operators.
func Standard(domain string) bool { return domain == "" || domain == "ai.onnx" }
