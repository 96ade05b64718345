package methods_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methods/text/averaged"
	"promptfed/federation/methods/text/personalized"
	"promptfed/federation/methods/wrappers/optimization"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
)

func TestRefusesOptions(t *testing.T) {
	for _, c := range []struct {
		name    string
		with    []string
		options options
		words   []string
	}{
		{"promptlf", nil, nil, []string{`method: there is no method "promptlf"`, "did you mean promptfl?"}},
		{"promptfl", []string{"fedprxo"}, nil, []string{`with: there is no method "fedprxo"`}},
		{"fedprox", nil, nil, []string{"fedprox is a wrapper", "with:", "promptfed list methods"}},
		{"promptfl", []string{"coop"}, nil, []string{"coop is not a wrapper", "promptfed list wrappers"}},
		{"promptfl", []string{"fedprox", "fedprox"}, nil, []string{"fedprox is listed twice"}},
		{"promptfl", nil, options{"token": 4}, []string{"options.token", "unknown", "did you mean tokens?"}},
		{"zeroshot", nil, options{"tokens": 4}, []string{"options.tokens", "unknown", "zeroshot: template, ensemble"}},
		{"promptfl", []string{"fedprox"}, options{"nu": 4}, []string{"options.nu", "promptfl: tokens", "fedprox: mu"}},
		{"promptfl", []string{"fedprox"}, options{"fedprox": options{"nu": 4}}, []string{"options.fedprox.nu",
			"the options of fedprox are mu"}},
		{"promptfl", nil, options{"promptfl": 3}, []string{"options.promptfl", "expected options", "tokens"}},
		{"promptfl", nil, options{"tokens": "many"}, []string{"options.tokens",
			`"many" is not a whole number`}},
		{"promptfl", nil, options{"tokens": []any{4, 8}}, []string{"options.tokens: a list or a section is given"}},
		{"promptfl", nil, options{"tokens": 1.5}, []string{"tokens", "1.5 is not a whole number"}},
		{"promptfl", nil, options{"tokens": true}, []string{"tokens", "true is not a number"}},
		{"promptfl", nil, options{"tokens": []int{1, 2}}, []string{"tokens"}},
		{"promptfl", nil, options{"tokens": nil}, []string{"options.tokens has no value", "remove the line"}},
		{"promptfl", []string{"fedprox"}, options{"fedprox": options{"mu": nil}},
			[]string{"options.fedprox.mu has no value"}},
		// an option in both forms at once is refused, in any order of the two names
		{"promptfl", []string{"fedprox"}, options{"mu": 5, "fedprox": options{"mu": 2}}, []string{"options.mu and " +
			"options.fedprox.mu are the same option"}},
		{"promptfl", []string{"dp"}, options{"clip": 5, "dp": options{"clip": 2}}, []string{"options.clip and " +
			"options.dp.clip are the same option"}},
		{"promptfl", nil, options{"init_std": "NaN"}, []string{"init_std", "not a finite number"}},
		{"promptfl", nil, options{"tokens": 0}, []string{"promptfl", "tokens is 0", "between 1 and 1024"}},
		{"promptfl", nil, options{"tokens": 1 << 40}, []string{"tokens", "between 1 and 1024"}},
		{"promptfl", nil, options{"init_std": -1}, []string{"init_std is -1"}},
		{"promptfl", nil, options{"position": "top", "tokens": 0}, []string{"tokens is 0", "; ", `position is "top"`,
			"end, middle or front"}},
		{"fedpha", nil, options{"local_tokens": []int{}}, []string{"local_tokens is empty"}},
		{"fedpha", nil, options{"local_tokens": []any{4, 0}}, []string{"local_tokens is 0"}},
		{"fedpha", nil, options{"local_tokens": []any{4, 2.5}}, []string{"local_tokens", "2.5 is not a whole number"}},
		{"fedpha", nil, options{"ratio": 1.2}, []string{"ratio is 1.2"}},
		{"fedpha", nil, options{"ratio": 0}, []string{"ratio is 0"}},
		{"fedpha", nil, options{"projector": "eq8"}, []string{"projector", "eq9", "alg1", "code", "exact-null"}},
		{"fedpha", nil, options{"svd_every": "never"}, []string{"svd_every", "round, epoch or step"}},
		{"sdfed", nil, options{"lambda": 0.6}, []string{"options.lambda", "sdfed: global_tokens", "ratio, alpha"}},
		{"fedpgp", nil, options{"temp": 0, "rank": 0}, []string{"fedpgp", "temp is 0", "rank is 0"}},
		{"fedpgp", nil, options{"positive": "text"}, []string{"positive", "hand or code"}},
		{"zeroshot", nil, options{"template": "pet"}, []string{"template", "contain {}", "aircraft, dtd", "pets"}},
		{"zeroshot", nil, options{"ensemble": []string{"a {}.", "a {}."}}, []string{"listed twice"}},
		{"promptfl", []string{"appr"}, options{"view": "global"}, []string{"view", "own or base"}},
		{"fedappr", nil, options{"lambda_a": -0.1}, []string{"lambda_a is -0.1"}},
		{"fedappr", nil, options{"hidden": 0, "warmup": -1}, []string{"hidden is 0", "warmup is -1"}},
		{"promptfl", []string{"fedprox"}, options{"mu": -1}, []string{"fedprox", "mu is -1"}},
		{"coop", []string{"scaffold"}, nil, []string{"scaffold", "the base method shares nothing"}},
		{"coop", []string{"feddyn"}, nil, []string{"feddyn", "the base method shares nothing"}},
		{"fedhpl", []string{"fedopt"}, nil, []string{"fedopt", "the base method shares nothing"}},
		{"coop", []string{"moon"}, nil, []string{"moon", "the base method shares nothing"}},
		{"coop", []string{"fedntd"}, nil, []string{"fedntd", "own private parameters", "remove it"}},
		{"fedpha", []string{"fedntd"}, nil, []string{"fedntd", "own private parameters", "remove it"}},
		{"sdfed", []string{"fedprox", "fedntd"}, nil, []string{"fedntd", "own private parameters", "remove it"}},
		{"fedproto", nil, nil, []string{"fedproto is a wrapper"}},
		{"coop", []string{"fedproto"}, options{"distance": "l2"}, []string{"distance", "sum or mean"}},
		{"fedotp", nil, options{"stop": "never"}, []string{"stop", "image, pair or code"}},
		{"fedpr", nil, options{"projector": "eq9"}, []string{"projector", "exact-null or code"}},
		{"zeroshot", []string{"fedntd"}, nil, []string{"fedntd", "learns nothing"}},
		{"zeroshot", []string{"fedproto"}, nil, []string{"fedproto", "learns nothing"}},
		{"promptfl", []string{"feddyn", "fedopt"}, nil,
			[]string{"fedopt", "feddyn both replace the server's averaging step"}},
		{"promptfl", []string{"fedopt", "fedprox", "feddyn"}, nil,
			[]string{"feddyn", "fedopt both replace the server's averaging step"}},
		{"promptfl", []string{"feddyn", "scaffold"}, nil,
			[]string{"scaffold", "feddyn both correct client drift", "keep one of the two"}},
		{"promptfl", []string{"scaffold", "feddyn"}, nil, []string{"feddyn", "scaffold both correct client drift"}},
		{"promptfl", []string{"scaffold", "fedopt"}, options{"scaffold": options{"server_lr": 0.5}},
			[]string{"scaffold both replace the server's averaging step", "set options.scaffold.server_lr: 1"}},
		{"promptfl", []string{"fedopt", "scaffold"}, options{"scaffold": options{"server_lr": 0.5}},
			[]string{"fedopt both replace the server's averaging step", "set options.scaffold.server_lr: 1"}},
		{"trip", nil, options{"templates": []string{"a {}", "a"}}, []string{`templates: "a" must contain {}`}},
		{"fedmvp", nil, options{"templates": []string{"a"}}, []string{`templates: "a" must contain {}`}},
		{"promptsrc", []string{"fedopt"}, nil, []string{"fedopt", "promptsrc both replace", "set options.gpa: none"}},
		{"trip", []string{"qffl"}, options{"average": "ema"}, []string{"trip both replace", "options.average: none"}},
		{"fedmgp", []string{"scaffold"}, nil, []string{"fedmgp both decide where clients start a round"}},
		{"fedmgp", []string{"feddyn"}, nil, []string{"fedmgp both replace the server's averaging step"}},
		{"promptfl", []string{"feddyn"}, options{"alpha": 1e-12}, []string{"alpha is 1e-12",
			"must be 0 or lie between 1e-09"}},
		{"promptfl", []string{"fedproto"}, options{"of": "image"}, []string{"fedproto: of: image", "use text"}},
		{"fedotp", []string{"fedproto"}, options{"of": "image"}, []string{"fedproto: of: image", "use another"}},
		{"promptfl", []string{"dp"}, options{"clip": 0}, []string{"clip is 0", "set noise: 0"}},
		{"promptfl", []string{"dp"}, options{"noise": -1, "delta": 0.9, "where": "here"}, []string{"noise is -1",
			"delta is 0.9", "server or client"}},
		{"promptfl", []string{"dp"}, options{"adapt": 0.2, "where": "client"},
			[]string{"adapt moves a clip that the server applies"}},
		{"promptfl", []string{"scaffold", "dp"}, nil, []string{"dp: a method inside also uploads scaffold/dc",
			"without clipping and noise"}},
		{"promptfl", []string{"ggtpc", "fedprox", "dp"}, nil,
			[]string{"dp: clients also answer the statistics of ggtpc"}},
		{"coop", []string{"dp"}, nil, []string{"dp", "shares nothing"}},
		{"promptfl", []string{"robust", "fedprox"}, nil, []string{"with: robust must be the last",
			"fedprox outside it"}},
		{"promptfl", []string{"robust"}, options{"trim": 0.5, "attackers": -1}, []string{"trim is 0.5",
			"attackers is -1"}},
		{"promptfl", []string{"robust"}, options{"kind": "mean"}, []string{"kind",
			"median, trimmed-mean, krum, multi-krum, geometric-median or norm-clip"}},
	} {
		_, err := methods.Build(c.name, c.with, c.options)
		t.Run(fmt.Sprint(c.name, c.with, c.options), func(t *testing.T) { goldentest.WantError(t, err, c.words...) })
	}
}

