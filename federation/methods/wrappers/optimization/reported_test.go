package optimization_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// mergedReports returns the merged prompt, from 0: each upload moves it by 1 and reports a number.
func mergedReports(t *testing.T, wrapper, name string, o options, reported ...float32) (float64, error) {
	m := methodtest.Build(t, "promptfl", []string{wrapper}, o)
	g := &method.Global{LR: 0.5, Shared: tensor.Map{"ctx": tensor.New(1, 1)}, Notes: map[string]float64{}}
	var ups []method.Upload
	for i, v := range reported {
		ups = append(ups, method.Upload{Client: i, N: 5, Shared: tensor.Map{"ctx": tensor.Of([]float32{1}, 1, 1)},
			Extra: tensor.Map{name: tensor.Of([]float32{v}, 1)}})
	}
	err := m.Merge(g, ups)
	return float64(g.Shared["ctx"].Data[0]), err
}

// A false report of work or loss counts as ten times the median at most, of two reports of work as ten times the lower.
// A report that is no number is refused. Without a bound the method says so.
func TestReportedNumbersAreBounded(t *testing.T) {
	for wrapper, name := range map[string]string{"fednova": "nova/a", "qffl": "qffl/loss"} {
		if _, err := mergedReports(t, wrapper, name, nil, 0, 1); err != nil {
			t.Errorf("%s refuses 0: %v", wrapper, err)
		}
	}
	for _, wrapper := range []string{"fednova", "qffl"} {
		for most, want := range map[float64]int{10: 0, 0: 1} {
			m, err := methods.Build("promptfl", []string{wrapper}, options{"most": most})
			if notes := methods.Notes(m); err != nil || len(notes) != want {
				t.Errorf("%s with most: %v says %q, %v", wrapper, most, notes, err)
			}
		}
	}
	q1 := options{"q": 1.0}
	for _, c := range []struct {
		wrapper, name string
		options       options
		reported      []float32
		want          float64 // from the formulas: the mean of a; Σ F over Σ (2 + F), with L = 2 and moves of 1
	}{
		{"fednova", "nova/a", nil, []float32{2, 2, 5}, 3}, {"fednova", "nova/a", nil, []float32{2, 1e6}, 11},
		{"fednova", "nova/a", nil, []float32{2, 2, 1e9}, 8},
		{"fednova", "nova/a", options{"most": 0.0}, []float32{2, 102}, 52},
		{"qffl", "qffl/loss", q1, []float32{1, 1, 4}, 6. / 12}, {"qffl", "qffl/loss", q1, []float32{1, 1, 1e9},
			12. / 18},
		{"qffl", "qffl/loss", nil, []float32{0, 0}, 0}, // F of 1e-10 has a power, and steps of nearly 0
	} {
		got, err := mergedReports(t, c.wrapper, c.name, c.options, c.reported...)
		if err != nil || !(math.Abs(got-c.want) <= 1e-6) {
			t.Errorf("%s of %v: %v, %v; want %v", c.wrapper, c.reported, got, err, c.want)
		}
		for _, bad := range []float32{-1, float32(math.NaN()), float32(math.Inf(1))} {
			if _, err := mergedReports(t, c.wrapper, c.name, c.options, 1, bad); err == nil ||
				!strings.Contains(err.Error(), "client 1 uploaded") {
				t.Errorf("%s takes %v: %v", c.wrapper, bad, err)
			}
		}
	}
}

// Numbers count like uploads in the mean inside, which FedCLIP makes of clients that count alike. From 0 FedNova goes
// by directions 1 and 3 with works 2 and 4, 3·2. q-FedAvg with q 1, L = 2, these moves and losses of 2 and 4 goes by
// (2 + 4·3)/((2 + 2) + (4 + 2·9)) = 7/13. Servers that read single uploads would find FedNova's directions there.
func TestNumbersCountAsUploads(t *testing.T) {
	up := func(n int, direction, number float32) method.Upload {
		x := tensor.Of([]float32{number}, 1)
		return method.Upload{N: n, Shared: tensor.Map{"ctx": tensor.Of([]float32{direction}, 1)},
			Extra: tensor.Map{"nova/a": x, "qffl/loss": x}}
	}
	for wrapper, want := range map[string]float64{"fednova": 6, "qffl": 7. / 13} {
		m := methodtest.Build(t, "fedclip", []string{wrapper}, map[string]options{"qffl": {"q": 1.0}}[wrapper])
		g := &method.Global{LR: 0.5, Shared: tensor.Map{"ctx": tensor.New(1)}, Notes: map[string]float64{}}
		goldentest.NoError(t, m.Merge(g, []method.Upload{up(1, 1, 2), up(3, 3, 4)}))
		if got := float64(g.Shared["ctx"].Data[0]); !(math.Abs(got-want) <= 1e-6) {
			t.Errorf("%s merged to %v, by hand %v", wrapper, got, want)
		}
	}
	for want, with := range map[string][]string{"pfedmoap needs": {"pfedmoap", "fednova"}, "appr needs": {"promptfl",
		"appr", "fednova"}, "listed before it": {"promptfl", "fednova", "fedprox"},
		"its discriminator reads prompts": {"promptfl", "fednova", "appr"}} {
		_, err := methods.Build(with[0], with[1:], nil)
		goldentest.WantError(t, err, want)
	}
}

