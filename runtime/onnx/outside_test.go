package onnx_test

import (
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
)

const (
	uint4 = onnx.TensorProto_UINT4
	int2  = onnx.TensorProto_DataType(26)
)

func integer(name string, v int64) *onnx.AttributeProto {
	return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_INT, I: v}
}

func reference(name, caller string) *onnx.AttributeProto {
	return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_INT, RefAttrName: caller}
}

// of moves a node to a domain other than ONNX's.
func of(domain string, n *onnx.NodeProto) *onnx.NodeProto {
	n.Domain = domain
	return n
}

func bytesOf(name string, t onnx.TensorProto_DataType, bytes int, dims ...int64) *onnx.TensorProto {
	return &onnx.TensorProto{Name: name, DataType: int32(t), Dims: dims, RawData: make([]byte, bytes)}
}

// loop is y, of shape [2,3], after n iterations of a body with the iteration number, the condition and x.
func loop(kind string, constants ...string) *onnx.ModelProto {
	body := &onnx.GraphProto{Name: "body", Node: []*onnx.NodeProto{node("Identity", "go", "on"), node("Neg", "h", "r")},
		Input: []*onnx.ValueInfoProto{value("turn", onnx.TensorProto_INT64), value("go", flag),
			value("h", float, 2, 3)},
		Output: []*onnx.ValueInfoProto{value("on", flag), value("r", float, 2, 3)}}
	for _, name := range constants {
		body.Initializer = append(body.Initializer, bytesOf(name, float, 24, 2, 3))
	}
	m := model(18, node(kind, "n yes x", "y", &onnx.AttributeProto{Name: "body", Type: onnx.AttributeProto_GRAPH,
		G: body}))
	m.Graph.Initializer = []*onnx.TensorProto{bytesOf("n", onnx.TensorProto_INT64, 8)}
	return m
}

// withFunction is a model with one function own:F and one call of it.
func withFunction(f *onnx.FunctionProto, call *onnx.NodeProto) *onnx.ModelProto {
	f.Name, f.Domain, f.OpsetImport = "F", "own", []*onnx.OperatorSetIdProto{{Version: 21}}
	m := model(21, of("own", call))
	m.Functions = []*onnx.FunctionProto{f}
	m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSetIdProto{Domain: "own", Version: 1})
	return m
}

// fourBits is x times a constant with elements of four bits, which the named operator reads.
func fourBits(kind string, outputs ...*onnx.ValueInfoProto) *onnx.ModelProto {
	scale := &onnx.TensorProto{Name: "s", DataType: int32(float), FloatData: []float32{1}}
	m := model(21, node(kind, "w s", "f"), node("Mul", "x f", "y"))
	m.Graph.Initializer = []*onnx.TensorProto{bytesOf("w", uint4, 3, 2, 3), scale}
	m.Graph.Output = append(m.Graph.Output, outputs...)
	return m
}

// nested is a model with n nested Ifs.
func nested(n int) *onnx.ModelProto {
	inner := node("Neg", "x", "r")
	for range n {
		inner = node("If", "yes", "r", subgraph("then_branch", inner), subgraph("else_branch", node("Neg", "x", "r")))
	}
	m := model(18, inner, node("Neg", "r", "y"))
	return m
}

