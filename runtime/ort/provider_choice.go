package ort

import (
	"context"
	"fmt"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// ChooseProvider finds the provider that options will run on, before any work depends on it: it compiles and runs a
// graph of one node. Auto becomes CUDA, or else CPU with one device and no memory limit, and then why is the reason
// against CUDA. Sessions with the returned options run on that one provider or fail, so a run never uses two providers.
func ChooseProvider(o Options) (chosen Options, why error, err error) {
	o = o.WithProvider()
	if err := o.check(); err != nil || o.Provider == CPU {
		return o, nil, err
	}
	asked := o.Provider
	o.Provider = CUDA
	if why = o.probe(); why == nil || asked == CUDA {
		return o, nil, why
	}
	o.Provider, o.MemoryLimit, o.Devices = CPU, 0, 1
	return o, why, o.check()
}

// probe runs a graph of one node with the options.
func (o Options) probe() error {
	o.WeightsDir, o.Outputs = "", nil
	out, err := RunOnce(context.Background(), probeModel(), o, tensor.Map{"x": tensor.Of([]float32{2}, 1)})
	if err == nil && out["y"].Data[0] != 2 {
		err = fmt.Errorf("ort: provider %s computes %g for 2 in a graph of one node", o.Provider, out["y"].Data[0])
	}
	return err
}

// probeModel returns the model y = x for x [1].
func probeModel() *onnx.ModelProto {
	value := func(name string) *onnx.ValueInfoProto {
		return &onnx.ValueInfoProto{Name: name, Type: &onnx.TypeProto{Value: &onnx.TypeProto_TensorType{
			TensorType: &onnx.TypeProto_Tensor{ElemType: int32(onnx.TensorProto_FLOAT),
				Shape: &onnx.TensorShapeProto{Dim: []*onnx.TensorShapeProto_Dimension{{}}}}}}}
	}
	return &onnx.ModelProto{IrVersion: 8, OpsetImport: []*onnx.OperatorSetIdProto{{Version: 13}},
		Graph: &onnx.GraphProto{
			Name: "probe", Node: []*onnx.NodeProto{{OpType: "Identity", Input: []string{"x"}, Output: []string{"y"}}},
			Input:  []*onnx.ValueInfoProto{value("x")},
			Output: []*onnx.ValueInfoProto{value("y")}}}
}

// levels are the names of OptLevels, and their values in the binding.
var levels = []struct {
	name   string
	native binding.GraphOptimizationLevel
}{
	OptAll:      {"all", binding.GraphOptimizationLevelEnableAll},
	OptExtended: {"extended", binding.GraphOptimizationLevelEnableExtended},
	OptBasic:    {"basic", binding.GraphOptimizationLevelEnableBasic},
	OptNone:     {"none", binding.GraphOptimizationLevelDisableAll},
}

// ParseOptLevel returns the optimisation level of a name: all, extended, basic or none.
func ParseOptLevel(name string) (OptLevel, error) {
	for i, l := range levels {
		if l.name == name {
			return OptLevel(i), nil
		}
	}
	return 0, fmt.Errorf("unknown optimisation level %q: use all, extended, basic or none", name)
}
