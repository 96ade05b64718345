package exported

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/models/bundle"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// tokenTable is the location of the token embedding [vocabulary,w] in bundle.json: a tensor of a .safetensors file or
// of an .onnx file, or an offset in any file.
type tokenTable struct {
	File   string `json:"file,omitempty"`
	Tensor string `json:"tensor,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"`
	DType  string `json:"dtype,omitempty"`
	Shape  []int  `json:"shape,omitempty"`
}

// embeddingTable is the token embedding of an exported model.
type embeddingTable struct {
	source      graph.Node // the constant in the graph, if there is one
	model       string     // the .onnx file beside the tower that holds it, relative to the folder; often ""
	file        string     // relative to the folder; "" if inline holds the rows
	offset      int64
	dtype       string
	rows, width int
	inline      []byte
}

// findTable finds the token embedding: the table of the graph's look-up of token ids, the location in bundle.json, or
// the only tensor in text.onnx with a fitting shape.
func (m *model) findTable(vocabulary int) error {
	t, dir, said, width := m.text, m.bundle.Dir, m.config.Tokens, m.config.TextWidth
	if !t.embeddings.OK() {
		if err := t.table.of(dir, t.table.source); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		return nil
	}

	if w := staticAxis(t.embeddings, 2); w > 0 {
		width = w
	}

	if said != nil {
		err := t.table.read(dir, *said, vocabulary)
		if err == nil && width != 0 && t.table.width != width {
			err = fmt.Errorf("it is %d wide, the tower takes %d", t.table.width, width)
		}
		if err != nil {
			return fmt.Errorf("token_embedding: %w", err)
		}
		return nil
	}

	var fit []graph.Node
	for _, p := range t.file.Proto.Graph.Initializer {
		if n, ok := t.file.Node(p.Name); ok && n.Rank() == 2 && staticAxis(n, 0) >= vocabulary && (width == 0 ||
			staticAxis(n, 1) == width) && isFloat(n) {
			fit = append(fit, n)
		}
	}

	if len(fit) == 1 {
		m.bundle.Notes = append(m.bundle.Notes, fmt.Sprintf("token_embedding is not given: tensor %s of %s",
			fit[0].Name(), t.name))
		return t.table.of(dir, fit[0])
	}

	return fmt.Errorf("the rows of the tokens are not in %s: write \"token_embedding\": {\"file\": "+
		"\"tokens.safetensors\", \"tensor\": NAME} in %s, a tensor [%d or more,%d]",
		t.name, bundle.ManifestFile, vocabulary, width)
}

// of reads the table from a constant of a graph.
func (e *embeddingTable) of(dir string, source graph.Node) error {
	shape, ok := source.Shape().Ints()
	if !ok || !isTable(shape) {
		return fmt.Errorf("the token embedding has shape %v, must be [vocabulary,width]", source.Shape())
	}

	e.rows, e.width, e.dtype = shape[0], shape[1], bundle.TypeName(source.DType())
	if source.Op().Literal() == nil {
		return e.dequantise(dir, source.Op())
	}

	if err := e.checkType(); err != nil {
		return err
	}

	if p, ok := source.Op().Literal().ExternalPlace(); ok {
		e.file, e.offset = p.File, p.Offset
		return e.check(dir)
	}

	e.inline = source.Op().Literal().Bytes()
	if len(e.inline) != e.rows*e.width*safetensors.ElementSize(e.dtype) {
		return fmt.Errorf("the token embedding holds %d bytes for %v of %s", len(e.inline), shape, e.dtype)
	}

	return nil
}

func isTable(shape []int) bool {
	return len(shape) == 2 && min(shape[0], shape[1]) > 0 && shape[0] <= bundle.MaxRows && shape[1] <= bundle.MaxExtent
}

// dequantise computes the rows of a table that is stored as 8-bit integers with one scale.
func (e *embeddingTable) dequantise(dir string, op *graph.Op) error {
	raw, scale := constantBehind(op.In[0]).Op().Literal().Bytes(), constantsOf(dir, op.In[1])
	zero := []byte{0}
	if len(op.In) > 2 && op.In[2].OK() {
		if zero = nil; constantBehind(op.In[2]).OK() {
			zero = constantBehind(op.In[2]).Op().Literal().Bytes()
		}
	}

	if len(scale) != 1 || len(zero) != 1 || len(raw) != e.rows*e.width {
		return errors.New("the token embedding is quantised by rows or blocks, which is not supported: take a float " +
			"export")
	}

	number := func(b byte) float32 { return float32(b) }
	if op.In[0].DType() == onnx.TensorProto_INT8 {
		number = func(b byte) float32 { return float32(int8(b)) }
	} else if op.In[0].DType() != graph.Uint8 {
		return fmt.Errorf("the token embedding is stored as %v", op.In[0].DType())
	}

	e.dtype, e.inline = "F32", make([]byte, 0, 4*len(raw))
	for _, b := range raw {
		e.inline = binary.LittleEndian.AppendUint32(e.inline, math.Float32bits((number(b)-number(zero[0]))*scale[0]))
	}

	return nil
}