// The second moments from 4, 1, 1/4 and 0 after moves of 1, 1, 1 and 0: Adagrad adds d², Adam averages, and Yogi steps
// 0.01 d² towards it, by none where both are equal. Momentum has none.
func TestSecondMoments(t *testing.T) {
	for kind, want := range map[string][]float32{"adagrad": {5, 2, 1.25, 0}, "adam": {3.97, 1, 0.2575, 0},
		"yogi": {3.99, 1, 0.26, 0}, "momentum": {4, 1, 0.25, 0}} {
		m := methodtest.Build(t, "promptfl", []string{"fedopt"}, options{"kind": kind})
		g := &method.Global{Shared: tensor.Map{"ctx": tensor.New(4, 1)},
			State: tensor.Map{"opt/v/ctx": tensor.Of([]float32{4, 1, 0.25, 0}, 4, 1)}}
		up := method.Upload{N: 1, Shared: tensor.Map{"ctx": tensor.Of([]float32{1, 1, 1, 0}, 4, 1)}}
		goldentest.NoError(t, m.Merge(g, []method.Upload{up}))
		for i, v := range g.State["opt/v/ctx"].Data {
			if !(math.Abs(float64(v-want[i])) <= 1e-6) {
				t.Errorf("%s: %v, by hand %v", kind, g.State["opt/v/ctx"].Data, want)
			}
		}
	}
	// Without momentum and at rate 1 the server's step is the mean, and nothing is kept; at another rate it is not.
	for rate, want := range map[float64]float32{0: 2, 1: 2, 0.5: 1} {
		m := methodtest.Build(t, "promptfl", []string{"fedopt"}, options{"kind": "momentum", "beta1": 0.0,
			"server_lr": rate})
		g := &method.Global{Shared: tensor.Map{"ctx": tensor.New(1)}, State: tensor.Map{}}
		up := method.Upload{N: 1, Shared: tensor.Map{"ctx": tensor.Of([]float32{2}, 1)}}
		if err := m.Merge(g, []method.Upload{up}); err != nil || g.Shared["ctx"].Data[0] != want ||
			(len(g.State) == 0) != (want == 2) {
			t.Errorf("rate %v: %v, %v, %v", rate, g.Shared["ctx"], g.State, err)
		}
	}
}

// What wrappers ask of a run, and what clients upload beside parameters, follows from their options.
func TestProperties(t *testing.T) {
	for _, c := range []struct {
		wrapper string
		options options
		mean    method.Weights
		needs   string
		extra   string
	}{{"scaffold", nil, method.Uniform, "", "scaffold/dc/ctx"},
		{"scaffold", options{"weighting": "examples"}, "", "unweighted mean of control variates", "scaffold/dc/ctx"},
		{"fedopt", nil, "examples", "", ""}, {"fedopt", options{"weighting": "uniform"}, method.Uniform, "", ""},
		{"fednova", nil, "", "every client's amount of work", "nova/a"},
		{"qffl", nil, "", "every client's loss and update", "qffl/loss"},
		{"qffl", options{"q": 0.0}, "examples", "", ""}} {
		m := methodtest.Build(t, "promptfl", []string{c.wrapper}, c.options)
		p, extra := method.PropertiesOf(m), ""
		for _, e := range m.Extras(layer.PlaceholderClient) {
			extra += e.Name
		}
		if p.Mean != c.mean || (p.Needs != "") != (c.needs != "") || !strings.Contains(p.Needs, c.needs) ||
			extra != c.extra {
			t.Errorf("%s %v: %+v, %s", c.wrapper, c.options, p, extra)
		}
	}
}

// With q: 0 a client neither computes nor uploads its loss, and Merge is the mean. FedNova refuses a turn without a
// step. After such a turn SCAFFOLD's control variates are those of before.
func TestTurns(t *testing.T) {
	q0 := options{"q": 0.0}
	if mean, err := mergedReports(t, "qffl", "qffl/loss", q0, 1, 4); mean != 1 || err != nil {
		t.Errorf("the mean of moves of 1 is %v, %v", mean, err)
	}
	m := methodtest.Build(t, "promptfl", []string{"qffl"}, q0)
	local, up := &method.Local{Optim: optim.Config{Name: "sgd"}}, &method.Upload{Extra: tensor.Map{}}
	if err := errors.Join(m.Begin(local), m.Finish(local, up)); err != nil || len(up.Extra) > 0 {
		t.Errorf("%v, %v", up.Extra, err)
	}
	m = methodtest.Build(t, "promptfl", []string{"fednova"}, nil)
	goldentest.WantError(t, m.Finish(local, up), "fednova: 0 steps at the rate 0 with mu 0 make no progress")
	local.Shared, local.State = tensor.Map{"ctx": tensor.Scalar(1)}, tensor.Map{}
	local.Received = local.Shared
	for _, control := range []string{"path", "gradients"} {
		m = methodtest.Build(t, "promptfl", []string{"scaffold"}, options{"control": control})
		goldentest.NoError(t, errors.Join(m.Begin(local), m.Finish(local, up)))
		if dc := up.Extra["scaffold/dc/ctx"].Data[0]; dc != 0 {
			t.Errorf("%s: control variates change by %v", control, dc)
		}
	}
}
