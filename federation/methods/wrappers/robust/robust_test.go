package robust_test

import (
	"fmt"
	"math"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/wrappers/robust"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// merged returns the merge over PromptFL of uploads of one number, from clients with 1, 2, 3, ... examples, into 0.
func merged(t *testing.T, with []string, o methodtest.Options, values ...float32) (float64, error) {
	t.Helper()
	m := methodtest.Build(t, "promptfl", with, o)
	g := &method.Global{Sampling: method.Sampling{Clients: len(values)}, Shared: tensor.Map{"ctx": tensor.New(1, 1)},
		Broadcast: tensor.Map{}, State: tensor.Map{}, Notes: map[string]float64{}}
	var ups []method.Upload
	for i, v := range values {
		ups = append(ups, method.Upload{Client: i, N: i + 1, Shared: tensor.Map{"ctx": tensor.Of([]float32{v}, 1, 1)},
			Extra: tensor.Map{}})
	}
	if err := m.Merge(g, ups); err != nil {
		return 0, err
	}
	for i, v := range values {
		if ups[i].Shared["ctx"].Data[0] != v {
			t.Errorf("upload %d was changed in place", i)
		}
	}
	return float64(g.Shared["ctx"].Data[0]), nil
}

// Five clients upload 1, 2, 3, 4 and 100. The squared distances of each to its nearest two others are 1+4, 1+1, 1+1,
// 1+4 and 96²+97².
func TestRobustByHand(t *testing.T) {
	for _, c := range []struct {
		o    methodtest.Options
		want float64
	}{
		{methodtest.Options{"kind": "median"}, 3},
		{methodtest.Options{"kind": "trimmed-mean", "trim": 0.2}, 3},  // of 2, 3, 4
		{methodtest.Options{"kind": "trimmed-mean", "trim": 0.3}, 3},  // two at each end
		{methodtest.Options{"kind": "trimmed-mean", "trim": 0.0}, 22}, // all, 110/5
		// the first of two equally near
		{methodtest.Options{"kind": "krum"}, 2},
		{methodtest.Options{"kind": "multi-krum"}, 2.5},                        // 1, 2, 3, 4
		{methodtest.Options{"kind": "multi-krum", "weighting": "examples"}, 3}, // (1+4+9+16)/10
		// On a line the geometric median is the median.
		{methodtest.Options{"kind": "geometric-median"}, 3},
		{methodtest.Options{"kind": "norm-clip", "clip": 2.0}, 1.8},                               // 1, 2, 2, 2, 2
		{methodtest.Options{"kind": "norm-clip", "clip": 2.0, "weighting": "examples"}, 29. / 15}, // (1+2·14)/15
	} {
		got, err := merged(t, []string{"robust"}, c.o, 1, 2, 3, 4, 100)
		if err != nil || math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%v gives %v, %v; by hand %v", c.o, got, err, c.want)
		}
	}
	if got, _ := merged(t, []string{"robust"}, methodtest.Options{"kind": "median"}, 4, -1, 2, 100); got != 3 {
		t.Errorf("the median of an even number is %v, by hand (2+4)/2", got)
	}
	// 0.4 of five are two at each end; 0.5 of four would leave none, and two are left.
	if got, _ := merged(t, []string{"robust"}, methodtest.Options{"kind": "trimmed-mean", "trim": 0.4}, 1, 2, 10, 11,
		100); got != 10 {
		t.Errorf("trimmed to one: %v", got)
	}
	if got, _ := merged(t, []string{"robust"}, methodtest.Options{"kind": "trimmed-mean", "trim": 0.49}, 4, -1, 2,
		100); got != 3 {
		t.Errorf("trimmed to two: %v", got)
	}
	_, err := merged(t, []string{"robust"}, methodtest.Options{"kind": "krum"}, 1, 2, 3, 4)
	goldentest.WantError(t, err, "1 attackers needs 5 uploads in a round; there are 4")
}

// The pencil's two clients end at 0.75 and -0.5625.
func TestRobustRounds(t *testing.T) {
	zero := map[string]float64{"ctx": 0}
	for _, c := range []struct {
		o    methodtest.Options
		want float64
	}{
		{methodtest.Options{"kind": "median"}, (methodtest.End0 + methodtest.End1) / 2},
		{methodtest.Options{"kind": "krum", "attackers": 0}, methodtest.End0},
		{methodtest.Options{"kind": "norm-clip", "clip": 0.6}, (0.6 + methodtest.End1) / 2},
	} {
		methodtest.HandExample{Method: "promptfl", With: []string{"robust"},
			Options: methodtest.Merge(methodtest.Options{"tokens": 1}, c.o), LR: methodtest.HandLR, First: zero,
			Want: map[string]float64{"r0/merged/ctx": c.want, "r1/c0/s0/grad/ctx": methodtest.Slope0(c.want)}}.Check(t)
	}
}

