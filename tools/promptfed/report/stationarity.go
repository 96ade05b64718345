package report

import (
	"fmt"
	"sync"

	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// stationarity has the norm of theorem 7 of SDFed for each round of a run: that of the mean over clients of the
// gradient of their losses with respect to the shared parameters, at the start of the round.
type stationarity struct {
	Run   string    `json:"run"`
	Norms []float64 `json:"norms"`
	// MeanSquare is the left side of the theorem's inequality, the mean over rounds of squared norms.
	MeanSquare float64 `json:"mean_square"`
}

func (s stationarity) String() string {
	text := s.Run + ": norm of the mean gradient over clients on shared parameters, at the start of each round: "
	for i, v := range s.Norms {
		if i > 0 {
			text += ", "
		}
		text += number(v)
	}

	return text + "; mean of squares " + number(s.MeanSquare)
}

// startGradients is a trace.Tracer that keeps the gradients of each client's first step in every round. They are those
// of the whole loss if a batch holds all images of a client.
type startGradients struct {
	shared map[string]bool // names of tensors in a trace that are kept

	mu     sync.Mutex
	kept   tensor.Map
	rounds []trace.RoundRecord
	params []string
}

// newStartGradients returns a tracer for some rounds of an experiment.
func newStartGradients(experiment *spec.Experiment, rounds int) *startGradients {
	tracer := &startGradients{shared: map[string]bool{}, kept: tensor.Map{},
		params: method.SharedNames(experiment.Method.Params(experiment.Task(experiment.Clients[0])))}
	for round := range rounds {
		for client := range experiment.Clients {
			for _, param := range tracer.params {
				raw, changed := startGradientNames(round, client, param)
				tracer.shared[raw], tracer.shared[changed] = true, true
			}
		}
	}

	return tracer
}

// startGradientNames returns the names in a trace of the gradient of the loss, which is there if the optimizer gets
// another one, and of that which the optimizer gets.
func startGradientNames(round, client int, param string) (raw, changed string) {
	at := fmt.Sprintf("r%d/c%d/s0/", round, client)
	return at + "grad_raw/" + param, at + "grad/" + param
}

func (s *startGradients) Put(name string, t *tensor.Tensor) {
	if s.shared[name] {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kept[name] = t.Clone()
	}
}

func (s *startGradients) Step(trace.StepRecord) {}

func (s *startGradients) Round(r trace.RoundRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds = append(s.rounds, r)
}

// result returns nil where nothing is shared, or where clients have shared parameters of several shapes.
func (s *startGradients) result(run string) *stationarity {
	out := &stationarity{Run: run}
	for _, record := range s.rounds {
		mean := tensor.Map{}
		for _, client := range record.Merged {
			for _, param := range s.params {
				raw, changed := startGradientNames(record.Round, client, param)
				grad := s.kept[raw]
				if grad == nil {
					grad = s.kept[changed]
				}

				switch {
				case grad == nil: // a client without a step, or a parameter that it does not train
					continue
				case mean[param] == nil:
					mean[param] = tensor.New(grad.Shape...)
				case !mean[param].SameShape(grad):
					return nil
				}

				mean[param].Axpy(1/float64(len(record.Merged)), grad)
			}
		}

		norm := mean.Norm()
		out.Norms = append(out.Norms, norm)
		out.MeanSquare += norm * norm / float64(len(s.rounds))
	}

	if out.MeanSquare == 0 {
		return nil
	}

	return out
}