func TestTakesOptions(t *testing.T) {
	for _, o := range []options{
		{"local_tokens": 5}, {"local_tokens": []any{5}}, {"local_tokens": []any{"5"}}, {"local_tokens": []float64{5}},
		{"fedpha": options{"local_tokens": []int{5}}},
	} {
		m, err := methods.Build("fedpha", []string{"fedprox"}, o)
		if err != nil {
			t.Errorf("%v: %v", o, err)
			continue
		}
		pha := m.(optimization.FedProx).Method.(personalized.FedPHA)
		if !reflect.DeepEqual(pha.Local, []int{5}) || pha.Ratio != 0.8 {
			t.Errorf("%v gave %v and ratio %v", o, pha.Local, pha.Ratio)
		}
	}
	m := methodtest.Build(t, "promptfl", []string{"fedprox"}, options{"tokens": "7", "mu": "0.25"})
	if p := m.(optimization.FedProx); p.Mu != 0.25 || p.Method.(averaged.PromptFL).Tokens != 7 {
		t.Errorf("%+v", p)
	}
}

// A resolved option whose value leaves the decision to the method's file is absent: 0 tokens would be a false number.
func TestResolvedOptions(t *testing.T) {
	for want, o := range map[string]options{"map[file:example]": {"tokens": 0},
		"map[file:example private_tokens:[0 2] tokens:4]": {"tokens": 4, "private_tokens": []int{0, 2}}} {
		stack, err := methods.Resolve("onnx", nil, o)
		if got := fmt.Sprint(stack.Options); err != nil || got != want {
			t.Errorf("%v gave %s, %v; want %s", o, got, err, want)
		}
	}
	unset, _ := methods.Resolve("zeroshot", nil, nil)
	if empty, err := methods.Resolve("zeroshot", nil, options{"ensemble": []string{}}); err != nil ||
		!reflect.DeepEqual(empty.Options, unset.Options) {
		t.Errorf("an empty list gave %#v, %v; want %#v", empty.Options, err, unset.Options)
	}
}

