package onnx

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// maxBlock bounds the side of a block, because ONNX Runtime divides by its square, which must not overflow.
const maxBlock = 1 << 20

// Domains of operators that ONNX does not define.
const (
	Microsoft = "com.microsoft" // contrib operators of ONNX Runtime
	Kernels   = "promptfed"     // custom operators of runtime/kernels, for the CPU
)

// fused are the operators of Microsoft's domain that a file may hold: those in exports of towers after fusion or
// quantisation. All others are rejected, because their shape inference in ONNX Runtime 1.30.0 reads beyond omitted
// inputs and unexpected numbers of dimensions. Sources: release notes of 1.30.1, and sessions of random nodes of each
// operator that ended the process (CausalConvWithState, ConvTransposeWithDynamicPads, GatherBlockQuantized,
// QLinearLeakyRelu, QLinearSigmoid, QLinearWhere, QMoE; the last four in 1.32.0, too).
var fused = nameSet("Attention", "BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "DequantizeLinear",
	"DynamicQuantizeMatMul", "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul", "FusedMatMulActivation", "Gelu",
	"GemmFastGelu", "GroupNorm", "MatMulInteger16", "MatMulIntegerToFloat", "MatMulNBits", "MultiHeadAttention",
	"NhwcConv", "NhwcFusedConv", "NhwcMaxPool", "QAttention", "QGemm", "QLinearAdd", "QLinearAveragePool",
	"QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool", "QLinearMul", "QLinearSoftmax", "QuantizeLinear",
	"QuickGelu", "RotaryEmbedding", "SkipGroupNorm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
	"TransposeMatMul")

func nameSet(names ...string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		out[name] = true
	}
	return out
}

// checkGraphs rejects graphs for which ONNX Runtime is known to read or write outside of its memory, or to end the
// process: cases that release 1.30.1 fixes, block sizes that it divides by, and operators that towers do not have. It
// also rejects graphs that ONNX Runtime would expand without a bound (see checkExpansion). It holds for any installed
// release, and knows what malformed lists, not every fault of ONNX Runtime: run a stranger's model as a user that may
// do little.
func checkGraphs(model *ModelProto) error {
	checker := &graphChecker{functions: map[string]*FunctionProto{}, types: typeNames(model)}
	for _, f := range model.Functions {
		key := callKey(f.Domain, f.Name, f.Overload)
		if checker.functions[key] != nil {
			return fmt.Errorf("function %s of domain %q is defined twice", f.Name, f.Domain)
		}
		checker.functions[key] = f
	}

	if err := checkExpansion(model, checker.functions, maxGraphs); err != nil {
		return err
	}

	version := Version(model.OpsetImport)
	for _, t := range model.TrainingInfo {
		for _, g := range []*GraphProto{t.Initialization, t.Algorithm} {
			if err := checker.part(version, &ModelProto{Graph: g}); err != nil {
				return err
			}
		}
	}

	for _, f := range model.Functions {
		own := Version(f.OpsetImport)
		if own == 0 {
			own = version
		}
		if err := checker.part(own, &ModelProto{Functions: []*FunctionProto{f}}); err != nil {
			return fmt.Errorf("function %s: %w", f.Name, err)
		}
	}

	return checker.part(version, &ModelProto{Graph: model.Graph})
}

// graphChecker checks the graphs of one model.
type graphChecker struct {
	functions map[string]*FunctionProto
	types     map[string]bool // see typeNames
}

// callKey returns the key of a function for any spelling of its domain.
func callKey(domain, name, overload string) string {
	if Standard(domain) {
		domain = ""
	}
	return domain + ":" + name + ":" + overload
}

// typeNames returns the attributes that name an element type, and the function attributes that they refer to.
func typeNames(m *ModelProto) map[string]bool {
	from := map[string][]string{} // attributes of functions, by the attributes that refer to them
	for x := range Messages(m) {
		if a, ok := x.(*AttributeProto); ok && a.RefAttrName != "" {
			from[a.Name] = append(from[a.Name], a.RefAttrName)
		}
	}

	todo := []string{"to", "dtype", "output_dtype", "output_datatype"}
	out := nameSet(todo...)
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		for _, other := range from[name] {
			if !out[other] {
				out[other], todo = true, append(todo, other)
			}
		}
	}

	return out
}

