package methods_test

import (
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
)

// Parameters that class scores may read.
const own, every, none = "private", "private shared", ""

// evaluable lists the parameters that class scores read, for every method, read off the formula of its scores. Wrappers
// do not change them.
var evaluable = map[string]string{"coop": own, "fedhpl": own, "fedpha": own, "sdfed": own, "zeroshot": none,
	"fedappr": "shared", "fedapt": "server shared", "fedmvp": "shared",
	"fedclip": "shared", "fedpr": "shared", "fedtpg": "shared", "fedvpt": "shared",
	"gptfl": "shared", "onnx": "shared", "promptfl": "shared",
	"cocoop": "shared", "fedlora": "shared", "ivlp": "shared",
	"kgcoop": "shared", "maple": "shared", "plot": "shared", "proda": "shared", "prograd": "shared",
	"promptsrc": "shared", "pfedmma": every, "pfedmoap": "private server shared", "ivlp+fedper private: image": every,
	"dpfpl": every, "fedotp": every, "fedpgp": every, "pfeddc": every, "powder": every, "uopp": every,
	"promptfolio": every, "fedmgp": every, "trip": "server shared", "trip average: beta": "server",
	"pfedprompt":   "examples shared",
	"coop+fedprox": own, "fedpha+fedprox+appr": own, "fedotp+scaffold": every, "promptfl+ggtpc+fedproto": "shared",
	"fedvpt+fedproto of: image": "shared", "pfeddc attention: none": "shared", "pfeddc attention: text": every}

// The existing evaluations follow from the parameters that class scores read.
func TestEvaluable(t *testing.T) {
	for _, e := range methods.Table() {
		if _, ok := evaluable[e.Name]; !ok && !e.Wrapper() {
			t.Errorf("%s: its evaluations are not tested", e.Name)
		}
	}
	task := methodtest.ClientsOfOneBackbone(4, 5)[0].Backbone.Task()
	task.Clients, task.Classes = 4, len(methodtest.Classes)
	for stack, reads := range evaluable {
		words := strings.Fields(strings.ReplaceAll(stack, ": ", ":"))
		layers, o := strings.Split(words[0], "+"), options{}
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, ":")
			o[key] = value
		}
		for _, l := range layers {
			if fitting[l] != nil {
				o[l] = fitting[l]
			}
		}
		m, err := methods.Build(layers[0], layers[1:], o)
		if err != nil {
			t.Errorf("%s: %v", stack, err)
			continue
		}
		got := record.EvaluableOf(m, task)
		global := reads == none || strings.Contains(reads, "shared") || strings.Contains(reads, "server")
		if strings.Join(got.Reads, " ") != reads || got.Global != global || got.Personal != (reads != "server") {
			t.Errorf("%s: %+v, its class scores read %q", stack, got, reads)
		}
	}
}

// The records, summary and evaluation sets of a run have no number and no key for an evaluation that the method lacks.
// Both evaluations of other methods differ, as the parameters do.
func TestNoGlobalOfPrivateScores(t *testing.T) {
	for _, name := range []string{"coop", "fedpha", "promptfl", "zeroshot"} {
		m := methodtest.Build(t, name, nil, nil)
		clients := methodtest.ClientsOfOneBackbone(4, 5)
		rows := clients[0].Test
		r := enginetest.Run(t, &spec.Experiment{Method: m, Classes: methodtest.Classes,
			Template: "a photo of a {}.",
			Clients:  clients, Plan: spec.Plan{Rounds: 1, Seed: 5, Participation: .5},
			EvaluationSets: []spec.EvaluationSet{{Name: "again",
				Test: map[string]*spec.Features{clients[0].Backbone.Name(): rows}}},
			Training: spec.Training{Epochs: 2, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 1}}},
			engine.Settings{Encode: true})
		for what, v := range map[string]any{"record": r.Records[0], "summary": r.Summary} {
			text := goldentest.JSON(t, v)
			private := name == "coop" || name == "fedpha"
			if got := strings.Contains(string(text), `global":`); got == private {
				t.Errorf("%s, %s: class scores read nothing shared: %v; global is there: %v\n%s", name, what, private,
					got, text)
			}
			untrained := strings.Contains(string(text), `"untrained":1`)
			if !strings.Contains(string(text), `"personal":{`) || untrained == (name == "zeroshot") {
				t.Errorf("%s, %s: one of two clients trained, if there is anything to train\n%s", name, what, text)
			}
		}
		if view := r.Summary.View; (view == "personal") != (name == "coop" || name == "fedpha") {
			t.Errorf("%s: the headline is %s", name, view)
		}
	}
}