// As many liars as Tolerates says, who agree on any number, move no mean beyond the uploads of the others, which lie in
// [-1,1]; one more moves some. By hand: less than
// half of n; the share trim of n, rounded up; f of at least 2f+3.
func TestTolerates(t *testing.T) {
	for _, c := range []struct {
		o        methodtest.Options
		n, liars int
		sharp    bool // one liar more moves the mean
	}{
		{methodtest.Options{"kind": "median"}, 5, 2, true},
		{methodtest.Options{"kind": "median"}, 6, 2, true},
		{methodtest.Options{"kind": "median"}, 2, 0, true},
		{methodtest.Options{"kind": "geometric-median"}, 7, 3, true},
		{methodtest.Options{"kind": "trimmed-mean", "trim": 0.2}, 10, 2, true},
		{methodtest.Options{"kind": "trimmed-mean", "trim": 0.2}, 6, 2, true}, // 1.2 is rounded up
		{methodtest.Options{"kind": "trimmed-mean", "trim": 0.0}, 6, 0, true},
		{methodtest.Options{"kind": "krum", "attackers": 2}, 7, 2, false},
		{methodtest.Options{"kind": "multi-krum", "attackers": 2}, 8, 2, true},
		{methodtest.Options{"kind": "krum", "attackers": 2}, 6, 0, false}, // which is refused
		{methodtest.Options{"kind": "norm-clip"}, 9, 0, false},
	} {
		m := methodtest.Build(t, "promptfl", []string{"robust"}, c.o)
		r, has := methods.RobustLayer(m)
		if got := r.Tolerates(c.n); !has || got != c.liars {
			t.Errorf("%v tolerates %d of %d uploads, want %d", c.o, got, c.n, c.liars)
		}
		for _, lie := range []float32{-3e38, -1e10, 1e10, 3e38} {
			for _, liars := range []int{c.liars, c.liars + 1} {
				values := make([]float32, c.n)
				for i := range values {
					if values[i] = float32(2*i)/float32(c.n) - 1; i < liars {
						values[i] = lie
					}
				}
				got, _ := merged(t, []string{"robust"}, c.o, values...)
				if far := !(math.Abs(got) <= 1); far != (c.sharp && liars > c.liars) {
					t.Errorf("%v with %d of %d uploads %v: %v", c.o, liars, c.n, lie, got)
				}
			}
		}
	}
}

// The geometric median of the corners of an equilateral triangle of side 1 and its centre is the centre. That of the
// corners (0,0), (4,0) and (0,3) is the Fermat point, by 100,000 iterations in float64 from (1,1). Their
// coordinate-wise median, from which the iterations start, is a corner; Weiszfeld's own iterations would stay there.
// (0,0) is the coordinate-wise median of itself, (1,0) and (-1,0.1), and stays: the other two pull less than it weighs.
func TestGeometricMedian(t *testing.T) {
	for _, c := range []struct{ points, want []float32 }{
		{[]float32{0, 0, 1, 0, 0.5, 0.8660254, 0.5, 0.28867513}, []float32{0.5, 0.28867513}},
		{[]float32{0, 0, 4, 0, 0, 3}, []float32{0.695790, 0.751178}},
		{[]float32{0, 0, 4e-3, 0, 0, 3e-3}, []float32{0.695790e-3, 0.751178e-3}}, // the same in another unit
		{[]float32{2, 2, 2, 2, 2, 2}, []float32{2, 2}},
		{[]float32{0, 0, 1, 0, -1, 0.1}, []float32{0, 0}},
	} {
		m := methodtest.Build(t, "promptfl", []string{"robust"}, methodtest.Options{"kind": "geometric-median"})
		g := &method.Global{Shared: tensor.Map{"ctx": tensor.New(1, 2)}}
		var ups []method.Upload
		for i := 0; i < len(c.points); i += 2 {
			ups = append(ups, method.Upload{Client: i, N: i + 1,
				Shared: tensor.Map{"ctx": tensor.Of(c.points[i:i+2], 1, 2)}})
		}
		goldentest.NoError(t, m.Merge(g, ups))
		for i, want := range c.want {
			if got := g.Shared["ctx"].Data[i]; !(math.Abs(float64(got-want)) <= 1e-4*math.Abs(float64(want))) {
				t.Errorf("of %v: %v, not %v", c.points, g.Shared["ctx"].Data, c.want)
			}
		}
	}
}

// The loss of labels is that of a softmax, and a method has it.
func TestLabelLossIsReplaced(t *testing.T) {
	sigmoid, softmax := layer.PlaceholderClient, layer.PlaceholderClient
	sigmoid.Sigmoid = true
	for _, c := range []struct {
		base method.Method
		task method.ClientSpec
		want string
	}{{base(t), softmax, ""}, {base(t), sigmoid, "it replaces the cross entropy of a softmax; set train.loss: softmax"},
		{own{base(t)}, softmax, "the methods inside fit labels by a loss of their own, which cannot be replaced"}} {
		for _, q := range []float64{0, 0.5} {
			m := robust.GCE{Method: c.base, Q: q}
			s := method.NewScope(c.task, m.Params(c.task))
			m.Loss(s, m.Logits(s))
			if err := s.Graph().Err(); q == 0 || c.want == "" {
				if err != nil {
					t.Errorf("q %v: %v", q, err)
				}
			} else {
				goldentest.WantErrorOf(t, fmt.Sprint("q ", q), err, c.want)
			}
		}
	}
}

func base(t *testing.T) method.Method {
	return methodtest.Build(t, "promptfl", nil, nil)
}

// own is a method with a loss of its own.
type own struct{ method.Method }

func (own) Loss(_ *method.Scope, logits graph.Node) graph.Node { return logits.Mean() }