// A file that options name, with or without the name of the method above it, becomes its content.
func TestEmbedFiles(t *testing.T) {
	for _, o := range []options{{"file": "a/b.onnx"}, {"onnx": options{"file": "a/b.onnx"}}} {
		o, err := methods.EmbedFiles("onnx", o, func(path string) ([]byte, error) { return []byte("of " + path), nil })
		files := methods.Files(o)
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		name, text, err := files[0].Content()
		if name != "b.onnx" || string(text) != "of a/b.onnx" || err != nil {
			t.Errorf("%s has %q, %v", name, text, err)
		}
	}
}

// Options decide whether there is differential privacy, and whether a known defect is reproduced.
func TestPropertiesOfOptions(t *testing.T) {
	_, local := methods.EpsilonLocal(methodtest.Build(t, "dpfpl", nil, options{"noise": 0}), 3)
	_, on := methods.DPLayer(methodtest.Build(t, "promptfl", []string{"dp"}, options{"clip": 0, "noise": 0}))
	if local || on {
		t.Errorf("without noise there is privacy of one client: %t, of clients: %t", local, on)
	}
	defects := methods.Reproduces(methodtest.Build(t, "promptfl", []string{"fedprox"}, options{"detached": true}))
	if fmt.Sprint(defects) != "[options.detached: true]" {
		t.Errorf("%q", defects)
	}
}

