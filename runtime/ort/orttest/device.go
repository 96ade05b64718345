package orttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	_ "promptfed/runtime/ops" // defines the operators
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// cudaKernels are the operators of this project's graphs that ONNX Runtime's CUDA provider computes, by the types of
// their data, from ONNX Runtime's docs/OperatorKernels.md, and those of runtime/kernels/device.cu. ONNX Runtime writes
// SoftmaxCrossEntropyLoss out in others.
var cudaKernels = map[string]string{
	"float": "AveragePool BatchNormalization Clip Conv ConvTranspose Erf Exp GatherND Gelu Gemm GlobalAveragePool " +
		"HardSigmoid HardSwish LayerNormalization LeakyRelu Log LogSoftmax MatMul MaxPool OneHot Pad Reciprocal " +
		"ReduceL2 ReduceMean Relu Resize Sigmoid Softmax SoftmaxCrossEntropyLoss Softplus Sqrt Tanh " +
		"com.microsoft.FusedMatMul com.microsoft.MatMulNBits com.microsoft.MultiHeadAttention " +
		"com.microsoft.QuickGelu promptfed.AddSameShape " +
		"promptfed.Attention promptfed.AttentionGrad promptfed.BiasQuickGelu promptfed.BiasQuickGeluGrad " +
		"promptfed.CrossEntropy promptfed.L2Normalize promptfed.L2NormalizeGrad promptfed.LayerNorm " +
		"promptfed.LayerNormGrad",
	"float int64": "Abs Add Div EyeLike Greater Less Max Min Mul Neg Pow ReduceMax ReduceMin ReduceSum Sign Sub Where",
	"float int64 bool": "Cast Concat Equal Expand Flatten Gather GatherElements Identity Reshape ScatterElements " +
		"Slice Split Squeeze Transpose Unsqueeze",
	"bool": "And Not Or",
}

// hostOnly are operators that compute sizes, wait for the device to learn one, or control the flow. A CUDA graph cannot
// hold them.
var hostOnly = []string{"Compress", "ConstantOfShape", "If", "Loop", "NonZero", "Range", "Scan", "Shape", "Size",
	"Unique"}

// hostInputs are the inputs of operators that the CUDA provider reads on the host.
var hostInputs = map[string][]int{"Expand": {1}, "OneHot": {1}, "Pad": {1, 3}, "ReduceMax": {1}, "ReduceMean": {1},
	"ReduceMin": {1}, "ReduceSum": {1}, "Reshape": {1}, "Resize": {1, 2, 3}, "Slice": {1, 2, 3, 4}, "Split": {1},
	"Squeeze": {1}, "Tile": {1}, "TopK": {1}, "Unsqueeze": {1}}

// OffDevice lists what keeps ONNX Runtime from computing all of a graph on a CUDA device, and from capturing it: sizes
// that are not constants, and operators without a kernel for the type of their data. Values of constants alone are
// computed while ONNX Runtime compiles the graph, but no number may be computed from constant integers.
func OffDevice(m *onnx.ModelProto) (sizes, kernels []string) {
	f, err := graph.ReadModel(proto.Clone(m).(*onnx.ModelProto))
	if err != nil {
		return []string{err.Error()}, nil
	}

	var roots []graph.Node
	for _, o := range f.Outputs {
		if _, ok := o.Node.Shape().Ints(); !ok {
			sizes = append(sizes, fmt.Sprintf("output %s of shape %v", o.Name, o.Node.Shape()))
		}
		roots = append(roots, o.Node)
	}

	reads := graph.ReadersOf(func(graph.Node) bool { return true }, roots...)
	for _, op := range graph.Reachable(roots...) {
		if op.IsInput() || op.Literal() != nil {
			continue
		}

		data, kind := op.X(map[string]int{"Where": 1, "OneHot": 2}[op.Kind]), onnx.Kind(op.Domain, op.Kind)
		number := op.Out[0].Shape().Size().Is(1) && data.DType() == graph.Int64 &&
			(op.Out[0].DType() == graph.Int64 || op.Out[0].DType() == graph.Float)
		switch dtype := strings.ToLower(data.DType().String()); {
		case slices.Contains(hostOnly, kind), !reads[op] && number && kind != "Identity":
			sizes = append(sizes, fmt.Sprintf("%s of %s %v", kind, dtype, data.Shape()))
		case reads[op] && !computes(kind, dtype):
			kernels = append(kernels, kind+" of "+dtype)
		}

		for _, i := range hostInputs[kind] {
			if x := op.X(i); reads[op] && x.OK() && x.Op().Literal() == nil {
				sizes = append(sizes, fmt.Sprintf("%s with input %d of %s", kind, i, x.Op().Label()))
			}
		}
	}

	slices.Sort(sizes)
	slices.Sort(kernels)
	return slices.Compact(sizes), slices.Compact(kernels)
}

