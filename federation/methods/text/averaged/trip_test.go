package averaged_test

import (
	"math"
	"slices"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// Keys are orthonormal, or as drawn. The running mean begins at the first prompts. With Beta(1/2,1/2), whose density is
// 1/√(x(1-x)) up to a factor, and one round, the positions are 1/4 for both, so the first prompts and those of round
// 0 count once each.
func TestTRIPStart(t *testing.T) {
	g := func() *method.Global {
		return &method.Global{Rounds: method.Rounds(1), Task: method.ClientSpec{VisionWidth: 5}, Shared: tensor.Map{
			"experts": tensor.Of([]float32{1, 2, 3}, 3, 1, 1)}, Broadcast: tensor.Map{}, State: tensor.Map{}}
	}
	for _, keys := range []string{"orthogonal", "normal", "uniform"} {
		m := methodtest.Build(t, "trip", nil, map[string]any{"experts": 3, "tokens": 1, "keys": keys, "average": "beta",
			"beta": 0.5})
		s := g()
		goldentest.NoError(t, m.Start(s))
		rows, orthonormal := s.Broadcast["trip/keys"], true
		for i := range 3 {
			for j := range 3 {
				dot := 0.0
				for k, x := range rows.Row(i).Data {
					dot += float64(x) * float64(rows.Row(j).Data[k])
				}
				orthonormal = orthonormal && math.Abs(dot-map[bool]float64{true: 1}[i == j]) < 1e-6
			}
		}
		if orthonormal != (keys == "orthogonal") || (slices.Min(rows.Data) >= 0) != (keys == "uniform") {
			t.Errorf("%s: %v", keys, rows.Data)
		}
		up := method.Upload{N: 1, Shared: tensor.Map{"experts": tensor.Of([]float32{2, 2, 9}, 3, 1, 1)}}
		goldentest.NoError(t, m.Merge(s, []method.Upload{up}))
		if mean := s.Broadcast["trip/average"].Data; !slices.Equal(mean, []float32{1.5, 2, 6}) {
			t.Errorf("the mean of the first prompts and round 0's is %v", mean)
		}
	}
}

// Keys of another width are refused in one line, and an image tower without a width before keys are drawn.
func TestTRIPKeysFit(t *testing.T) {
	m, err := methods.Build("trip", nil, nil)
	if err == nil {
		goldentest.WantErrorOf(t, "no width", m.Start(&method.Global{Task: method.ClientSpec{Backbone: "like-clip"},
			Broadcast: tensor.Map{}}), "backbone like-clip", "last block")
		err = m.Begin(&method.Local{Task: method.ClientSpec{Backbone: "wide", VisionWidth: 8},
			Broadcast: tensor.Map{"trip/keys": tensor.New(4, 6)}})
	}
	goldentest.WantErrorOf(t, "keys", err, "6 wide", "backbone wide is 8")
}

// Tokens that cannot be routed are refused in one line, and a server's step where a running mean is tested.
func TestTRIPRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		options map[string]any
		task    method.ClientSpec
	}{
		"does not provide":               {nil, method.ClientSpec{Backbone: "rn", VisionWidth: 8}},
		"an image has 3 tokens":          {nil, method.ClientSpec{Backbone: "small", VisionWidth: 8, Tokens: 3}},
		"keys: orthogonal has 4 experts": {nil, method.ClientSpec{Backbone: "narrow", VisionWidth: 2, Tokens: 9}},
		"experts is 11; it must lie ":    {map[string]any{"experts": 11}, method.ClientSpec{}},
		"capacity is 0.5":                {map[string]any{"capacity": 0.5}, method.ClientSpec{}},
	} {
		m, err := methods.Build("trip", nil, c.options)
		if err == nil {
			c.task.Classes, c.task.Width, c.task.Dim, c.task.TextLayers = 2, 4, 4, 1
			s := method.NewScope(c.task, m.Params(c.task))
			m.Logits(s)
			err = s.Graph().Err()
		}
		goldentest.WantError(t, err, want)
	}
	for average, says := range map[string]string{"none": "", "ema": "set options.average: none"} {
		m := methodtest.Build(t, "trip", nil, map[string]any{"average": average})
		if got := method.PropertiesOf(m).Roles[method.ServerStep]; got != says {
			t.Errorf("average %s: %q, want %q", average, got, says)
		}
	}
}
