package client_test

import (
	"errors"
	"math"
	"testing"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// besideLoss is a method whose loss is the sum of its prompt, and half the square of the prompt is beside it. Each has
// a host function of value 0 and gradient 0. broken names the host function whose gradient fails, or "adjusted".
type besideLoss struct {
	countsLocalClasses
	broken string
}

func (m besideLoss) zero(s *method.Scope, name string) graph.Node {
	f := method.HostFunc{Differentiable: true, Forward: func(in ...*tensor.Tensor) (*tensor.Tensor, method.Pullback,
		error) {
		return tensor.New(1), func(*tensor.Tensor) ([]*tensor.Tensor, error) {
			if name == m.broken {
				return nil, errors.New("broken")
			}
			return []*tensor.Tensor{tensor.New(in[0].Shape...)}, nil
		}, nil
	}}
	return s.Host(name, f, []int{1}, s.Param("ctx")).Sum()
}

func (m besideLoss) Loss(s *method.Scope, _ graph.Node) graph.Node {
	ctx := s.Param("ctx")
	s.AuxLoss("square", ctx.Square().Sum().MulScalar(0.5).Add(m.zero(s, "second")))
	return ctx.Sum().Add(m.zero(s, "first"))
}

func (m besideLoss) AdjustGradients(l *method.Local, g tensor.Map) error {
	if m.broken == "adjusted" {
		return errors.New("not adjusted")
	}
	g["ctx"].Axpy(1, l.AuxGradients["square"]["ctx"])
	return nil
}

// By hand: a number x has the gradient 1 of the loss and x of the loss beside it. A step of 0.1 makes x+1 to 0.9(x+1),
// and nine examples in batches of four are three steps.
func TestAuxLossesByHand(t *testing.T) {
	e := withMethod(besideLoss{})
	o := sentTo(e, message.Train)
	r, _, err := newWorker(t, e, client.Settings{}).Execute(t.Context(), e.Clients[0], o, message.ClientState{})
	if err != nil || r.Stats.Steps != 3 {
		t.Fatal(r.Stats, err)
	}
	for i, x := range o.Shared["ctx"].Data {
		want := 0.729*(float64(x)+1) - 1
		if got := float64(r.Upload.Shared["ctx"].Data[i]); math.Abs(got-want) > 1e-6 {
			t.Errorf("%v became %v, by hand %v", x, got, want)
		}
	}
}

// A gradient that fails ends the turn, whether it is of the loss, of the loss beside it or the adjusted one.
func TestFailedGradients(t *testing.T) {
	for broken, says := range map[string]string{"first": "gradient of first: broken",
		"second": "gradient of second: broken", "adjusted": "not adjusted"} {
		e := withMethod(besideLoss{broken: broken})
		_, _, err := newWorker(t, e, client.Settings{}).Execute(t.Context(), e.Clients[0], sentTo(e, message.Train),
			message.ClientState{})
		if err == nil || err.Error() != "round 1, client 0: step 0: "+says {
			t.Errorf("%s: %v", broken, err)
		}
	}
}