// OfCPU reports whether a node is an operator of runtime/kernels that only the CPU has, or without what a device needs.
func OfCPU(n *onnx.NodeProto) bool {
	return n.Domain == graph.Kernels && (!computes(n.Domain+"."+n.OpType, "float") ||
		n.OpType == "Attention" && len(n.Input) < 3 || n.OpType == "AttentionGrad" && len(n.Input) < 6)
}

func computes(operator, kind string) bool {
	for types, operators := range cudaKernels {
		if slices.Contains(strings.Fields(operators), operator) {
			return slices.Contains(strings.Fields(types), kind)
		}
	}
	return false
}

// CheckOnDevice reports what OffDevice finds in graphs of fixed sizes that a test and its subtests run.
func CheckOnDevice(t *testing.T) {
	var found sync.Map
	ort.OnFixed = func(m *onnx.ModelProto) {
		sizes, kernels := OffDevice(m)
		for _, bad := range append(sizes, kernels...) {
			found.Store(bad, nil)
		}
	}

	t.Cleanup(func() {
		ort.OnFixed = nil
		found.Range(func(bad, _ any) bool {
			t.Errorf("a graph of fixed sizes has %s", bad)
			return true
		})
	})
}

// Run runs a model whose weights lie in dir. A GPU must be able to run all of it where the sizes of inputs are fixed.
func Run(t testing.TB, model *onnx.ModelProto, dir string, in tensor.Map) tensor.Map {
	t.Helper()
	out, fixed := RunFixed(t, model, dir, in)
	sizes, kernels := OffDevice(fixed)
	if slices.ContainsFunc(fixed.Graph.Node, OfCPU) {
		kernels = nil
	}

	for _, bad := range append(sizes, kernels...) {
		t.Errorf("with fixed sizes it has %s", bad)
	}

	return out
}

// RunFixed runs a model, and its form for the sizes of the inputs (graph.FixSizes), which it returns. On the CPU both
// have the same values, to the last bit: where ONNX Runtime fuses operators because it knows their sizes in one of them
// only, without its optimizations. See CheckClose for a GPU.
func RunFixed(t testing.TB, model *onnx.ModelProto, dir string, in tensor.Map) (tensor.Map, *onnx.ModelProto) {
	t.Helper()
	shapes := map[string][]int{}
	for name, x := range in {
		shapes[name] = x.Shape
	}

	fixed, err := graph.FixSizes(model, shapes)
	goldentest.NoError(t, err)

	compute := func(m *onnx.ModelProto, level ort.OptLevel) tensor.Map {
		return RunOnce(t, m, ort.Options{WeightsDir: dir, OptLevel: level}, in)
	}

	out, got := compute(model, ort.OptAll), compute(fixed, ort.OptAll)
	switch {
	case !OnCPU():
		for name, want := range out {
			CheckClose(t, name+" where sizes are fixed", got[name], want)
		}
	case len(differing(out, got)) > 0:
		for _, name := range differing(compute(model, ort.OptNone), compute(fixed, ort.OptNone)) {
			t.Errorf("%s differs where sizes are fixed", name)
		}
	}

	return out, fixed
}

// differing lists the tensors of a that are others in b.
func differing(a, b tensor.Map) (names []string) {
	for name, want := range a {
		if got := b[name]; !got.SameShape(want) || !bytes.Equal(bits(got), bits(want)) {
			names = append(names, name)
		}
	}
	return names
}

func bits(x *tensor.Tensor) []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, x.Data)
	b, _ = binary.Append(b, binary.LittleEndian, x.Ints)
	return b
}