func (e *embeddingTable) read(dir string, table tokenTable, vocabulary int) error {
	if table.File == "" || !filepath.IsLocal(filepath.FromSlash(table.File)) {
		return fmt.Errorf("file %q is not the path of a file inside the bundle", table.File)
	}

	path := filepath.Join(dir, filepath.FromSlash(table.File))
	switch {
	case table.Shape != nil:
		if !isTable(table.Shape) {
			return fmt.Errorf("shape %v, must be [vocabulary,width]", table.Shape)
		}
		*e = embeddingTable{file: table.File, offset: table.Offset, dtype: cmp.Or(table.DType, "F32"),
			rows: table.Shape[0], width: table.Shape[1]}
		if n := int64(e.rows) * int64(e.width) * int64(safetensors.ElementSize(e.dtype)); table.Length != 0 &&
			table.Length != n {
			return fmt.Errorf("%v of %s takes %d bytes, not %d", table.Shape, e.dtype, n, table.Length)
		}
	case strings.HasSuffix(table.File, ".onnx"):
		f, err := graph.OpenFile(dir, table.File)
		if err != nil {
			return err
		}
		n, ok := f.Node(table.Tensor)
		if n = constantBehind(n); !ok || !n.OK() {
			return fmt.Errorf("%s has no constant %q", table.File, table.Tensor)
		}
		e.model = table.File
		return e.of(dir, n)
	default:
		file, err := safetensors.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		name := table.Tensor
		if names := file.Names(); name == "" && len(names) == 1 {
			name = names[0]
		} else if !slices.Contains(names, name) {
			return fmt.Errorf("%s has no tensor %q; it has %s", table.File, name, strings.Join(names[:min(len(names),
				20)], ", "))
		}
		info, err := file.Info(name)
		if err != nil {
			return err
		}
		if len(info.Shape) != 2 || info.Shape[0] < vocabulary || info.Shape[1] < 1 || info.Shape[1] > bundle.MaxExtent {
			return fmt.Errorf("tensor %s of %s is %v, must be [%d or more,width]", name, table.File, info.Shape,
				vocabulary)
		}
		*e = embeddingTable{file: table.File, offset: info.Offset, dtype: info.DType, rows: info.Shape[0],
			width: info.Shape[1]}
	}

	return e.check(dir)
}

// checkType checks that the rows are floating-point numbers.
func (e *embeddingTable) checkType() error {
	switch e.dtype {
	case "F32", "F16", "BF16", "F64":
		return nil
	}
	return fmt.Errorf("the token embedding is stored as %q, as a quantised one is; F32, F16, BF16 and F64 can be "+
		"read: take a float export", e.dtype)
}

// check checks that the table's file contains it.
func (e *embeddingTable) check(dir string) error {
	if err := e.checkType(); err != nil {
		return err
	}

	f, err := onnx.OpenExternal(dir, e.place())
	if err != nil {
		return fmt.Errorf("the token embedding: %w", err)
	}

	return f.Close()
}

// place returns the location of the table in its file.
func (e *embeddingTable) place() onnx.External {
	size := safetensors.ElementSize(e.dtype)
	return onnx.External{File: e.file, Offset: e.offset, Length: int64(e.rows) * int64(e.width) * int64(size)}
}

// lookUp returns the rows of the ids, width numbers each.
func (e *embeddingTable) lookUp(dir string, ids []int) ([]float32, error) {
	if e.file == "" {
		return bundle.EmbeddingRows(bytes.NewReader(e.inline), 0, e.dtype, e.rows, e.width, ids)
	}

	f, err := onnx.OpenExternal(dir, e.place())
	if err != nil {
		return nil, err
	}
	defer f.Close()

	return bundle.EmbeddingRows(f, e.offset, e.dtype, e.rows, e.width, ids)
}

// floatsOf returns the values of a constant of a graph, if it takes at most a megabyte.
func floatsOf(dir string, node graph.Node) []float32 {
	shape, ok := node.Shape().Ints()
	size := safetensors.ElementSize(bundle.TypeName(node.DType()))
	if !ok || size == 0 || tensor.Size(shape)*size > 1<<20 {
		return nil
	}

	raw := node.Op().Literal().Bytes()
	if p, ok := node.Op().Literal().ExternalPlace(); ok {
		var err error
		if raw, err = onnx.ReadExternal(dir, p); err != nil {
			return nil
		}
	}

	out := tensor.New(shape...)
	if node.DType() == graph.Bool || node.DType() == onnx.TensorProto_UINT8 {
		for i := range min(len(raw), len(out.Data)) {
			out.Data[i] = float32(raw[i])
		}
		return out.Data
	}

	if len(raw) != len(out.Data)*size || safetensors.Decode(bundle.TypeName(node.DType()), raw, out, 0) != nil {
		return nil
	}

	return out.Data
}