// malformed are the kinds of graphs for which ONNX Runtime 1.30.0 accesses memory out of bounds or ends the process,
// each with a part of the error. The numbers of pull requests are from the release notes of 1.30.1; "ends it" marks
// graphs that ended a separate process when 1.30.0 compiled them.
func malformed() map[string]*onnx.ModelProto {
	zero := withFunction(&onnx.FunctionProto{Output: []string{"c"}, Node: []*onnx.NodeProto{node("Constant", "", "c",
		&onnx.AttributeProto{Name: "value_float", Type: onnx.AttributeProto_FLOAT, F: 1})}}, node("F", "x", "y"))
	cast := withFunction(&onnx.FunctionProto{Input: []string{"a"}, Output: []string{"c"}, Attribute: []string{"as"},
		Node: []*onnx.NodeProto{node("Cast", "a", "h", reference("to", "as")), node("Cast", "h", "c",
			integer("to", int64(float)))}}, node("F", "x", "y", integer("as", int64(uint4))))
	twice := withFunction(&onnx.FunctionProto{Input: []string{"a"}, Output: []string{"c"},
		Node: []*onnx.NodeProto{node("Neg", "a", "c")}}, node("F", "x", "y"))
	twice.Functions = append(twice.Functions, twice.Functions[0])
	sparse := loop("Loop")
	body := sparse.Graph.Node[0].Attribute[0].G
	body.SparseInitializer = []*onnx.SparseTensorProto{{Dims: []int64{6}, Values: bytesOf("h", float, 4, 1),
		Indices: bytesOf("", onnx.TensorProto_INT64, 8, 1)}}
	inFunction := withFunction(&onnx.FunctionProto{Input: []string{"a"}, Output: []string{"c"},
		Node: []*onnx.NodeProto{of(onnx.Microsoft, node("QMoE", "a", "c"))}}, node("F", "x", "y"))
	sparse4 := model(21, node("Neg", "x", "y"))
	sparse4.Graph.SparseInitializer = []*onnx.SparseTensorProto{{Dims: []int64{6}, Values: bytesOf("w", uint4, 1, 1),
		Indices: bytesOf("", onnx.TensorProto_INT64, 8, 1)}}
	typed := model(21, node("Neg", "x", "y"))
	typed.Graph.ValueInfo = []*onnx.ValueInfoProto{value("h", int2, 4)}
	return map[string]*onnx.ModelProto{
		// 32609
		"3 inputs for a body that takes 2 besides its constants":        loop("Loop", "h"),
		"Scan: 3 inputs for a body that takes 1 besides its constants":  loop("Scan", "h", "turn"),
		"Loop: 3 inputs for a body that takes 2 besides its constants ": sparse,
		// 32611
		"Cast: attribute to is UINT4: elements of less than a byte": model(21, node("Cast", "x", "h",
			integer("to", int64(uint4))), node("Cast", "h", "y", integer("to", int64(float)))),
		"F: attribute as is UINT4: elements of less than a byte": cast,
		`Identity: input "w": elements of less than a byte`:      fourBits("Identity"),
		`output "w": elements of less than a byte`: fourBits("DequantizeLinear", value("w", uint4,
			2, 3)),
		`tensor "w": elements of less than a byte`: sparse4,
		`value "h": elements of less than a byte`:  typed,
		`tensor "value": elements of less than a byte`: model(21, node("ConstantOfShape", "n", "y",
			&onnx.AttributeProto{Name: "value", Type: onnx.AttributeProto_TENSOR, T: bytesOf("value", int2, 1, 1)})),
		// 32633
		"F: 1 inputs and 1 outputs for a function of 0 and 1": zero,
		`function F of domain "own" is defined twice`:         twice,
		// 32641
		"attribute then_branch is a graph; only If, Loop and Scan may have": model(18, node("Neg", "x", "y",
			subgraph("then_branch", node("Neg", "x", "r")))),
		// 32607, 32610, 32679, 32681, and operators that end it
		`operator GroupQueryAttention of domain "com.microsoft"`: model(18, of(onnx.Microsoft,
			node("GroupQueryAttention", "x", "y"))),
		`operator EmbedLayerNormalization of domain "com.microsoft"`: model(18, of(onnx.Microsoft,
			node("EmbedLayerNormalization", "x", "y"))),
		`operator ConvTransposeWithDynamicPads of domain "com.microsoft"`: model(18, of(onnx.Microsoft,
			node("ConvTransposeWithDynamicPads", "x x", "y"))),
		`operator QLinearSigmoid of domain "com.microsoft"`: model(18, of(onnx.Microsoft,
			node("QLinearSigmoid", "x x x x", "y"))),
		`operator SVMClassifier of domain "ai.onnx.ml"`: model(18, of("ai.onnx.ml",
			node("SVMClassifier", "x", "y"))),
		`operator Product of domain "promptfed"`: model(18, of(onnx.Kernels,
			node("Product", "x x", "y"))),
		`function F: QMoE: operator QMoE of domain "com.micro`: inFunction,
		// ends it
		"DepthToSpace: attribute blocksize is 0 and must be from 1 to 1048576": model(18,
			node("DepthToSpace", "x", "y", integer("blocksize", 0))),
		"SpaceToDepth: attribute blocksize is 4294967296 and must be from 1 to": model(18,
			node("SpaceToDepth", "x", "y", integer("blocksize", 1<<32))),
		"Split: attribute num_outputs is 1 and must be from 2 to": model(18, node("Split", "x", "y z",
			integer("num_outputs", 1))),
		"attribute qkv_hidden_sizes has 2 numbers and must have 3": model(18, of(onnx.Microsoft,
			node("Attention", "x w", "y", ints("qkv_hidden_sizes", 2, 2)))),
		"attribute num_outputs refers to an attribute of a function's caller": withFunction(&onnx.FunctionProto{
			Input: []string{"a"}, Output: []string{"c", "d"}, Attribute: []string{"n"},
			Node: []*onnx.NodeProto{node("Split", "a", "c d", reference("num_outputs", "n"))}},
			node("F", "x", "y", integer("n", 1))),
		// takes twice as long for each level
		"graphs are nested more than 8 deep": nested(9),
	}
}

