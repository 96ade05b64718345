package secure

import (
	"fmt"
	"math"

	"promptfed/federation/engine/message"
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

// checkBounds finds that no vectors of n clients have a sum, or that their mean moves the parameters farther than any
// mean of uploads that are taken without secure aggregation; see Party.MaxNorm. What passes can be n times as large in
// one number as what one client may give: a sum shows no more.
func (l *Layer) checkBounds(sent tensor.Map, sum []int64, n int, maxNorm float64) error {
	numbers := len(sum) - trailers
	trailer := sum[numbers:]
	bad := func(what string, v int64) error {
		return fmt.Errorf("secure aggregation: the sum over %d clients is not used, since %s is %d, which no valid "+
			"vectors have; a client uploaded an invalid one", n, what, v)
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
		maxNorm = message.MostMove(sent)
	}
	up, _, _ := l.mean(sent, sum, n)
	if d := message.Move(sent, up.Shared); !(d <= maxNorm) {
		return fmt.Errorf("secure aggregation: the sum over %d clients is not used, since their mean moves the "+
			"parameters by the norm %.4g; at most %.4g is accepted (--max-norm)", n, d, maxNorm)
	}
	return nil
}

// mean is what valid sums over n clients say.
func (l *Layer) mean(sent tensor.Map, sum []int64, n int) (up method.Upload, loss, clipped float64) {
	numbers := len(sum) - trailers
	trailer := sum[numbers:]
	weight := trailer[atWeight]
	up = method.Upload{Client: method.Summed, N: int(weight), Shared: tensor.Map{}, Extra: tensor.Map{}}
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
