package local

import (
	"context"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Fit is method.Global.Fit: steps of an optimizer without memory of earlier ones, on all rows at once. The weights
// alone are what a run goes on from.
func (w *Worker) Fit(task method.Task, params, rows tensor.Map, loss func(*method.Scope) graph.Node, steps int,
	o optim.Config) (float64, error) {
	opt, err := optim.New(o)
	if err != nil {
		return 0, err
	}
	var declared []method.Param
	for _, name := range params.Names() {
		declared = append(declared, method.Param{Name: name, Shape: params[name].Shape})
	}
	scope := method.NewScope(task, declared)
	p, err := w.c.trained(nil, scope, []graph.Output{{Name: lossOutput, Node: loss(scope)}})
	if err != nil {
		return 0, err
	}
	f := feed{tensor.Map{}, ort.Values{}}
	for _, in := range p.inputs {
		switch kind, name, _ := strings.Cut(in, "/"); {
		case kind == method.ParamInput && params[name] != nil:
			f.now[in] = params[name]
		case kind == method.BroadcastInput && rows[name] != nil:
			f.held[in] = ort.NewValue(rows[name])
		}
	}
	for step := 0; ; step++ {
		got, err := p.run(context.Background(), f)
		if err != nil {
			return 0, err
		}
		if step == steps {
			return float64(got[lossOutput].Data[0]), message.CheckFinite("", tensor.Map{lossOutput: got[lossOutput]})
		}
		grads := tensor.Map{}
		for name := range params {
			if d := got[gradOutput+method.ParamInput+"/"+name]; d != nil {
				grads[name] = d
			}
		}
		if err := opt.Step(params, grads, o.LR); err != nil {
			return 0, err
		}
	}
}
