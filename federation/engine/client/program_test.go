package client_test

import (
	"fmt"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// scaledLoss is a method whose loss on client k of n is (k+1)+10n times the base method's in the graph, and k+1 times
// that again in a host function. The clients differ in their specs only.
type scaledLoss struct{ method.Method }

func (m scaledLoss) Loss(s *method.Scope, logits graph.Node) graph.Node {
	k := float64(s.Task().Client + 1)
	by := method.HostFunc{Forward: func(...*tensor.Tensor) (*tensor.Tensor, method.Pullback, error) {
		return tensor.Of([]float32{float32(k)}, 1), nil, nil
	}}
	host := s.Host("number", by, []int{1}, s.Param("ctx")).Reshape()
	return m.Method.Loss(s, logits).MulScalar(k + 10*float64(s.Task().Clients)).Mul(host)
}

// The step of every client is built for its own spec. The first loss of client k of 4 is (k+1)(k+1+40) times that of
// the same client without the factor, by the definition of numbered.
func TestProgramsFollowTheTask(t *testing.T) {
	m := buildMethod(t, "promptfl", nil, map[string]any{"tokens": 2})
	losses := func(m method.Method) map[string]float64 {
		e := withMethod(m)
		e.Clients, e.Plan.Rounds = methodtest.ClientsOfOneBackbone(3, 3, 3, 3), 1
		rec := trace.NewRecorder()
		mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}})
		out := map[string]float64{}
		for k := range e.Clients {
			name := fmt.Sprintf("r0/c%d/s0/loss", k)
			out[name] = float64(rec.Tensors[name].Data[0])
		}
		return out
	}
	plain, got := losses(m), losses(scaledLoss{m})
	for k := range 4 {
		name := fmt.Sprintf("r0/c%d/s0/loss", k)
		want := plain[name] * float64((k+1)*(k+1+40))
		if d := got[name]/want - 1; d > 1e-6 || d < -1e-6 {
			t.Errorf("client %d: loss %v, by hand %v", k, got[name], want)
		}
	}
}
