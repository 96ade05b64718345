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

// mostLoss is where losses are cut.
const mostLoss = 64

// top is the largest rounded number.
func (l *Layer) top() int64 { return 1<<(l.c.Bits-1) - 1 }

// Step is the size of a rounded number's unit.
func (l *Layer) Step() float64 { return l.c.Clip / float64(l.top()) }

// rounded gives x in whole units, cut at top.
func (l *Layer) rounded(x, unit float64) (v int64, cut bool) {
	v = int64(math.RoundToEven(math.Max(-2, math.Min(2, x/unit/float64(l.top()))) * float64(l.top())))
	switch {
	case v > l.top():
		return l.top(), true
	case v < -l.top():
		return -l.top(), true
	}
	return v, false
}

// length is that of a vector.
func length(shared tensor.Map) int {
	n := trailers
	for _, t := range shared {
		n += t.Len()
	}
	return n
}

// vector gives what a client adds to the sums, as signed whole numbers.
func (l *Layer) vector(received tensor.Map, up method.Upload, loss float64) ([]int64, error) {
	if len(up.Extra) > 0 {
		return nil, fmt.Errorf("the method uploads %v beside the shared parameters; secure aggregation has no sum of that", up.Extra.Names())
	}
	weight := int64(1)
	if l.weighting == Examples {
		weight = int64(max(1, min(up.N, l.c.Examples)))
	}
	out, clipped := make([]int64, 0, length(received)), int64(0)
	for _, name := range received.Names() {
		old, now := received[name], up.Shared[name]
		if now == nil || now.IsInt() || !now.SameShape(old) {
			return nil, fmt.Errorf("parameter %s is %v; the server sent %v", name, now, old)
		}
		for i, v := range now.Data {
			q, cut := l.rounded(float64(v)-float64(old.Data[i]), l.Step())
			if cut {
				clipped++
			}
			out = append(out, weight*q)
		}
	}
	q, _ := l.rounded(loss, mostLoss/float64(l.top()))
	return append(out, weight, q, min(clipped, l.top())), nil
}

// mean is what the sums over n clients say.
func (l *Layer) mean(sent tensor.Map, sum []int64, n int) (up method.Upload, loss, clipped float64, err error) {
	numbers := len(sum) - trailers
	trailer := sum[numbers:]
	weight := trailer[atWeight]
	if weight < int64(n) || weight > int64(n)*int64(l.most()) {
		return up, 0, 0, fmt.Errorf("secure aggregation: %d clients have the weight %d together; a client uploaded what is no vector", n, weight)
	}
	up = method.Upload{Client: method.Summed, N: int(weight), Shared: tensor.Map{}, Extra: tensor.Map{}}
	for _, name := range sent.Names() {
		old := sent[name]
		t := tensor.New(old.Shape...)
		for i, v := range old.Data {
			if x := sum[i]; x > weight*l.top() || x < -weight*l.top() {
				return up, 0, 0, fmt.Errorf("secure aggregation: element %d of %s has the sum %d of weights %d; a client uploaded what is no vector", i, name, x, weight)
			}
			t.Data[i] = float32(float64(v) + float64(sum[i])/float64(weight)*l.Step())
		}
		up.Shared[name], sum = t, sum[old.Len():]
	}
	loss = float64(trailer[atLoss]) / float64(n) * mostLoss / float64(l.top())
	return up, loss, float64(trailer[atClipped]) / float64(n) / float64(max(1, numbers)), nil
}
