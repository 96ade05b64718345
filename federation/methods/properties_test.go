package methods

import (
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/federation/methods/text/averaged"
	"promptfed/runtime/goldentest"
)

// declaresMean declares that the mean is enough, and uploads more.
type declaresMean struct {
	averaged.PromptFL
	extras []method.Extra
}

func (m declaresMean) Extras(method.ClientSpec) []method.Extra { return m.extras }

// TestBuffers: FedBuff accepts stacks whose server needs only a mean of shared parameters, and names other needs.
func TestBuffers(t *testing.T) {
	for _, c := range []struct {
		base, with, fail string
	}{
		{"promptfl", "", ""}, {"maple", "", ""}, {"promptfl", "fedprox", ""}, {"promptfl", "fedopt", ""},
		{"promptfl", "ditto", ""}, {"ivlp", "fedper", ""},
		{"promptfl", "scaffold", "scaffold/dc"}, {"promptfl", "feddyn", "feddyn has to correct client drift"},
		{"promptfl", "fednova", "every client's amount of work"}, {"promptfl", "fedamp", "every client's own"},
		{"coop", "", "shares nothing"}, {"promptfl", "ggtpc", "ggtpc"},
		{"fedmgp", "", "fedmgp has to decide where clients start a round"},
	} {
		var with []string
		if c.with != "" {
			with = []string{c.with}
		}
		m, err := Build(c.base, with, nil)
		goldentest.NoError(t, err)
		if err := CheckBuffered(m); c.fail == "" && err != nil || c.fail != "" && (err == nil ||
			!strings.Contains(err.Error(), c.fail)) {
			t.Errorf("%s %s: %v, want %q", c.base, c.with, err, c.fail)
		}
	}
}

// A declaration that a mean is enough does not cover other uploads of clients, except a tensor for each shared
// parameter.
func TestMeanCoversNoOtherUploads(t *testing.T) {
	base := averaged.PromptFL{ClassContext: prompts.ClassContext{Context: prompts.DefaultContext}, ClassAverage: "all"}
	for _, c := range []struct {
		extras       []string
		beside, fail string
	}{
		{nil, "", ""}, {[]string{"change/ctx"}, "change", ""}, {[]string{"a/ctx", "b/ctx"}, "a b", ""},
		{[]string{"length"}, "", "clients upload length"}, {[]string{"a/ctx", "a/other"}, "", "clients upload a/other"},
	} {
		m := declaresMean{PromptFL: base}
		for _, name := range c.extras {
			m.extras = append(m.extras, method.Extra{Name: name})
		}
		_, beside, err := AveragedUploads(m)
		if c.fail == "" && (err != nil || strings.Join(beside, " ") != c.beside) ||
			c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)) {
			t.Errorf("%q: beside %q, %v", c.extras, beside, err)
		}
	}
}

// TestNeverActing: a note names a part whose delay covers all rounds, and is absent with one more round. With weight
// zero there is no such part. FedAPPR's term acts in rounds after warmup (t > T0, from 1), low-rank changes from
// lora_round, counted from 0.
func TestNeverActing(t *testing.T) {
	for _, c := range []struct {
		base    string
		with    []string
		options map[string]any
		rounds  int
		say     string // "" for nothing
	}{
		{"fedappr", nil, nil, 20,
			"adversarial term never acts: option warmup leaves it out of the first 20 rounds, and the run has 20"},
		{"fedappr", nil, nil, 21, ""}, {"fedappr", nil, map[string]any{"lambda_a": 0}, 5, ""},
		{"fedappr", []string{"fedprox"}, map[string]any{"warmup": 3}, 2,
			"option warmup leaves it out of the first 3 rounds, and the run has 2"},
		{"promptfl", []string{"appr", "fedprox"}, nil, 20, "option warmup"}, {"promptfl", nil, nil, 1, ""},
		{"fedmvp", nil, map[string]any{"lora_round": 5}, 4,
			"low-rank changes never acts: option lora_round leaves it out of the first 4"},
		{"fedmvp", nil, map[string]any{"lora_round": 4}, 4, ""}, {"fedmvp", nil, nil, 1, ""},
	} {
		m, err := Build(c.base, c.with, c.options)
		goldentest.NoError(t, err)
		got := InactiveTerms(m, c.rounds)
		if len(got) > 1 || (c.say != "") != (len(got) == 1) || !strings.Contains(strings.Join(got, ""), c.say) {
			t.Errorf("%s with %v, %v, %d rounds: %q, want %q", c.base, c.with, c.options, c.rounds, got, c.say)
		}
	}
}

// A method that an option left open chose is named before a run, under wrappers too.
func TestNotes(t *testing.T) {
	for base, want := range map[string]bool{"onnx": true, "promptfl": false} {
		m, err := Build(base, []string{"fedprox"}, nil)
		goldentest.NoError(t, err)
		if got := strings.Join(Notes(m), ""); strings.Contains(got, "options.file names another") != want {
			t.Errorf("%s: %q", base, got)
		}
	}
}
