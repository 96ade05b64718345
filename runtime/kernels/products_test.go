package kernels

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/convert"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
)

func node(kind, in, out string, at ...*onnx.AttributeProto) *onnx.NodeProto {
	return &onnx.NodeProto{OpType: kind, Input: strings.Fields(in), Output: strings.Fields(out), Attribute: at}
}

func describe(n *onnx.NodeProto) string {
	s := fmt.Sprintf("%s(%s)=%s", n.OpType, strings.Join(n.Input, ","), strings.Join(n.Output, ","))
	for _, a := range n.Attribute {
		s += fmt.Sprintf(" %s=%g", a.Name, float64(a.F)+float64(a.I))
	}
	return s
}

// Panels have 4 columns, and a matrix has at least 32 elements.
func TestRewriteProducts(t *testing.T) {
	matmul := func(in, out string) *onnx.NodeProto { return node("MatMul", in, out) }
	fused := func(in, out string, at ...*onnx.AttributeProto) *onnx.NodeProto {
		n := node("FusedMatMul", in, out, at...)
		n.Domain = "com.microsoft"
		return n
	}
	own := func(n *onnx.NodeProto) *onnx.NodeProto {
		n.Domain = onnx.Kernels
		return n
	}
	plus := func(in, out string) *onnx.NodeProto { return own(node("AddSameShape", in, out)) }
	normGrad := own(node("LayerNormGrad", "c four m d y", "g"))
	integer := func(name string, v int64) *onnx.AttributeProto {
		return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_INT, I: v}
	}
	half := &onnx.AttributeProto{Name: "alpha", Type: onnx.AttributeProto_FLOAT, F: 0.5}
	for name, c := range map[string]struct {
		nodes []*onnx.NodeProto
		want  []string
		gone  []string // initializers that are removed
	}{
		"rows by a matrix": {[]*onnx.NodeProto{matmul("x W", "y")},
			[]string{"Product(x,promptfed/W)=y alpha=1"}, []string{"W"}},
		"a bias is added by the product": {[]*onnx.NodeProto{matmul("x W", "a"), node("Add", "a b", "y")},
			[]string{"Product(x,promptfed/W,b)=y alpha=1"}, []string{"W"}},
		"the bias in either order": {[]*onnx.NodeProto{matmul("x W", "a"), node("Add", "b a", "y")},
			[]string{"Product(x,promptfed/W,b)=y alpha=1"}, []string{"W"}},
		"only one bias": {[]*onnx.NodeProto{matmul("x W", "a"), node("Add", "a b", "c"), node("Add", "c b", "y")},
			[]string{"Product(x,promptfed/W,b)=c alpha=1", "Add(c,b)=y"}, []string{"W"}},
		"a vector of another size is no bias": {[]*onnx.NodeProto{matmul("x W", "a"), node("Add", "a four", "y")},
			[]string{"Product(x,promptfed/W)=a alpha=1", "Add(a,four)=y"}, []string{"W"}},
		"no bias if another node reads the product": {[]*onnx.NodeProto{matmul("x W", "a"), node("Add", "a b", "c"),
			node("Mul", "a c", "y")},
			[]string{"Product(x,promptfed/W)=a alpha=1", "Add(a,b)=c", "Mul(a,c)=y"}, []string{"W"}},
		"no bias if the product is an output that two nodes read": {[]*onnx.NodeProto{matmul("x W", "out"),
			node("Add", "out b", "c"), node("Mul", "out c", "y")},
			[]string{"Product(x,promptfed/W)=out alpha=1", "Add(out,b)=c", "Mul(out,c)=y"}, []string{"W"}},
		"forward and transposed": {[]*onnx.NodeProto{matmul("x W", "a"), fused("a W", "y", integer("transB", 1), half)},
			[]string{"Product(x,promptfed/W)=a alpha=1", "Product(a,promptfed/W/transposed)=y alpha=0.5"},
			[]string{"W"}},
		"one matrix used twice": {[]*onnx.NodeProto{matmul("x W", "a"), matmul("x W", "c"), node("Add", "a c", "y")},
			[]string{"Product(x,promptfed/W)=a alpha=1", "Product(x,promptfed/W)=c alpha=1", "Add(a,c)=y"},
			[]string{"W"}},
		"the matrix is read elsewhere too": {[]*onnx.NodeProto{matmul("x W", "a"), matmul("a W2", "b2"),
			node("Add", "b2 W", "y")}, []string{"Product(x,promptfed/W)=a alpha=1", "MatMul(a,W2)=b2", "Add(b2,W)=y"},
			nil},
		"a sum of bias and another value": {[]*onnx.NodeProto{matmul("x W", "a"), node("Add", "a b", "c"),
			node("Neg", "x", "z"), plus("z c", "y")},
			[]string{"Neg(x)=z", "Product(x,promptfed/W,b,z)=y alpha=1"}, []string{"W"}},
		"a sum without bias": {[]*onnx.NodeProto{matmul("x W", "a"), plus("a x", "c"), node("Add", "c b", "y")},
			[]string{"Product(x,promptfed/W,,x)=c alpha=1", "Add(c,b)=y"}, []string{"W"}},
		"one sum for a product": {[]*onnx.NodeProto{matmul("x W", "a"), plus("a x", "c"), plus("c x", "y")},
			[]string{"Product(x,promptfed/W,,x)=c alpha=1", "AddSameShape(c,x)=y"}, []string{"W"}},
		"no sum of two readers": {[]*onnx.NodeProto{matmul("x W", "a"), plus("a x", "c"), plus("a c", "y")},
			[]string{"Product(x,promptfed/W)=a alpha=1", "AddSameShape(a,x)=c", "AddSameShape(a,c)=y"}, []string{"W"}},
		"a sum with the gradient of a norm": {[]*onnx.NodeProto{matmul("x W", "c"), normGrad, plus("x g", "y")},
			[]string{"Product(x,promptfed/W)=c alpha=1", "LayerNormGrad(c,four,m,d,y,x)=y"}, []string{"W"}},
		"constants":           {[]*onnx.NodeProto{matmul("four W", "y")}, nil, nil},
		"values of constants": {[]*onnx.NodeProto{node("Neg", "four", "a"), matmul("a W", "y")}, nil, nil},
		"transA":              {[]*onnx.NodeProto{fused("x W", "y", integer("transA", 1))}, nil, nil},
		"transBatchB": {[]*onnx.NodeProto{fused("x W", "y",
			integer("transBatchB", 1))}, nil, nil},
		"a matrix on the left":                  {[]*onnx.NodeProto{matmul("W x", "y")}, nil, nil},
		"a matrix inside the model":             {[]*onnx.NodeProto{matmul("x W2", "y")}, nil, nil},
		"few elements":                          {[]*onnx.NodeProto{matmul("x small", "y")}, nil, nil},
		"columns that fill no whole panels":     {[]*onnx.NodeProto{matmul("x odd", "y")}, nil, nil},
		"offset not aligned to float32":         {[]*onnx.NodeProto{matmul("x shifted", "y")}, nil, nil},
		"three axes":                            {[]*onnx.NodeProto{matmul("x cube", "y")}, nil, nil},
		"half precision":                        {[]*onnx.NodeProto{matmul("x half", "y")}, nil, nil},
		"an initializer that an input replaces": {[]*onnx.NodeProto{matmul("x given", "y")}, nil, nil},
		"MatMul of another domain": {[]*onnx.NodeProto{{Domain: "org.example", OpType: "MatMul",
			Input: []string{"x", "W"}, Output: []string{"y"}}}, nil, nil},
	} {
		external := func(name string, kind onnx.TensorProto_DataType, offset, size int64,
			dims ...int64) *onnx.TensorProto {
			w := &onnx.TensorProto{Name: name, DataType: int32(kind), Dims: dims}
			onnx.SetExternal(w, onnx.External{File: "w", Offset: offset, Length: size})
			return w
		}
		f32 := onnx.TensorProto_FLOAT
		inside := &onnx.TensorProto{Name: "W2", DataType: int32(f32), Dims: []int64{8, 8}}
		four := &onnx.TensorProto{Name: "four", DataType: int32(f32), Dims: []int64{4}}
		m := &onnx.ModelProto{OpsetImport: []*onnx.OperatorSetIdProto{{Version: 18}}, Graph: &onnx.GraphProto{
			Node: c.nodes, Input: []*onnx.ValueInfoProto{{Name: "x"}, {Name: "given"}},
			Output: []*onnx.ValueInfoProto{{Name: "y"}, {Name: "out"}},
			Initializer: []*onnx.TensorProto{external("W", f32, 8, 4*8*8, 8, 8), inside, four,
				{Name: "b", DataType: int32(f32), Dims: []int64{8}}, external("small", f32, 0, 4*4*4, 4, 4),
				external("odd", f32, 0, 4*8*6, 8, 6), external("shifted", f32, 2, 4*8*8, 8, 8),
				external("cube", f32, 0, 4*8*8, 1, 8, 8), external("given", f32, 0, 4*8*8, 8, 8),
				external("half", onnx.TensorProto_FLOAT16, 0, 2*8*8, 8, 8)}}}
		before := proto.Clone(m)
		got, packed := rewriteProducts(m, 4, 32)
		if !proto.Equal(m, before) {
			t.Errorf("%s: the model was changed", name)
		}
		if c.want == nil {
			if got != m || len(packed) > 0 {
				t.Errorf("%s: %d matrices are packed", name, len(packed))
			}
			continue
		}
		nodes := convert.Slice(got.Graph.Node, describe)
		if !slices.Equal(nodes, c.want) {
			t.Errorf("%s: %q, want %q", name, nodes, c.want)
		}
		for _, gone := range c.gone {
			if slices.ContainsFunc(got.Graph.Initializer, func(w *onnx.TensorProto) bool { return w.Name == gone }) {
				t.Errorf("%s: %s is still there", name, gone)
			}
		}
		for _, p := range packed {
			if p.K != 8 || p.N != 8 || p.Panel != 4 || p.Transposed != strings.HasSuffix(p.Name, "/transposed") ||
				!slices.ContainsFunc(got.Graph.Initializer, func(w *onnx.TensorProto) bool {
					at, err := onnx.ExternalOf(w)
					return w.Name == p.Name && slices.Equal(w.Dims, []int64{2, 8, 4}) && err == nil &&
						at == onnx.External{File: "w", Offset: 8, Length: 256}
				}) {
				t.Errorf("%s: packed %+v", name, p)
			}
		}
		if n := len(got.OpsetImport); n != 2 || got.OpsetImport[1].Domain != onnx.Kernels {
			t.Errorf("%s: operator sets %v", name, got.OpsetImport)
		}
	}
}

