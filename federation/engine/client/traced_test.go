package client_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// With train.clip_norm and clip_value the trace's gradient is the one that momentum and weight decay get:
//
//	v = 0.9 v + g + 0.01 p, p' = p - 0.1 v
//
// holds for it in every step, and it is the raw one with its elements limited first, and then, over all parameters
// together, its norm, as torch.nn.utils.clip_grad_value_ and clip_grad_norm_ do it.
func TestTracedGradientIsTheOptimizers(t *testing.T) {
	const limit, most, momentum, decay, lr = 0.01, 0.004, 0.9, 0.01, 0.1
	e := toy(t)
	e.Training.Optim = optim.Config{Name: "sgd", LR: lr, Momentum: momentum, WeightDecay: decay, ClipNorm: limit,
		ClipValue: most}
	e.Plan.Rounds = 2
	rec := trace.NewRecorder()
	mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}})
	clipped := 0
	velocity := map[string][]float64{}
	for _, s := range rec.Steps {
		turn := fmt.Sprintf("r%d/c%d/", s.Round, s.Client)
		step := fmt.Sprintf("%ss%d/", turn, s.Step)
		raw, sum := map[string][]float64{}, 0.0
		names := []string{"global", "local"}
		for _, name := range names {
			g := rec.Tensors[step+"grad_raw/"+name]
			if g == nil {
				g = rec.Tensors[step+"grad/"+name]
			}
			for _, x := range g.Data {
				x := max(-most, min(most, float64(x)))
				raw[name], sum = append(raw[name], x), sum+x*x
			}
		}
		scale := min(1, limit/(math.Sqrt(sum)+1e-6))
		if scale < 1 {
			clipped++
		}
		for _, name := range names {
			before := rec.Tensors[turn+"begin/"+name]
			if s.Step > 0 {
				before = rec.Tensors[fmt.Sprintf("%ss%d/after/%s", turn, s.Step-1, name)]
			}
			g, after := rec.Tensors[step+"grad/"+name], rec.Tensors[step+"after/"+name]
			v := velocity[turn+name]
			if s.Step == 0 {
				v = make([]float64, len(g.Data))
				velocity[turn+name] = v
			}
			for i, x := range g.Data {
				if math.Abs(float64(x)-scale*raw[name][i]) > 1e-8 {
					t.Fatalf("%sgrad/%s at element %d is %g, the raw one clipped %g", step, name, i, x,
						scale*raw[name][i])
				}
				v[i] = momentum*v[i] + float64(x) + decay*float64(before.Data[i])
				if want := float64(before.Data[i]) - lr*v[i]; math.Abs(want-float64(after.Data[i])) > 1e-6 {
					t.Fatalf("%safter/%s at element %d is %g, by hand %g", step, name, i, after.Data[i], want)
				}
			}
		}
	}
	if clipped == 0 {
		t.Error("no step was clipped")
	}
}

// sharedToy returns the toy, whose private prompts have 2 or 4 tokens, with one optimizer for all clients.
func sharedToy(t testing.TB) *spec.Experiment {
	e := toy(t)
	e.Training.Optim = optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.9, WeightDecay: 0.01}
	e.Training.Shared, e.Training.Epochs, e.Plan.Participation = true, 2, 0.75
	return e
}

// Each parameter has one momentum buffer by its name and shape. The buffer passes through the clients by number and
// through the rounds: b = 0.9 b + g + 0.01 p, p' = p - 0.05 b, computed here from the traced gradients. Clients 0 and 2
// have private prompts of two tokens and the others of four, so there are two buffers.
func TestSharedOptimizerGoesRound(t *testing.T) {
	rec := trace.NewRecorder()
	mustRun(t, sharedToy(t), engine.Settings{Client: client.Settings{Tracer: rec}, Workers: 4})
	steps := slices.Clone(rec.Steps)
	slices.SortFunc(steps, func(a, b trace.StepRecord) int {
		return 1000000*(a.Round-b.Round) + 1000*(a.Client-b.Client) + a.Step - b.Step
	})
	buffers := map[string][]float64{}
	for _, s := range steps {
		for _, name := range []string{"global", "local"} {
			turn := fmt.Sprintf("r%d/c%d/", s.Round, s.Client)
			before := rec.Tensors[turn+"begin/"+name]
			if s.Step > 0 {
				before = rec.Tensors[fmt.Sprintf("%ss%d/after/%s", turn, s.Step-1, name)]
			}
			g, after := rec.Tensors[fmt.Sprintf("%ss%d/grad/%s", turn, s.Step, name)],
				rec.Tensors[fmt.Sprintf("%ss%d/after/%s", turn, s.Step, name)]
			at := fmt.Sprint(name, before.Shape)
			if buffers[at] == nil {
				buffers[at] = make([]float64, len(before.Data))
			}
			for i := range before.Data {
				b := 0.9*buffers[at][i] + float64(g.Data[i]) + 0.01*float64(before.Data[i])
				buffers[at][i] = b
				if want := float64(before.Data[i]) - 0.05*b; math.Abs(want-float64(after.Data[i])) > 2e-6 {
					t.Fatalf("%ss%d: element %d of %s is %v, by hand %v", turn, s.Step, i, name, after.Data[i], want)
				}
			}
		}
	}
	if len(buffers) != 3 {
		t.Errorf("%d buffers, want those of global and of two shapes of local", len(buffers))
	}
}

