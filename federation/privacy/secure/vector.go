package secure

import (
	"fmt"
	"math"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Positions after the parameters in a vector.
const (
	atWeight = iota
	atLoss
	atClipped
	trailers
)

// maxLoss is the bound at which losses are clipped.
const maxLoss = 64

// maxInteger returns the largest rounded number.
func (l *Aggregation) maxInteger() int64 { return 1<<(l.config.Bits-1) - 1 }

// Step returns the size of one step of a rounded number.
func (l *Aggregation) Step() float64 { return l.config.Clip / float64(l.maxInteger()) }

// quantize rounds x to steps of a unit and reports whether it was clipped.
func (l *Aggregation) quantize(x, unit float64) (v int64, cut bool) {
	v = int64(math.RoundToEven(math.Max(-2, math.Min(2, x/unit/float64(l.maxInteger()))) * float64(l.maxInteger())))
	switch {
	case v > l.maxInteger():
		return l.maxInteger(), true
	case v < -l.maxInteger():
		return -l.maxInteger(), true
	}

	return v, false
}

// length returns the length of a vector.
func (l *Aggregation) length(shared tensor.Map) int {
	return shared.Count()*(1+len(l.extras)) + trailers
}

// extraStep returns the step of extra tensors.
func (l *Aggregation) extraStep() float64 { return l.config.ExtraClip / float64(l.maxInteger()) }

// vector returns a client's contribution to the sums, as signed integers.
func (l *Aggregation) vector(received tensor.Map, up method.Upload, loss float64) ([]int64, error) {
	weight := int64(1)
	if l.weighting == Examples {
		weight = int64(max(1, min(up.N, l.config.Examples)))
	}

	out, clipped := make([]int64, 0, l.length(received)), int64(0)
	add := func(name string, old, now *tensor.Tensor, unit float64) error {
		if now == nil || now.IsInt() || !now.SameShape(received[name]) {
			return fmt.Errorf("parameter %s is uploaded as %v, but the server sent %v", name, now, received[name])
		}

		for i, v := range now.Data {
			x := float64(v)
			if old != nil {
				x -= float64(old.Data[i])
			}
			q, cut := l.quantize(x, unit)
			if cut {
				clipped++
			}
			out = append(out, weight*q)
		}

		return nil
	}

	for _, name := range received.Names() {
		if err := add(name, received[name], up.Shared[name], l.Step()); err != nil {
			return nil, err
		}
	}

	for _, prefix := range l.extras {
		for _, name := range received.Names() {
			if err := add(name, nil, up.Extra[prefix+"/"+name], l.extraStep()); err != nil {
				return nil, err
			}
		}
	}

	if len(up.Extra) > len(l.extras)*len(received) {
		return nil, fmt.Errorf("the method uploads %v beside the shared parameters, which secure aggregation cannot "+
			"add up", up.Extra.Names())
	}

	q, _ := l.quantize(loss, maxLoss/float64(l.maxInteger()))
	return append(out, weight, q, min(clipped, l.maxInteger())), nil
}

// checkBounds reports a sum that no vectors of n clients have, and a mean that changes the parameters by more than
// MaxNorm of the Side, which is the bound without secure aggregation. One element of a sum that passes can still be n
// times what one client may contribute: the sum does not show it.
func (l *Aggregation) checkBounds(sent tensor.Map, sum []int64, n int, maxNorm float64) error {
	numbers := len(sum) - trailers
	trailer := sum[numbers:]
	bad := func(what string, v int64) error {
		return fmt.Errorf("secure aggregation: the sum over %d clients is not used, since %s is %d, which no valid "+
			"vectors have; a client uploaded an invalid vector", n, what, v)
	}

	weight, most := trailer[atWeight], l.maxInteger()*int64(n)
	if weight < int64(n) || weight > int64(n)*int64(l.maxWeight()) {
		return bad("the total weight", weight)
	}

	if v := trailer[atLoss]; v > most || v < -most {
		return bad("the loss", v)
	}

	if v := trailer[atClipped]; v < 0 || v > int64(n)*int64(numbers) {
		return bad("the number of clipped elements", v)
	}

	for i, v := range sum[:numbers] {
		if v > weight*l.maxInteger() || v < -weight*l.maxInteger() {
			return bad(fmt.Sprintf("element %d", i), v)
		}
	}

	if maxNorm < 0 {
		return nil
	}

	if maxNorm == 0 {
		maxNorm = message.MaxUpdateNorm(sent)
	}

	up, _, _ := l.mean(sent, sum, n)
	if d := message.UpdateNorm(sent, up.Shared); !(d <= maxNorm) {
		return fmt.Errorf("secure aggregation: the sum over %d clients is not used, since their mean moves the "+
			"parameters by the norm %.4g; at most %.4g is accepted (--max-norm)", n, d, maxNorm)
	}

	return nil
}

// mean returns the mean of valid sums over n clients.
func (l *Aggregation) mean(sent tensor.Map, sum []int64, n int) (up method.Upload, loss, clipped float64) {
	numbers := len(sum) - trailers
	trailer := sum[numbers:]
	weight := trailer[atWeight]
	up = method.Upload{Client: method.AggregatedClient, N: int(weight), Shared: tensor.Map{}, Extra: tensor.Map{}}

	part := func(old, like *tensor.Tensor, unit float64) *tensor.Tensor {
		t := tensor.New(like.Shape...)
		for i := range t.Data {
			v := float64(sum[i]) / float64(weight) * unit
			if old != nil {
				v += float64(old.Data[i])
			}
			t.Data[i] = float32(v)
		}
		sum = sum[len(t.Data):]
		return t
	}

	for _, name := range sent.Names() {
		up.Shared[name] = part(sent[name], sent[name], l.Step())
	}

	for _, prefix := range l.extras {
		for _, name := range sent.Names() {
			up.Extra[prefix+"/"+name] = part(nil, sent[name], l.extraStep())
		}
	}

	loss = float64(trailer[atLoss]) / float64(n) * maxLoss / float64(l.maxInteger())
	return up, loss, float64(trailer[atClipped]) / float64(n) / float64(max(1, numbers))
}
