package grad_test

import (
	"math"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

func golden(t *testing.T, file string) tensor.Map {
	t.Helper()
	var m tensor.Map
	goldentest.ReadJSON(t, "testdata/"+file, &m)
	return m
}

func run(t *testing.T, model *onnx.ModelProto, feeds tensor.Map) tensor.Map {
	t.Helper()
	return orttest.Run(t, model, "", feeds)
}

// near compares with a bound relative to the largest absolute value.
func near(t *testing.T, what string, got, want *tensor.Tensor, bound float64) {
	t.Helper()
	if !got.SameShape(want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	worst := 0.0
	for i := range want.Data {
		worst = max(worst, math.Abs(float64(got.Data[i])-float64(want.Data[i])))
	}
	if !(worst <= bound*want.MaxAbs()) {
		t.Errorf("%s: off by %.2g, largest value %.2g", what, worst, want.MaxAbs())
	}
}

// TestExportedGraphs differentiates files of PyTorch's exporter and compares with PyTorch's autograd
// (tools/golden/onnx_export.py). The batch of the check is not that of the export.
func TestExportedGraphs(t *testing.T) {
	for _, net := range []string{"convnet", "block"} {
		want := golden(t, net+".json")
		for _, opset := range []string{"11", "13", "17"} {
			t.Run(net+"-"+opset, func(t *testing.T) {
				f, err := graph.ReadFile("testdata/" + net + "-" + opset + ".onnx")
				goldentest.NoError(t, err)
				forward, err := f.Model(f.Outputs...)
				goldentest.NoError(t, err)
				near(t, "y", run(t, forward, tensor.Map{"x": want["x"]})["y"], want["y"], 1e-5)
				back, err := grad.VJPModel(f, []string{"y"}, []string{"x"})
				goldentest.NoError(t, err)
				got := run(t, back, tensor.Map{"x": want["x"], "cotangent/y": want["c"]})
				near(t, "gradient", got["grad/x"], want["grad"], 1e-5)
			})
		}
	}
}
