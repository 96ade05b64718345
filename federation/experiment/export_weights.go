package experiment

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
)

// maxModel is the size of the largest file that ONNX can be: protobuf's limit, less what metadata may take.
const maxModel = math.MaxInt32 - 1<<20

// embed reads weights that lie in files beside a model, in the folder dir, into the model.
func embed(m *onnx.ModelProto, dir string) error {
	outside := map[*onnx.TensorProto]extent{}
	total := int64(proto.Size(m))
	for _, t := range tensors(m.Graph) {
		if t.DataLocation != onnx.TensorProto_EXTERNAL {
			continue
		}
		e, err := extentOf(t, dir)
		if err != nil {
			return err
		}
		outside[t] = e
		total += e.length
	}
	if total > maxModel {
		return fmt.Errorf("the classifier would have %d bytes, and an ONNX file with its weights inside ends at 2 "+
			"GiB: use a smaller backbone", total)
	}
	for _, t := range tensors(m.Graph) {
		e, ok := outside[t]
		if !ok {
			continue
		}
		data, err := e.read()
		if err != nil {
			return fmt.Errorf("weights of %q: %w", t.Name, err)
		}
		t.RawData, t.ExternalData, t.DataLocation = data, nil, onnx.TensorProto_DEFAULT
	}
	return nil
}

// tensors lists all that a graph stores, in inner graphs too.
func tensors(g *onnx.GraphProto) []*onnx.TensorProto {
	out := append([]*onnx.TensorProto(nil), g.GetInitializer()...)
	for _, n := range g.GetNode() {
		for _, a := range n.Attribute {
			if a.T != nil {
				out = append(out, a.T)
			}
			out = append(out, a.Tensors...)
			for _, inner := range append([]*onnx.GraphProto{a.G}, a.Graphs...) {
				out = append(out, tensors(inner)...)
			}
		}
	}
	return out
}

// extent is where a tensor's bytes lie.
type extent struct {
	path           string
	offset, length int64
}

func extentOf(t *onnx.TensorProto, dir string) (extent, error) {
	e := extent{length: -1}
	for _, kv := range t.ExternalData {
		var err error
		switch kv.Key {
		case "location":
			if !filepath.IsLocal(filepath.FromSlash(kv.Value)) {
				return e, fmt.Errorf("weights of %q lie in %q, outside of the bundle", t.Name, kv.Value)
			}
			e.path = filepath.Join(dir, filepath.FromSlash(kv.Value))
		case "offset":
			e.offset, err = strconv.ParseInt(kv.Value, 10, 64)
		case "length":
			e.length, err = strconv.ParseInt(kv.Value, 10, 64)
		}
		if err != nil {
			return e, fmt.Errorf("weights of %q: %s %q is no number", t.Name, kv.Key, kv.Value)
		}
	}
	st, err := os.Stat(e.path)
	if err != nil {
		return e, fmt.Errorf("weights of %q: %w", t.Name, err)
	}
	if e.length < 0 {
		e.length = st.Size() - e.offset
	}
	if e.offset < 0 || e.length < 0 || e.offset > st.Size() || e.length > st.Size()-e.offset {
		return e, fmt.Errorf("weights of %q: %d bytes at %d of %s, which has %d: the file is cut short or another one",
			t.Name, e.length, e.offset, e.path, st.Size())
	}
	return e, nil
}

func (e extent) read() ([]byte, error) {
	f, err := os.Open(e.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, e.length)
	_, err = io.ReadFull(io.NewSectionReader(f, e.offset, e.length), data)
	return data, err
}
