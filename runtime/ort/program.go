package ort

import (
	"fmt"
	"slices"

	"promptfed/runtime/kernels"
	"promptfed/runtime/onnx"
)

// program is a model prepared for ONNX Runtime: every native input and output is float32 or int64.
type program struct {
	name            string
	inputs, outputs []ValueInfo
	native          []string             // names of the compiled graph's inputs, in the order of inputs
	results         []onnx.AdaptedOutput // where the values of each output are
	nativeOutputs   []string
	model           []byte
	weights         string   // folder of the external data, "" if there are none
	files           []string // of external data, in the folder
	external        []weight
}

// weight is a float32 initializer whose elements lie in a file.
type weight struct {
	name   string
	at     onnx.External
	shape  []int64
	packed *kernels.PackedMatrix // for the operator Product, otherwise nil
}

// LowerPrecision is onnx.LowerPrecision. Only tests change it, before the first session.
var LowerPrecision = onnx.LowerPrecision

func prepare(model *onnx.ModelProto, options Options) (*program, error) {
	graph := model.GetGraph()
	if graph == nil {
		return nil, fmt.Errorf("ort: the model has no graph")
	}

	program := &program{name: graph.GetName()}
	if low := options.lowered(); low != 0 {
		model = LowerPrecision(model, low)
	}

	adapted, err := onnx.Adapt(model, options.Outputs...)
	if err != nil {
		return nil, program.errorf("%w", err)
	}

	if program.inputs, err = ValueInfos(onnx.Inputs(graph)); err != nil {
		return nil, program.errorf("input %w", err)
	}

	if program.outputs, err = ValueInfos(adapted.Kept); err != nil {
		return nil, program.errorf("output %w", err)
	}

	switch {
	case len(program.inputs) == 0:
		return nil, program.errorf("it has no inputs, so there is nothing to run")
	case len(program.outputs) == 0:
		return nil, program.errorf("it has no outputs, so there is nothing to run")
	}

	program.native, program.results, program.nativeOutputs = adapted.Inputs, adapted.Outputs, adapted.Values
	model, weights, err := onnx.LocateExternal(adapted.Model, options.WeightsDir)
	if err != nil {
		return nil, program.errorf("%s; Options.WeightsDir is %q", plain(err), options.WeightsDir)
	}

	var packed []kernels.PackedMatrix
	if set, own := options.products(); own {
		model, packed = kernels.RewriteProducts(model, set)
	} else if options.Provider == CUDA || options.kernels != nil {
		model = kernels.ForDevice(model, options.lowered())
	}

	program.weights, program.external = weights, externals(model, packed)
	if program.files, err = onnx.ExternalFiles(model); err != nil {
		return nil, program.errorf("%w", err)
	}

	if program.model, err = onnx.Marshal(model); err != nil {
		return nil, program.errorf("encoding the model: %s", plain(err))
	}

	return program, nil
}

func externals(m *onnx.ModelProto, packed []kernels.PackedMatrix) (out []weight) {
	for _, t := range m.GetGraph().GetInitializer() {
		if !onnx.IsExternal(t) || t.DataType != int32(onnx.TensorProto_FLOAT) {
			continue
		}
		if at, err := onnx.ExternalOf(t); err == nil && at.Length > 0 {
			w := weight{name: t.Name, at: at, shape: t.Dims}
			if i := slices.IndexFunc(packed, func(p kernels.PackedMatrix) bool { return p.Name == t.Name }); i >= 0 {
				w.packed = &packed[i]
			}
			out = append(out, w)
		}
	}

	return out
}

// ValueInfos describes inputs or outputs of a model.
func ValueInfos(list []*onnx.ValueInfoProto) (out []ValueInfo, err error) {
	for _, v := range list {
		p, err := infoOf(v)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}

	return out, nil
}

func (p *program) errorf(format string, args ...any) error {
	return fmt.Errorf("ort: graph %q: "+format, append([]any{p.name}, args...)...)
}