// A matrix stays if a branch reads it. The output of a branch depends on the inputs if the branch reads them.
func TestRewriteProductsWithBranches(t *testing.T) {
	w := &onnx.TensorProto{Name: "W", DataType: int32(onnx.TensorProto_FLOAT), Dims: []int64{8, 8}}
	onnx.SetExternal(w, onnx.External{File: "w", Length: 256})
	branch := &onnx.AttributeProto{Name: "then_branch", Type: onnx.AttributeProto_GRAPH, G: &onnx.GraphProto{
		Name: "then_branch", Node: []*onnx.NodeProto{node("Add", "W x", "z")},
		Output: []*onnx.ValueInfoProto{{Name: "z"}}}}
	m := &onnx.ModelProto{Graph: &onnx.GraphProto{Input: []*onnx.ValueInfoProto{{Name: "x"}},
		Output: []*onnx.ValueInfoProto{{Name: "y"}}, Initializer: []*onnx.TensorProto{w},
		Node: []*onnx.NodeProto{node("If", "", "a", branch), node("MatMul", "a W", "y")}}}
	got, packed := rewriteProducts(m, 4, 32)
	if len(packed) != 1 || len(got.Graph.Initializer) != 2 || got.Graph.Initializer[0] != w {
		t.Errorf("%d packed, initializers %v", len(packed), got.Graph.Initializer)
	}
}

// A panel holds some columns of all rows, row by row. The numbers of the matrix count from 0.
func TestPack(t *testing.T) {
	const rows, columns, panel = 1024, 512, 4
	matrix := make([]float32, rows*columns)
	for i := range matrix {
		matrix[i] = float32(i)
	}
	data, err := binary.Append(nil, binary.LittleEndian, matrix)
	goldentest.NoError(t, err)
	panels, err := PackedMatrix{K: rows, N: columns, Panel: panel}.Pack(data)
	goldentest.NoError(t, err)
	defer Free(panels)
	for i, got := range unsafe.Slice((*float32)(panels), rows*columns) {
		row, column := i/panel%rows, i/(panel*rows)*panel+i%panel
		if got != matrix[row*columns+column] {
			t.Fatalf("number %d of the panels is %g, want that of row %d and column %d", i, got, row, column)
		}
	}
}
