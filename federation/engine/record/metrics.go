package record

import (
	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
)

// Metrics returns the round as the definitions of metrics read it, in the evaluation of its headline. Totals over
// rounds are 0.
func (r Record) Metrics() metrics.Round {
	view := method.GlobalView
	if r.View == method.PersonalView.String() {
		view = method.PersonalView
	}
	out := metrics.Round{Number: r.Round, Evaluation: r.Evaluation, Validation: r.Validation.Of(view),
		BaseToNew: r.BaseToNew.Of(view),
		Notes:     r.Notes, Loss: r.Loss, Seconds: r.Seconds, Bytes: float64(r.BytesUp) + float64(r.BytesDown)}
	if len(r.EvaluationSets)+len(r.NewClients) > 0 {
		out.Sets, out.NewClients = map[string]*metrics.Evaluation{}, map[string]*metrics.Evaluation{}
	}
	for name, t := range r.EvaluationSets {
		out.Sets[name] = t.Evaluation
	}
	for steps, t := range r.NewClients { // what a client has of its own after its steps, whatever headlines are of
		if out.NewClients[steps] = t.Evaluations.Personal; t.Evaluations.Personal == nil {
			out.NewClients[steps] = t.Evaluation
		}
	}
	if a := r.Attack; a != nil {
		out.Attacked, out.Honest, out.Success = true, a.Global, a.SuccessGlobal
		if view == method.PersonalView {
			out.Honest, out.Success = a.Personal, a.SuccessPersonal
		}
	}
	if r.Simulated != nil {
		out.Simulated = &r.Simulated.Seconds
	}
	return out
}