// One optimizer that passes from client to client has its buffers in the trace of the turn that receives it.
func TestTracedOptimizerState(t *testing.T) {
	rec := trace.NewRecorder()
	mustRun(t, sharedToy(t), engine.Settings{Client: client.Settings{Tracer: rec}})
	if rec.Tensors["r0/c0/optimizer/momentum/b/global"] != nil {
		t.Error("the first turn takes over buffers")
	}
	first, taken := 0, 0
	for _, o := range rec.Rounds {
		for i, k := range o.Merged {
			if o.Round == 0 && i == 0 {
				first++
				continue
			}
			if rec.Tensors[fmt.Sprintf("r%d/c%d/optimizer/momentum/b/global", o.Round, k)] != nil {
				taken++
			}
		}
	}
	if first != 1 || taken == 0 {
		t.Errorf("%d turns are the first, %d take buffers over", first, taken)
	}
}

// untracedDraws draws numbers outside the trace, in one place.
type untracedDraws struct {
	method.Method
	place string
}

func (m untracedDraws) Begin(l *method.Local) error {
	if m.place == "begin" {
		l.Rand.Float64()
	}
	return m.Method.Begin(l)
}

func (m untracedDraws) AdjustGradients(l *method.Local, g tensor.Map) error {
	switch m.place {
	case "adjust":
		l.Rand.NormFloat64()
	case "recorded":
		l.Draws.Normal(l.Rand, "noise", 2)
	}
	return m.Method.AdjustGradients(l, g)
}

func (m untracedDraws) Finish(l *method.Local, up *method.Upload) error {
	if m.place == "finish" {
		l.Rand.Perm(3)
	}
	return m.Method.Finish(l, up)
}

func (m untracedDraws) Merge(g *method.Global, ups []method.Upload) error {
	if m.place == "merge" {
		g.Rand("merge").Uint64()
	}
	return m.Method.Merge(g, ups)
}

// A trace is refused if it lacks random numbers that a turn, a test or a merge used. Without a trace nothing is
// checked. Every recorded value has a place in the trace, and recording changes no number.
func TestTraceHasAllThatIsDrawn(t *testing.T) {
	for _, place := range []string{"begin", "adjust", "finish", "merge", "recorded", "nowhere"} {
		e := toy(t)
		e.Method = untracedDraws{e.Method, place}
		rec := trace.NewRecorder()
		_, err := engine.Run(t.Context(), e, engine.Settings{Client: client.Settings{Tracer: rec}})
		if complete := place == "recorded" || place == "nowhere"; complete != (err == nil) {
			t.Errorf("%s: %v", place, err)
		} else if err != nil && !strings.Contains(err.Error(), "the trace lacks") {
			t.Errorf("%s: %v", place, err)
		}
		mustRun(t, e, engine.Settings{})
		if noise := rec.Tensors["r0/c0/s0/draw/noise"]; (noise != nil) != (place == "recorded") {
			t.Errorf("%s: the trace has noise %v", place, noise)
		}
	}
	views := toy(t)
	views.Clients[0].Test.Views = slices.Repeat(views.Clients[0].Test.Views, 2) // a view is drawn for each row
	_, err := engine.Run(t.Context(), views, engine.Settings{Client: client.Settings{Tracer: trace.NewRecorder()}})
	goldentest.WantError(t, err, "its test draws images at random")
	plain, traced := untracedDraws{toy(t).Method, "recorded"}, t.TempDir()
	e := toy(t)
	e.Method = plain
	mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: trace.NewRecorder()}, Dir: traced})
	quiet := t.TempDir()
	mustRun(t, e, engine.Settings{Dir: quiet})
	if prompts(t, traced) != prompts(t, quiet) {
		t.Error("a trace changes what is learned")
	}
}
