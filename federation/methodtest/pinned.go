package methodtest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// Pinned is a method with given initial values instead of drawn ones: shared parameters and broadcast tensors by name,
// private parameters as cK/NAME. A client's random numbers in its steps come from PinnedRand.
type Pinned struct {
	method.Method
	First tensor.Map
}

// Start is that of the method, after which First replaces the shared parameters and the broadcast tensors that it
// names.
func (p Pinned) Start(global *method.Global) error {
	if err := p.Method.Start(global); err != nil {
		return err
	}

	for _, m := range []tensor.Map{global.Shared, global.Broadcast} {
		for name := range m {
			if t := p.First[name]; t != nil {
				m[name] = filled(t, m[name].Shape)
			}
		}
	}

	return nil
}

// Params draws zeros for the private parameters that Begin sets.
func (p Pinned) Params(t method.ClientSpec) []method.Param {
	out := slices.Clone(p.Method.Params(t))
	for i := range out {
		if p.First[fmt.Sprintf("c%d/%s", t.Client, out[i].Name)] != nil {
			out[i].Std, out[i].Init = 0, nil
		}
	}
	return out
}

// Begin replaces the client's random numbers, and in the first round its private parameters, before that of the method.
func (p Pinned) Begin(local *method.Local) error {
	local.Rand = PinnedRand(local.Round, local.Task.Client)
	if local.Round == 0 {
		for name := range local.Private {
			if t := p.First[fmt.Sprintf("c%d/%s", local.Task.Client, name)]; t != nil {
				local.Private[name] = filled(t, local.Private[name].Shape)
			}
		}
	}

	return p.Method.Begin(local)
}

// filled returns t, or a tensor of that shape full of t's only element.
func filled(t *tensor.Tensor, shape []int) *tensor.Tensor {
	if t.Len() != 1 {
		return t.Clone()
	}

	out := tensor.New(shape...)
	for i := range out.Data {
		out.Data[i] = t.Data[0]
	}

	return out
}

// InOrder is data whose passes follow the order of the rows.
type InOrder struct{ *spec.Features }

func (d InOrder) Order(*rand.Rand) []int { return tensor.Indices(d.Len()) }

// probe is a method whose clients take their first step at given values, whatever the server sent, and their second
// step at other values. Constants for gradients keep their values from the first step, and random numbers are drawn
// again.
type probe struct {
	method.Method
	first, second tensor.Map
}

func (p *probe) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := p.Method.Loss(scope, logits)
	hosts := scope.Built().Hosts
	for i := range hosts {
		if f := &hosts[i].Func; !f.Differentiable {
			f.Every = method.EveryRound
		}
	}

	return loss
}

func (p *probe) Begin(local *method.Local) error {
	if err := p.Method.Begin(local); err != nil {
		return err
	}
	local.Rand = method.Rand(1, "probe")
	take(local, p.first)
	return nil
}

func (p *probe) AdjustGradients(local *method.Local, g tensor.Map) error {
	if err := p.Method.AdjustGradients(local, g); err != nil {
		return err
	}
	local.Rand = method.Rand(1, "probe")
	take(local, p.second)
	return nil
}

func take(local *method.Local, from tensor.Map) {
	for _, m := range []tensor.Map{local.Shared, local.Private} {
		for name := range m {
			m[name] = from[name].Clone()
		}
	}
}

// Source is a source of random bits from Value(salt, 0), Value(salt, 1) and so on, so that another language can repeat
// the draws of math/rand/v2. Each number of either kind takes one of them; with x the 32 bits (Value+1)·2^31 and
// j = (x as a signed number) >> 1:
//
//	NormFloat64 is j times normalWidth,
//	Float64 is the lower 53 bits of (x>>18)<<39 | 127<<32 | (j as 32 bits), divided by 2^53.
type Source struct {
	Salt int
	n    int
}

// normalWidth is the width of layer 127 in math/rand/v2's ziggurat, a float32; all j above lie inside it.
const normalWidth = 1.6030947938091123e-09

// Uint64 returns the bits for the next number of the sequence.
func (s *Source) Uint64() uint64 {
	x := uint32((Value(s.Salt, s.n) + 1) * (1 << 31))
	s.n++
	return uint64(x>>18)<<39 | 127<<32 | uint64(uint32(int32(x)>>1))
}

// PinnedRand returns the random source of a client in a round of a Pinned method.
func PinnedRand(round, client int) *rand.Rand {
	return rand.New(&Source{Salt: 8000 + 100*round + client})
}