// The table lists base methods before wrappers, each by name, and explains every option.
func TestEveryOptionIsExplained(t *testing.T) {
	last := ""
	for _, e := range methods.Table() {
		place := fmt.Sprint(e.Wrapper(), e.Name) // "false" comes before "true"
		if place < last {
			t.Errorf("%s comes behind %s", place, last)
		}
		last = place
		for _, o := range e.Options() {
			if o.Help == "" || o.Type == "" || o.Default == "" {
				t.Errorf("%s: option %+v", e.Name, o)
			}
		}
		if e.Title == "" || e.Paper == "" {
			t.Errorf("%s has no title or no paper", e.Name)
		}
		defaults := e.Name
		if e.Wrapper() {
			defaults = "promptfl"
		}
		if _, err := methods.Build(defaults, nil, nil); err != nil {
			t.Errorf("%s with its defaults: %v", e.Name, err)
		}
	}
}

// FuzzOptions reads any JSON as options: it never panics and errors have one line. Accepted options are accepted again
// in their resolved form, with the same meaning.
func FuzzOptions(f *testing.F) {
	for _, s := range []string{`{}`, `null`, `{"tokens":4}`, `{"local_tokens":[1,"2",3.0]}`, `{"fedprox":{"mu":1e300}}`,
		`{"ratio":"0.5","fedpha":{"alpha":null}}`, `{"disc_lr":1e-3,"hidden":-1}`, `{"mu":{"a":[{}]}}`,
		`{"init_std":"0x1p-3"}`, `{"\n":0}`, `{"fedprox":{"\n":0}}`} {
		for i := range methods.Table() {
			f.Add(s, i)
		}
	}
	f.Fuzz(func(t *testing.T, s string, i int) {
		var o map[string]any
		if json.Unmarshal([]byte(s), &o) != nil {
			return
		}
		e := methods.Table()[uint(i)%uint(len(methods.Table()))]
		name, with := e.Name, []string{"fedprox"}
		if e.Wrapper() {
			name = "promptfl"
		}
		stack, err := methods.Resolve(name, with, o)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than one line: %q", err)
			}
			return
		}
		again, err := methods.Build(name, with, stack.Options)
		if err != nil || !reflect.DeepEqual(stack.Method, again) {
			t.Fatalf("%v resolved to %v: %+v, %v", o, stack.Options, again, err)
		}
	})
}