// Each malformed graph is an error of one line for every reader of files; a similar correct graph is read.
func TestMalformedGraphsAreRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	for want, m := range malformed() {
		want = strings.TrimSpace(want)
		b := onnxtest.Marshal(t, m)
		filetest.Write(t, path, b)
		_, err := onnx.Unmarshal(b)
		goldentest.WantErrorOf(t, "bytes", err, want)
		_, err = onnx.ReadFile(path)
		goldentest.WantErrorOf(t, "a file", err, path, want)
		_, err = onnx.OpenFile(dir, "m.onnx")
		goldentest.WantErrorOf(t, "a file with its weights left in it", err, want)
	}
	unlisted := loop("Loop") // old files list constants after the inputs that the loop feeds
	body := unlisted.Graph.Node[0].Attribute[0].G
	body.Input = append(body.Input, value("k", float, 2, 3))
	body.Initializer = []*onnx.TensorProto{bytesOf("k", float, 24, 2, 3)}
	for what, m := range map[string]*onnx.ModelProto{
		"a loop":                   loop("Loop"),
		"a loop with a constant":   unlisted,
		"branches, eight deep":     nested(8),
		"four bits, read at once":  fourBits("DequantizeLinear", value("f", float, 2, 3)),
		"a split":                  model(18, node("Split", "x", "y z", integer("num_outputs", 2), integer("axis", 1))),
		"a split of fewer outputs": model(18, node("Split", "x", "y", integer("num_outputs", 3), integer("axis", 1))),
		"a fused activation":       model(18, of(onnx.Microsoft, node("QuickGelu", "x", "y"))),
		"ONNX's domain, spelt out": model(18, of("ai.onnx", node("Neg", "x", "y"))),
		"a function, with fewer inputs": withFunction(&onnx.FunctionProto{Input: []string{"a", "b"},
			Output: []string{"c"}, Node: []*onnx.NodeProto{node("Neg", "a", "c")}}, node("F", "x", "y")),
		"a function that takes its type": withFunction(&onnx.FunctionProto{Input: []string{"a"}, Output: []string{"c"},
			Attribute: []string{"as"}, Node: []*onnx.NodeProto{node("Cast", "a", "c", reference("to", "as"))}},
			node("F", "x", "y", integer("as", int64(onnx.TensorProto_FLOAT16)))),
	} {
		if err := onnx.Check(m); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
