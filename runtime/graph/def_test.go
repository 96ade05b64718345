package graph_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// A file may use the names of this package's internal operators: they stay unknown operators. A function of the file
// defines Error as x + x, so that the result shows whether the operator was kept.
func TestFilesCannotNameInternalOperators(t *testing.T) {
	for _, domain := range []string{"org.example", "ai.promptfed"} {
		for _, kind := range []string{"Error", "Input", "StopGradient", "Placeholder", "While", "Constant"} {
			m := model(18, node("Neg", "x", "h"), node(kind, "h", "y"))
			m.Graph.Node[1].Domain = domain
			m.Graph.Initializer = nil
			m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSetIdProto{Domain: domain, Version: 1})
			plain := func() *graph.File {
				f, err := graph.ReadModel(proto.Clone(m).(*onnx.ModelProto))
				if err != nil {
					t.Fatalf("%s of %s: %v", kind, domain, err)
				}
				return f
			}
			f := plain()
			y, _ := f.Output("y")
			if op := y.Op(); op.Kind != kind || op.IsInput() || op.Def() != nil || !op.In[0].OK() {
				t.Errorf("%s of %s became another operator", kind, domain)
			}
			got, err := f.Model(f.Outputs...)
			if err != nil || got.Graph.Node[1].OpType != kind {
				t.Errorf("%s of %s was written as %v, %v", kind, domain, got, err)
			}
			_, err = grad.VJPModel(f, []string{"y"}, []string{"x"})
			goldentest.WantErrorOf(t, kind+" of "+domain, err, "no gradient rule for operator "+domain+"."+kind)
			m.Functions = []*onnx.FunctionProto{{Domain: domain, Name: kind, Input: []string{"a"},
				Output:      []string{"b"},
				OpsetImport: m.OpsetImport[:1], Node: []*onnx.NodeProto{node("Add", "a a", "b")}}}
			f = plain()
			got, err = f.Model(f.Outputs...)
			goldentest.NoError(t, err)
			x := tensor.New(2, 3, 4)
			x.Data[5] = 3
			out, err := ort.RunOnce(context.Background(), got, ort.Options{}, tensor.Map{"x": x})
			if err != nil || out["y"].Data[5] != -6 {
				t.Errorf("%s of %s: %v, %v, want -6", kind, domain, out["y"], err)
			}
		}
	}
}

// The same holds without a domain: ONNX has no operators Error or Input. Operators on top of them are kept, too.
func TestStandardDomainHasNoInternalOperators(t *testing.T) {
	for _, kind := range []string{"Error", "Input", "StopGradient", "Placeholder", "While"} {
		f := read(t, model(18, node(kind, "x", "h"), node("Neg", "h", "y")))
		n, _ := f.Output("y")
		kinds := []string{}
		for _, op := range graph.Reachable(n) {
			kinds = append(kinds, op.Kind)
		}
		if want := []string{"Input", kind, "Neg"}; !slices.Equal(kinds, want) || len(graph.Inputs(n)) != 1 {
			t.Errorf("operators %v, want %v", kinds, want)
		}
		h, _ := f.Node("h")
		if y := h.Exp(); y.Op().Kind != "Exp" || y.Op().In[0] != h || f.Graph.Err() != nil {
			t.Errorf("the exponential of %s is %s, %v", kind, y.Op().Kind, f.Graph.Err())
		}
	}
}

// An attribute of a type other than the operator's is an error where the node is built, in a graph and in a file. (A Go
// type without an ONNX attribute, such as int64, does not compile.)
func TestAttributesAreChecked(t *testing.T) {
	for _, c := range []struct {
		kind, name string
		value      graph.Attribute
		want       string
	}{
		{"Transpose", "perm", graph.Attr(1), "attribute perm is of type INT, not INTS"},
		{"Softmax", "axis", graph.Attr([]int{1}), "attribute axis is of type INTS, not INT"},
		{"LeakyRelu", "alpha", graph.Attr(1), "attribute alpha is of type INT, not FLOAT"},
		{"Gelu", "approximate", graph.Attr(1.0), "attribute approximate is of type FLOAT, not STRING"},
		{"Softmax", "axis", graph.Attribute{}, "attribute axis has no value"},
		{"Softmax", "axis", graph.Attr((*onnx.AttributeProto)(nil)), "attribute axis has no value"},
		{"Softmax", "axis", graph.Attr(-1), ""},
		{"Softmax", "of a younger operator set", graph.Attr("kept"), ""},
	} {
		g := graph.New()
		g.Apply(graph.Standard, c.kind, graph.Attrs{c.name: c.value}, g.Input("x", graph.Float, graph.Static(2, 3)))
		if got := g.Err(); (got == nil) != (c.want == "") || got != nil && !strings.HasSuffix(got.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.kind, got, c.want)
		}
	}
	_, err := graph.ReadModel(model(18, node("Softmax", "x", "y", ints("axis", 1))))
	if want := "Softmax: inputs of shapes [2,3,4]: attribute axis is of type INTS, not INT"; err == nil ||
		err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Equal attributes make one operator; attributes of other values or types make two.
func TestAttributesAreInterned(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(2, 3))
	apply := func(v graph.Attribute) graph.Node { return g.Apply("org.example", "Warp", graph.Attrs{"by": v}, x) }
	named := &onnx.AttributeProto{Name: "by", Type: onnx.AttributeProto_INT, I: 1}
	if apply(graph.Attr(1)) != apply(graph.Attr(named)) {
		t.Error("an attribute of a file and an equal one are two")
	}
	for i, v := range []graph.Attribute{graph.Attr(2), graph.Attr(1.0), graph.Attr("1"), graph.Attr([]int{1})} {
		if apply(graph.Attr(1)) == apply(v) {
			t.Errorf("attribute %d is taken for the integer 1", i)
		}
	}
}