// part checks a graph or a function of the model, with operator set version.
func (c *graphChecker) part(version int64, model *ModelProto) error {
	constants := map[*TensorProto]bool{} // initializers and values of Constant nodes
	packed := map[string]bool{}          // names of those with elements of less than a byte
	constant := func(name string, t *TensorProto) {
		constants[t] = true
		packed[name] = packed[name] || small(t.GetDataType())
	}

	for x := range Messages(model) {
		switch x := x.(type) {
		case *GraphProto:
			for _, t := range x.Initializer {
				constant(t.Name, t)
			}
		case *NodeProto:
			if x.OpType == "Constant" && len(x.Attribute) == 1 && len(x.Output) == 1 {
				constant(x.Output[0], x.Attribute[0].T)
			}
		}
	}

	for x := range Messages(model) {
		var err error
		switch message := x.(type) {
		case *GraphProto:
			err = checkValues(message, packed)
		case *NodeProto:
			if err = c.node(message, version, packed); err != nil {
				err = &NodeError{Label: Label(message.OpType, message.Name), Err: err}
			}
		case *FunctionProto: // default attributes
			for _, a := range message.AttributeProto {
				if err == nil && c.types[a.Name] && small(int32(a.I)) {
					err = fmt.Errorf("attribute %s: %w", a.Name, errSmall)
				}
			}
		case *TensorProto:
			if small(message.DataType) && !constants[message] {
				err = fmt.Errorf("tensor %q: %w", message.Name, errSmall)
			}
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func small(dtype int32) bool {
	b, known := bits[TensorProto_DataType(dtype)]
	return known && b < 8
}

// errSmall is about types for which ONNX Runtime 1.30.0 allocates half the memory that it writes, if the memory held a
// value of such a type before.
var errSmall = errors.New("elements of less than a byte are supported in constants that DequantizeLinear reads, and " +
	"nowhere else: export the model with 8 bits")

func checkValues(g *GraphProto, packed map[string]bool) error {
	for _, v := range slices.Concat(g.Input, g.ValueInfo) {
		if small(v.GetType().GetTensorType().GetElemType()) && !packed[v.Name] {
			return fmt.Errorf("value %q: %w", v.Name, errSmall)
		}
	}

	for _, v := range g.Output {
		if small(v.GetType().GetTensorType().GetElemType()) || packed[v.Name] {
			return fmt.Errorf("output %q: %w", v.Name, errSmall)
		}
	}

	return nil
}

func (c *graphChecker) node(node *NodeProto, version int64, packed map[string]bool) error {
	proto := c.functions[callKey(node.Domain, node.OpType, node.Overload)]
	switch {
	case proto != nil:
		if len(node.Input) > len(proto.Input) || len(node.Output) > len(proto.Output) {
			return fmt.Errorf("%d inputs and %d outputs for a function of %d and %d", len(node.Input), len(node.Output),
				len(proto.Input), len(proto.Output))
		}
	case node.Domain == Microsoft && !fused[node.OpType], node.Domain != Microsoft && !Standard(node.Domain):
		return fmt.Errorf("operator %s of domain %q is not allowed in a file: export the model with ONNX's own "+
			"operators", node.OpType, node.Domain)
	}

	for _, name := range node.Input {
		if packed[name] && node.OpType != "DequantizeLinear" {
			return fmt.Errorf("input %q: %w", name, errSmall)
		}
	}

	control := proto == nil && Standard(node.Domain) && (node.OpType == "If" || node.OpType == "Loop" ||
		node.OpType == "Scan")
	for _, a := range node.Attribute {
		if err := c.attribute(node, a); err != nil {
			return fmt.Errorf("attribute %s %w", a.Name, err)
		}
		if !control && (a.G != nil || len(a.Graphs) > 0 || a.Type == AttributeProto_GRAPH ||
			a.Type == AttributeProto_GRAPHS) {
			return fmt.Errorf("attribute %s is a graph; only If, Loop and Scan may have graphs", a.Name)
		}
		if a.Name == "body" && (node.OpType == "Loop" || node.OpType == "Scan" && version >= 9) {
			if takes := bodyInputs(a.G); takes != len(node.Input) {
				return fmt.Errorf("%d inputs for a body that takes %d besides its constants", len(node.Input), takes)
			}
		}
	}

	return nil
}

// attribute checks attributes that ONNX Runtime 1.30.0 uses without a check: as a divisor, a number of outputs or an
// index.
func (c *graphChecker) attribute(n *NodeProto, attribute *AttributeProto) error {
	least, most, own := int64(math.MinInt64), int64(math.MaxInt64), Standard(n.Domain)
	switch {
	case attribute.RefAttrName == "" && c.types[attribute.Name] && small(int32(attribute.I)):
		return fmt.Errorf("is %v: %w", TensorProto_DataType(attribute.I), errSmall)
	case own && (n.OpType == "DepthToSpace" || n.OpType == "SpaceToDepth") && attribute.Name == "blocksize":
		least, most = 1, maxBlock
	case own && n.OpType == "Split" && attribute.Name == "num_outputs":
		least, most = int64(len(n.Output)), maxParts
	case n.Domain == Microsoft && attribute.Name == "qkv_hidden_sizes" && len(attribute.Ints) != 3:
		return fmt.Errorf("has %d numbers and must have 3", len(attribute.Ints))
	}

	if least != math.MinInt64 && attribute.RefAttrName != "" {
		return errors.New("refers to an attribute of a function's caller, which is not supported")
	}

	if attribute.I < least || attribute.I > most {
		return fmt.Errorf("is %d and must be from %d to %d", attribute.I, least, most)
	}

	return nil
}

// bodyInputs counts the inputs of a body that are not its constants.
func bodyInputs(g *GraphProto) int {
	sparse := map[string]bool{}
	for _, t := range g.GetSparseInitializer() {
		sparse[t.GetValues().GetName()] = true
	}
	return len(slices.DeleteFunc(Inputs(g), func(v *ValueInfoProto) bool { return sparse[v.Name] }))
}
