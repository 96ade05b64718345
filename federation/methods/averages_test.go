package methods_test

import (
	"slices"
	"strings"
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
)

type averaging struct {
	stack   string
	options options
	want    string
}

// averages lists stacks with the weights of clients in the server's mean, if a mean is enough, or words of the server's
// other needs. Every method and wrapper has its default options; the entries were read off its rule of aggregation.
var averages = []averaging{
	{"coop", nil, "shares nothing"}, {"zeroshot", nil, "shares nothing"}, {"fedhpl", nil, "shares nothing"},
	{"fedappr", nil, "appr needs every client's prompt"}, {"powder", nil, "set weighting: examples"},
	{"fedclip", nil, "uniform"}, {"fedtpg", options{"heads": 2, "mult": 1}, "uniform"}, {"fedotp", nil, "examples"},
	{"fedpgp", nil, "examples"}, {"fedpha", nil, "examples"}, {"fedpr", nil, "examples"},
	{"fedvpt", nil, "examples"}, {"gptfl", nil, "examples"}, {"pfeddc", nil, "examples"},
	{"pfedprompt", nil, "examples"}, {"promptfl", nil, "examples"}, {"sdfed", nil, "examples"},
	{"uopp", nil, "examples"}, {"dpfpl", nil, "uniform"}, {"fedapt", nil, "uniform"}, {"fedmvp", nil, "uniform"},

	{"promptfl+appr", nil, "set lambda_a: 0"}, {"promptfl+dp", nil, "set where: client"},
	{"promptfl+feddyn", nil, "uniform"}, {"promptfl+fedntd", nil, "examples"}, {"promptfl+fedopt", nil, "examples"},
	{"promptfl+fedproto", nil, "every client's prototypes"}, {"promptfl+fedprox", nil, "examples"},
	{"promptfl+ggtpc", nil, "examples"}, {"promptfl+moon", nil, "examples"},
	{"promptfl+robust", nil, "robust needs each client's upload"}, {"promptfl+scaffold", nil, "uniform"},

	{"fedpha+feddyn+fedprox", options{"feddyn": options{"alpha": 0.3}}, "uniform"},
	{"promptfl+scaffold", options{"control": "gradients", "server_lr": 0.5}, "uniform"},
	{"promptfl+scaffold", options{"weighting": "examples"}, "set weighting: uniform"},
	{"promptfl+feddyn", options{"weighting": "examples"}, "set weighting: uniform"},
	{"powder", options{"weighting": "examples"}, "examples"},
	{"fedtpg", options{"heads": 2, "mult": 1, "weighting": "examples"}, "examples"},
	{"fedclip", options{"weighting": "examples"}, "examples"},
	{"promptfl+appr", options{"lambda_a": 0.0}, "examples"},
	{"promptfl+fedproto", options{"lambda": 0.0}, "examples"},
	{"promptfl+feddyn", options{"alpha": 0.0, "weighting": "examples"}, "examples"},
	{"fedpha+fedprox+fedopt", options{"weighting": "uniform"}, "uniform"},
	{"promptfl+dp", options{"where": "client", "noise": 0.5}, "uniform"},
	{"promptfl+dp", options{"clip": 0.0, "noise": 0.0}, "examples"},
	{"fedclip+fedprox", nil, "uniform"},
}

func TestAverages(t *testing.T) {
	for _, a := range averages {
		layers := strings.Split(a.stack, "+")
		c := methodtest.Case{Name: layers[0], With: layers[1:], Options: a.options,
			Alike: slices.Contains([]string{"fedclip", "fedtpg", "fedpr", "fedapt", "fedmvp"}, layers[0])}
		t.Run(c.Label(), func(t *testing.T) {
			m := methodtest.Build(t, c.Name, c.With, c.Options)
			got, _, err := methods.AveragedUploads(m)
			if err != nil && !strings.Contains(err.Error(), a.want) || err == nil && got != a.want {
				t.Errorf("%q, %v; want %q", got, err, a.want)
			}
			if asked := methods.StatisticNames(m); len(m.Statistics(0)) != len(asked) ||
				(len(asked) > 0) != slices.Contains(c.With, "ggtpc") {
				t.Errorf("it asks %v", asked)
			}
			c.Aggregation(t)
		})
	}
}
