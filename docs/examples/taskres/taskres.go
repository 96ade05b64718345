// Package taskres is a method in a module of its own: importing it registers the method with promptfed.
package taskres

import (
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
)

// TaskRes learns no prompt but a residual "residual" [C,D] of the class features h_c of the hand-written prompt,
//
//	t_c = h_c + alpha x_c,  z_c = exp(logit_scale) f·t_c/|t_c|,
//
// x = 0 at first, and averages it (FedAvg of Yu et al., Task Residual for Tuning Vision-Language Models, CVPR 2023,
// section 4). The text tower never runs in a step. Residuals are of the experiment's classes and of the features'
// dimension: other classes are refused, and clients must agree in their backbone.
type TaskRes struct {
	method.Base
	Alpha float64 `config:"alpha" in:"0..1000" help:"scale of the residual"`
}

func init() {
	methods.Register(layer.Def{Name: "taskres", Title: "TaskRes", Default: TaskRes{Alpha: 0.5},
		Paper: "FedAvg of Yu et al., Task Residual for Tuning Vision-Language Models, CVPR 2023"})
}

// Properties states that the server needs nothing of clients but their mean, weighted by examples: the method runs with
// secure aggregation and under differential privacy.
func (TaskRes) Properties() method.Properties { return method.Properties{Mean: method.ByExamples} }

// Params is the residual.
func (TaskRes) Params(t method.ClientSpec) []method.Param {
	return []method.Param{{Name: "residual", Shape: []int{t.Classes, t.Dim}}}
}

// Logits are the class scores [B,C].
func (m TaskRes) Logits(s *method.Scope) graph.Node {
	return s.Cosine(s.Image(), s.HandText().Add(s.Param("residual").MulScalar(m.Alpha)).L2Normalize())
}
