package secure

import (
	"fmt"
	"math"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// What follows the moves in a vector.
const (
	atWeight = iota
	atLoss
	atClipped
	trailers
)

// maxLoss is where losses are cut.
const maxLoss = 64

// maxInteger is the largest rounded number.
func (l *Layer) maxInteger() int64 { return 1<<(l.c.Bits-1) - 1 }

// Step is the size of a rounded number's unit.
func (l *Layer) Step() float64 { return l.c.Clip / float64(l.maxInteger()) }

// quantize gives x in whole units, cut at top.
func (l *Layer) quantize(x, unit float64) (v int64, cut bool) {
	v = int64(math.RoundToEven(math.Max(-2, math.Min(2, x/unit/float64(l.maxInteger()))) * float64(l.maxInteger())))
	switch {
	case v > l.maxInteger():
		return l.maxInteger(), true
	case v < -l.maxInteger():
		return -l.maxInteger(), true
	}
	return v, false
}

// length is that of a vector.
func (l *Layer) length(shared tensor.Map) int {
	n := 0
	for _, t := range shared {
		n += t.Len()
	}
	return n*(1+len(l.extras)) + trailers
}

// extraStep is the unit of what is uploaded beside the shared parameters.
func (l *Layer) extraStep() float64 { return l.c.ExtraClip / float64(l.maxInteger()) }

// vector gives what a client adds to the sums, as signed whole numbers.
func (l *Layer) vector(received tensor.Map, up method.Upload, loss float64) ([]int64, error) {
	weight := int64(1)
	if l.weighting == Examples {
		weight = int64(max(1, min(up.N, l.c.Examples)))
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

// mean is what the sums over n clients say.
func (l *Layer) mean(sent tensor.Map, sum []int64, n int) (up method.Upload, loss, clipped float64, err error) {
	numbers := len(sum) - trailers
	trailer := sum[numbers:]
	weight := trailer[atWeight]
	if weight < int64(n) || weight > int64(n)*int64(l.maxWeight()) {
		return up, 0, 0, fmt.Errorf("secure aggregation: %d clients have the total weight %d; a client uploaded an "+
			"invalid vector", n, weight)
	}
	up = method.Upload{Client: method.Summed, N: int(weight), Shared: tensor.Map{}, Extra: tensor.Map{}}
	part := func(name string, old *tensor.Tensor, like *tensor.Tensor, unit float64) (*tensor.Tensor, error) {
		t := tensor.New(like.Shape...)
		for i := range t.Data {
			x := sum[i]
			if x > weight*l.maxInteger() || x < -weight*l.maxInteger() {
				return nil, fmt.Errorf("secure aggregation: element %d of %s has the sum %d for the total weight %d; "+
					"a client uploaded an invalid vector", i, name, x, weight)
			}
			v := float64(x) / float64(weight) * unit
			if old != nil {
				v += float64(old.Data[i])
			}
			t.Data[i] = float32(v)
		}
		sum = sum[len(t.Data):]
		return t, nil
	}
	for _, name := range sent.Names() {
		if up.Shared[name], err = part(name, sent[name], sent[name], l.Step()); err != nil {
			return up, 0, 0, err
		}
	}
	for _, prefix := range l.extras {
		for _, name := range sent.Names() {
			at := prefix + "/" + name
			if up.Extra[at], err = part(at, nil, sent[name], l.extraStep()); err != nil {
				return up, 0, 0, err
			}
		}
	}
	loss = float64(trailer[atLoss]) / float64(n) * maxLoss / float64(l.maxInteger())
	return up, loss, float64(trailer[atClipped]) / float64(n) / float64(max(1, numbers)), nil
}
