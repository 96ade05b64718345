package aggregate

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

func uploaded(client, n int, mean, count []float32) method.Upload {
	return method.Upload{Client: client, N: n,
		Extra: tensor.Map{"m": tensor.Of(mean, 3, 2), "n": tensor.Of(count, 3, 1)}}
}

// Client 0 has 1 example of class 0 with mean (4,8), client 1 has 3 of class 0 with mean (0,4), and 2 of class 1 with
// mean (6,2). By examples class 0 has the mean (4+3·0, 8+3·4)/4 = (1,5), by clients (4+0, 8+4)/2. Nobody has class 2.
func TestClassMeansByHand(t *testing.T) {
	ups := []method.Upload{uploaded(0, 1, []float32{4, 8, 9, 9, 9, 9}, []float32{1, 0, 0}),
		uploaded(1, 5, []float32{0, 4, 6, 2, 9, 9}, []float32{3, 2, -1})}
	for uniform, want := range map[bool][]float32{false: {1, 5, 6, 2, 7, 7}, true: {2, 6, 6, 2, 7, 7}} {
		mean, n := tensor.Of([]float32{7, 7, 7, 7, 7, 7}, 3, 2), tensor.Of([]float32{1, 1, 5}, 3, 1)
		goldentest.NoError(t, RenewClassMeans(mean, n, ups, "m", "n", uniform))
		if !slices.Equal(mean.Data, want) || !slices.Equal(n.Data, []float32{4, 2, 5}) {
			t.Errorf("uniform %v: %v of %v, by hand %v of 4, 2 and 5", uniform, mean.Data, n.Data, want)
		}
	}
}

// An upload without the tensors, or with others, is refused by its client's number.
func TestOtherUploadsAreRefused(t *testing.T) {
	for _, extra := range []tensor.Map{{}, {"m": tensor.New(3, 2)}, {"m": tensor.New(2, 3), "n": tensor.New(3, 1)},
		{"m": tensor.New(3, 2), "n": tensor.OfInts(make([]int64, 3), 3, 1)}} {
		err := RenewClassMeans(tensor.New(3, 2), tensor.New(3, 1), []method.Upload{{Client: 4, Extra: extra}}, "m", "n",
			false)
		goldentest.WantErrorOf(t, fmt.Sprint(extra), err, "client 4 uploaded")
	}
}

// What everyone gets takes the place of what some clients had of that name, and the other way round. Other names stay.
func TestSend(t *testing.T) {
	now, old := tensor.Map{"m": tensor.Scalar(1)}, tensor.Map{"m": tensor.Scalar(2), "other": tensor.Scalar(3)}
	for everyone, want := range map[bool]string{true: "[m other] [other]", false: "[other] [m other]"} {
		g := &method.Global{Broadcast: maps.Clone(old), PerClient: map[int]tensor.Map{4: maps.Clone(old)}}
		Send(g, everyone, []int{4}, now)
		if got := fmt.Sprint(g.Broadcast.Names(), " ", g.PerClient[4].Names()); got != want {
			t.Errorf("to everyone %v: %s, want %s", everyone, got, want)
		}
	}
}

type averaging struct{ method.Method }

func (averaging) Merge(g *method.Global, ups []method.Upload) error {
	return method.Base{}.Merge(g, ups)
}

// By examples 2 uploads of 1 and 3 examples count 1 and 3, otherwise 1 each; the uploads themselves stay as they are.
func TestWeighting(t *testing.T) {
	for w, want := range map[Weighting]float32{Examples: 3, Uniform: 2} {
		ups := []method.Upload{{Client: 0, N: 1, Shared: tensor.Map{"a": tensor.Of([]float32{0}, 1)}},
			{Client: 1, N: 3, Shared: tensor.Map{"a": tensor.Of([]float32{4}, 1)}}}
		g := &method.Global{Shared: tensor.Map{"a": tensor.Of([]float32{9}, 1)}}
		old, err := w.Average(averaging{}, g, ups)
		if err != nil || old["a"].Data[0] != 9 || g.Shared["a"].Data[0] != want || ups[1].N != 3 {
			t.Errorf("%v: %v from %v, %v", w, g.Shared, old, err)
		}
		m := WeightedMean{Weighting: w}
		g.Shared = tensor.Map{"a": tensor.New(1)}
		if err := m.Merge(g, ups); err != nil || g.Shared["a"].Data[0] != want ||
			string(m.Properties().Mean) != w.Weighting {
			t.Errorf("%v: %v, %v", w, g.Shared, err)
		}
	}
}
