package ort

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// KernelsVariable is the environment variable that keeps the operators of runtime/kernels from GPUs, unless it is empty
// or on.
const KernelsVariable = "PROMPTFED_DEVICE_KERNELS"

// checkedDevices has, by number, the reason why a GPU does not run the operators of runtime/kernels; nil if it does.
var checkedDevices = struct {
	sync.Mutex
	why map[int]error
}{why: map[int]error{}}

// Kernels returns the operators of runtime/kernels that graphs for sessions with these options may hold. A GPU has them
// if it computes the results of the CPU with them.
func (o Options) Kernels() graph.KernelSet {
	if o = o.WithProvider(); o.Provider == Auto {
		o, _, _ = ChooseProvider(o)
	}

	if o.Provider == CPU {
		return graph.CPUKernels
	}

	for i := range max(1, o.Devices) {
		if kernelsOn(o.Device+i) != nil {
			return graph.NoKernels
		}
	}

	return graph.DeviceKernels
}

// kernelsOn returns the reason against kernels on a GPU, which it tries once.
func kernelsOn(device int) error {
	checkedDevices.Lock()
	defer checkedDevices.Unlock()
	if why, known := checkedDevices.why[device]; known {
		return why
	}

	set := cmp.Or(os.Getenv(KernelsVariable), "on")
	why := fmt.Errorf("%s is %q", KernelsVariable, set)
	if set == "on" {
		why = compareKernels(Options{Provider: CUDA, Device: device})
	}

	checkedDevices.why[device] = why
	if why != nil && (Options{Provider: CUDA, Device: device}).probe() == nil { // otherwise nothing runs there
		noteKernels(fmt.Errorf("device %d: %w", device, why))
	}

	return why
}

// compareKernels runs a graph of all operators of runtime/kernels that a device has, with options and on the CPU.
func compareKernels(options Options) error {
	if err := start(options.Provider != CPU); err != nil {
		return err
	}

	a, err := native()
	if err == nil && options.kernels == nil {
		options.kernels, err = a.deviceKernels()
	}

	if err != nil {
		return err
	}

	model, feeds, err := kernelsModel()
	if err != nil {
		return err
	}

	want, err := RunOnce(context.Background(), model, Options{Provider: CPU}, feeds)
	if err != nil {
		return err
	}

	got, err := RunOnce(context.Background(), model, options, feeds)
	if err != nil {
		return err
	}

	for _, name := range want.Names() {
		if d, most := tensor.Distance(got[name], want[name]), want[name].MaxAbs(); !(d <= 1e-4*most) {
			return fmt.Errorf("with promptfed's operators, %s differs from the CPU's by %.2g of its largest element",
				name, d/most)
		}
	}

	return nil
}

// kernelsModel returns a graph with each operator that kernels.ForDevice leaves and each that it makes in float32, and
// inputs for it: rows that attend to a shared prefix of two rows and to themselves.
func kernelsModel() (*onnx.ModelProto, tensor.Map, error) {
	const rows, heads, width = 5, 2, 32
	draw := func(shape ...int) *tensor.Tensor {
		t := tensor.New(shape...)
		for i := range t.Data {
			t.Data[i] = float32(math.Sin(float64(i*i + len(shape))))
		}
		return t
	}

	g := graph.New()
	input := g.Input("x", graph.Float, graph.Static(rows, 3*width))
	weight := func(shape ...int) graph.Node { return g.Const(draw(shape...)) }
	own := func(kind string, outputs int, at graph.Attrs, in ...graph.Node) []graph.Node {
		return g.ApplyN(graph.Kernels, kind, at, outputs, in...)
	}

	var spans, asked []int64 // see nn.PackedAttention
	for i := range int64(rows) {
		spans = append(spans, 0, min(i, 2), i, i+1, i)
		asked = append(asked, i, max(i+1, rows*(1-min(1, i/2))), i)
	}

	at := graph.Attrs{"heads": graph.Attr(heads), "keys": graph.Attr(16)}
	span, ask := g.Const(tensor.OfInts(spans, rows, 5)), g.Const(tensor.OfInts(asked, rows, 3))
	norm := own("LayerNorm", 3, graph.Attrs{"epsilon": graph.Attr(float32(1e-5))}, input, weight(3*width),
		weight(3*width))
	attended := own("Attention", 2, at, norm[0], span, ask)
	y := attended[0]
	back := own("AttentionGrad", 1, at, norm[0], span, attended[1], weight(rows, width), y, ask)[0]
	back = own("LayerNormGrad", 1, nil, input, weight(3*width), norm[1], norm[2], back)[0]
	back = own("AddSameShape", 1, nil, back, own("AddSameShape", 1, nil, input, norm[0])[0])[0]
	wide := y.MatMul(weight(width, 3*width)).Add(weight(3 * width))
	wide = own("AddSameShape", 1, nil, wide, back)[0]
	gelu := own("BiasQuickGelu", 1, nil, wide, weight(3*width))[0]
	geluGrad := own("BiasQuickGeluGrad", 1, nil, wide, weight(3*width), gelu)[0]
	unit := own("L2Normalize", 2, nil, gelu)
	unitGrad := own("L2NormalizeGrad", 1, nil, unit[0], unit[1], geluGrad)[0]
	loss := own("CrossEntropy", 2, nil, unit[0].MulScalar(9), g.Const(tensor.OfInts([]int64{0, 95, 40, 7, 1}, rows)))
	var outputs []graph.Output
	others := []graph.Node{back, wide, geluGrad, unitGrad}
	for i, n := range slices.Concat(norm, attended, others, unit, loss) {
		outputs = append(outputs, graph.Output{Name: fmt.Sprintf("result %d", i), Node: n})
	}

	model, err := graph.Model(outputs...)
	return model, tensor.Map{"x": draw(rows, 3*width)}, err
}
