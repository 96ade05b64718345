package methods_test

import (
	stdcontext "context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// sums gives the server one upload for all, the mean that Averages names.
type sums struct {
	engine.Cohort
	weighting string
	beside    []string
}

func (c sums) Run(ctx stdcontext.Context, o engine.Order) ([]engine.Reply, error) {
	replies, err := c.Cohort.Run(ctx, o)
	if o.Kind != engine.Train || err != nil {
		return replies, err
	}
	one := engine.Reply{Client: method.Summed, Upload: method.Upload{Client: method.Summed, Extra: tensor.Map{}}}
	var ups []method.Upload
	for _, r := range replies {
		for _, name := range r.Upload.Extra.Names() {
			if !slices.ContainsFunc(c.beside, func(prefix string) bool {
				return r.Upload.Shared[strings.TrimPrefix(name,
					prefix+"/")] != nil
			}) {
				return nil, fmt.Errorf("client %d uploaded %s too", r.Client, name)
			}
		}
		if c.weighting == "uniform" {
			r.Upload.N = 1
		}
		one.Sum, one.Upload.N, ups = append(one.Sum, r.Client), one.Upload.N+r.Upload.N, append(ups, r.Upload)
	}
	one.Upload.Shared = method.Mean(ups, func(u method.Upload) tensor.Map { return u.Shared })
	one.Upload.Extra = method.Mean(ups, func(u method.Upload) tensor.Map { return u.Extra })
	return []engine.Reply{one}, nil
}

// A stack that Averages names a weighting for gives the same from that mean alone, uploads nothing else, and asks
// nothing that Surveyed does not name.
func TestAverages(t *testing.T) {
	taken := []string{}
	try := func(name string, with []string, o options) {
		m, err := methods.Build(name, with, o)
		if err != nil {
			t.Fatal(name, with, err)
		}
		weighting, beside, err := methods.Averages(m)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "methods.") {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
		taken = append(taken, strings.Join(append([]string{name}, with...), "+"))
		if asked := methods.Surveyed(m); len(m.Surveys(0)) != len(asked) || (len(asked) > 0) != slices.Contains(with,
			"ggtpc") {
			t.Errorf("%s+%v asks %v", name, with, asked)
		}
		var got [2]tensor.Map
		for i := range got {
			set := engine.Settings{Workers: 2}
			if i == 1 {
				set.Around = func(c engine.Cohort) engine.Cohort { return sums{c, weighting, beside} }
			}
			r, err := engine.Run(stdcontext.Background(), &engine.Experiment{Method: m, Classes: methodtest.Classes,
				Template: "a {}.", Clients: methodtest.Alike(4, 9, 3),
				Plan: engine.Plan{Rounds: 2, Seed: 5}, Training: engine.Training{Epochs: 1, Batch: 4,
					Optim: optim.Config{Name: "sgd", LR: 0.1}}}, set)
			if err != nil {
				t.Errorf("%s+%v: %v", name, with, err)
				return
			}
			got[i] = r.Prompts
		}
		for name2, want := range got[0] {
			if strings.Contains(name2, "draw") || want.IsInt() {
				continue
			}
			for i, v := range want.Data {
				if d := math.Abs(float64(got[1][name2].Data[i] - v)); !(d <= 1e-5*max(1, want.MaxAbs())) {
					t.Errorf("%s+%v: %s differs by %v", name, with, name2, d)
					break
				}
			}
		}
	}
	for _, e := range methods.Table {
		o := options{}
		if fitting[e.Name] != nil {
			o[e.Name] = fitting[e.Name]
		}
		if e.Wrapper {
			try("promptfl", []string{e.Name}, o)
		} else {
			try(e.Name, nil, o)
		}
	}
	try("fedpha", []string{"feddyn", "fedprox"}, options{"feddyn": options{"alpha": 0.3}})
	try("promptfl", []string{"scaffold"}, options{"control": "gradients", "server_lr": 0.5})
	try("promptfl", []string{"scaffold"}, options{"weighting": "examples"}) // not taken
	try("powder", nil, options{"weighting": "examples"})
	try("fedtpg", nil, options{"heads": 2, "mult": 1, "weighting": "examples"})
	try("fedclip", nil, options{"weighting": "examples"})
	try("promptfl", []string{"appr"}, options{"lambda_a": 0.0})
	try("promptfl", []string{"fedproto"}, options{"lambda": 0.0})
	try("promptfl", []string{"scaffold"}, options{"strength": 0.0})
	try("promptfl", []string{"feddyn"}, options{"alpha": 0.0, "weighting": "examples"})
	try("fedpha", []string{"fedprox", "fedopt"}, options{"weighting": "uniform"})
	try("promptfl", []string{"dp"}, options{"where": "client", "noise": 0.5})
	try("promptfl", []string{"dp"}, options{"clip": 0.0, "noise": 0.0})
	want := []string{"fedclip", "fedotp", "fedpha", "fedpgp", "fedpr", "fedtpg", "fedvpt", "gptfl", "pfeddc",
		"pfedprompt", "promptfl", "sdfed", "uopp", "promptfl+feddyn", "promptfl+fedntd",
		"promptfl+fedopt", "promptfl+fedprox", "promptfl+ggtpc", "promptfl+moon", "promptfl+scaffold",
		"fedpha+feddyn+fedprox", "promptfl+scaffold", "powder", "fedtpg", "fedclip", "promptfl+appr",
		"promptfl+fedproto", "promptfl+scaffold",
		"promptfl+feddyn", "fedpha+fedprox+fedopt", "promptfl+dp", "promptfl+dp"}
	if !slices.Equal(taken, want) {
		t.Errorf("taken are %v", taken)
	}
}
