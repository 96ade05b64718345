package kernels

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
)

// Sums and casts join operators only where nothing else needs what lies between. W is [16,16], narrow [16,4], b [16]
// and four [4]; low is the version of low precision, in bfloat16.
func TestForDevice(t *testing.T) {
	const bfloat16, float32Type = int64(onnx.TensorProto_BFLOAT16), int64(onnx.TensorProto_FLOAT)
	cast := func(in, out string, to int64) *onnx.NodeProto {
		return node("Cast", in, out, &onnx.AttributeProto{Name: "to", Type: onnx.AttributeProto_INT, I: to})
	}
	op := func(kind, in, out string) *onnx.NodeProto {
		n := node(kind, in, out)
		n.Domain = onnx.Kernels
		return n
	}
	product, bias := node("MatMul", "x W", "a"), node("Add", "a b", "c")
	weights := []*onnx.NodeProto{cast("W", "W_low", bfloat16), cast("b", "b_low", bfloat16),
		cast("x", "x_low", bfloat16)}
	norm, gelu := op("LayerNorm", "x b b", "n m d"), op("BiasQuickGelu", "h b", "g")
	lowProduct := node("MatMul", "x_low W_low", "p_low")
	for name, c := range map[string]struct {
		nodes []*onnx.NodeProto
		low   onnx.TensorProto_DataType
		want  string // nodes that are not in the graph before; empty for the same graph
	}{
		"a sum of product, bias and value": {[]*onnx.NodeProto{product, bias, op("AddSameShape", "c x", "y")}, 0,
			"AddBiasSameShape(a,b,x)=y"},
		"any transposition": {[]*onnx.NodeProto{node("FusedMatMul", "x W", "a", &onnx.AttributeProto{Name: "transB",
			I: 2}), bias, op("AddSameShape", "c x", "y")}, 0, "AddBiasSameShape(a,b,x)=y"},
		"in the other order": {[]*onnx.NodeProto{product, bias, op("AddSameShape", "x c", "y")}, 0,
			"AddBiasSameShape(a,b,x)=y"},
		"a product of values": {[]*onnx.NodeProto{node("MatMul", "x x", "a"), bias, op("AddSameShape", "c x", "y")}, 0,
			""},
		"no product": {[]*onnx.NodeProto{node("Neg", "x", "a"), bias, op("AddSameShape", "c x", "y")}, 0, ""},
		"no bias":    {[]*onnx.NodeProto{product, node("Add", "a four", "c"), op("AddSameShape", "c x", "y")}, 0, ""},
		"columns that fill no vectors": {[]*onnx.NodeProto{node("MatMul", "x narrow", "a"), node("Add", "a four", "c"),
			op("AddSameShape", "c x", "y")}, 0, ""},
		"another reader": {[]*onnx.NodeProto{product, bias, op("AddSameShape", "c x", "z"),
			node("Mul", "z c", "y")}, 0, ""},
		"a gradient of layer norm": {[]*onnx.NodeProto{op("LayerNormGrad", "x b m d x", "g"),
			op("AddSameShape", "g x", "y")}, 0, "LayerNormGrad(x,b,m,d,x,x)=y"},
		"no operators of promptfed": {[]*onnx.NodeProto{product, bias, node("Add", "c x", "y")}, 0, ""},
		"a sum in low precision": {append(slices.Clone(weights), lowProduct, node("Add", "p_low b_low", "c_low"),
			cast("c_low", "c", float32Type), op("AddSameShape", "c x", "y")), onnx.TensorProto_BFLOAT16,
			"AddBiasSameShape_bfloat16(p_low,b,x)=y"},
		"a norm before products": {append(slices.Clone(weights), norm, cast("n", "n_low", bfloat16),
			node("MatMul", "n_low W_low", "p_low"), cast("p_low", "y", float32Type)), onnx.TensorProto_BFLOAT16,
			"LayerNorm_bfloat16(x,b,b)=n,m,d MatMul(n,W_low)=p_low"},
		"a norm that float32 reads too": {append(slices.Clone(weights), norm, cast("n", "n_low", bfloat16),
			node("MatMul", "n_low W_low", "p_low"), cast("p_low", "p", float32Type), node("Mul", "p n", "y")),
			onnx.TensorProto_BFLOAT16, ""},
		"a norm whose result has low precision": {[]*onnx.NodeProto{norm, cast("n", "y", bfloat16)},
			onnx.TensorProto_BFLOAT16, "LayerNorm_bfloat16(x,b,b)=n,m,d"},
		"a norm that a subgraph reads": {[]*onnx.NodeProto{norm, cast("n", "n_low", bfloat16), node("Loop", "t", "y",
			&onnx.AttributeProto{G: &onnx.GraphProto{Node: []*onnx.NodeProto{node("Neg", "n_low", "r")}}})},
			onnx.TensorProto_BFLOAT16, "LayerNorm_bfloat16(x,b,b)=n,m,d"},
		"an activation between products": {append(slices.Clone(weights), lowProduct,
			cast("p_low", "h", float32Type), gelu, cast("g", "g_low", bfloat16),
			node("MatMul", "g_low W_low", "q_low"), cast("q_low", "y", float32Type)),
			onnx.TensorProto_BFLOAT16, "BiasQuickGelu_bfloat16(p_low,b)=g MatMul(g,W_low)=q_low"},
		"an activation that another operator reads": {append(slices.Clone(weights), lowProduct,
			cast("p_low", "h", float32Type), gelu, op("BiasQuickGeluGrad", "h b g", "d"), cast("d", "d_low", bfloat16),
			node("MatMul", "d_low W_low", "q_low"), cast("q_low", "y", float32Type)), onnx.TensorProto_BFLOAT16,
			"BiasQuickGelu_bfloat16(p_low,b)=g BiasQuickGeluGrad_bfloat16(p_low,b,g)=d MatMul(d,W_low)=q_low"},
		"an activation whose reader is of float32": {append(slices.Clone(weights), lowProduct,
			cast("p_low", "h", float32Type), gelu, op("BiasQuickGeluGrad", "h b g", "y")), onnx.TensorProto_BFLOAT16,
			""},
		"a gradient without optional inputs": {append(slices.Clone(weights), lowProduct,
			cast("p_low", "h", float32Type), op("AttentionGrad", "h s w h", "d"), cast("d", "d_low", bfloat16),
			node("MatMul", "d_low W_low", "q_low"), cast("q_low", "y", float32Type)), onnx.TensorProto_BFLOAT16,
			"AttentionGrad_bfloat16(p_low,s,w,p_low)=d MatMul(d,W_low)=q_low"},
		"an activation of float32": {append(slices.Clone(weights), node("Neg", "x", "h"), gelu,
			cast("g", "g_low", bfloat16), node("MatMul", "g_low W_low", "q_low"), cast("q_low", "y", float32Type)),
			onnx.TensorProto_BFLOAT16, ""},
		"an activation that is a result": {append(slices.Clone(weights), lowProduct, cast("p_low", "h", float32Type),
			op("BiasQuickGelu", "h b", "y")), onnx.TensorProto_BFLOAT16, ""},
	} {
		tensor := func(name string, dims ...int64) *onnx.TensorProto {
			return &onnx.TensorProto{Name: name, DataType: int32(onnx.TensorProto_FLOAT), Dims: dims}
		}
		m := &onnx.ModelProto{OpsetImport: []*onnx.OperatorSetIdProto{{Version: 18}}, Graph: &onnx.GraphProto{
			Node: c.nodes, Input: []*onnx.ValueInfoProto{{Name: "x"}}, Output: []*onnx.ValueInfoProto{{Name: "y"}},
			Initializer: []*onnx.TensorProto{tensor("W", 16, 16), tensor("narrow", 16, 4), tensor("b", 16),
				tensor("four", 4)}}}
		before := proto.Clone(m).(*onnx.ModelProto)
		old := convert.Slice(onnx.UsedNodes(m.Graph.Node, m.Graph.Output), describe)
		got := convert.Slice(ForDevice(m, c.low).Graph.Node, describe)
		fresh := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return slices.Contains(old, s) })
		if strings.Join(fresh, " ") != c.want || c.want == "" && len(got) < len(old) {
			t.Errorf("%s: %q, of which %q are new, want %q", name, got, fresh, c.want)
		}
		if !proto.Equal(m, before) {
			t.Errorf("%s: the model was changed", name)
		}
	}
}
