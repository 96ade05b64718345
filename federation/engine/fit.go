package engine

import (
	"context"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// fit minimises a loss over server-side parameters by plain gradient descent, in place: w <- w - lr dL/dw, steps times
// on all rows at once.
func (s *Server) fit(params, rows tensor.Map, loss func(*method.Scope) graph.Node, steps int, lr float64) error {
	var declared []method.Param
	for _, name := range params.Names() {
		declared = append(declared, method.Param{Name: name, Shape: params[name].Shape})
	}
	scope := method.NewScope(method.Task{Width: s.Global.Width, Clients: s.Plan.Clients}, declared)
	out, err := s.c.withGradients(nil, scope, loss(scope))
	if err != nil {
		return err
	}
	p, err := s.c.compile(nil, scope, out)
	if err != nil {
		return err
	}
	feed := tensor.Map{}
	for _, in := range p.inputs {
		for kind, m := range map[string]tensor.Map{method.ParamInput: params, method.DownInput: rows} {
			for name, t := range m {
				if in == kind+"/"+name {
					feed[in] = t
				}
			}
		}
	}
	for range steps {
		got, err := p.session.Run(context.Background(), feed)
		if err != nil {
			return err
		}
		for name, t := range params {
			if d := got[gradOutput+method.ParamInput+"/"+name]; d != nil {
				t.Axpy(-lr, d)
			}
		}
	}
	return nil
}
