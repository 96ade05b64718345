package configs

import (
	"maps"
	"strings"
	"testing"

	"promptfed/federation/experiment"
	"promptfed/runtime/goldentest"
)

// A file with two readings of a value, or none, is an error that names the place: each of these lines trained with one
// of two values, with the default, with 0, or with another number than the file shows.
func TestUnambiguous(t *testing.T) {
	for _, c := range []struct {
		text string
		sets []string
		say  []string
	}{
		{"train:\n  lr: 0.1\n  LR: 0.2", nil, []string{"c.yaml:3", "train.lr is given twice", "line 2"}},
		{"train:\n  lr: 0.1\n  lr: 0.2", nil, []string{"c.yaml:3", "train.lr is given twice", "line 2"}},
		{"train.lr: 0.1\ntrain: {lr: 0.2}", nil, []string{"c.yaml:2", "train.lr is given twice"}},
		{"TRAIN: {lr: 0.1}\ntrain: {rounds: 2}", nil, []string{"train is given twice"}},
		{"data: {class_names: {A: capital, a: small}}", nil, []string{"data.class_names.a is given twice"}},
		{"name: x", []string{"data.class_names={A: capital, a: small}"}, []string{"--set", "given twice"}},
		{"train: {lr: }", nil, []string{"c.yaml:1", "train.lr has no value"}},
		{"seed:", nil, []string{"seed has no value"}},
		{"backbones:", nil, []string{"backbones has no value"}},
		{"seed: ''", nil, []string{"seed", `"" is given where a whole number, 0 or more`}},
		{"data: {shots: ' '}", nil, []string{"data.shots", "a whole number is expected"}},
		{"train: {momentum: ''}", nil, []string{"train.momentum", "a number is expected"}},
		{"eval: {zero_shot: ''}", nil, []string{"eval.zero_shot", "true or false is expected"}},
		{"train: {rounds: 9223372036854775808}", nil, []string{"train.rounds", "a whole number"}},
		{"name: x", []string{`data.shots=""`}, []string{"data.shots", "a whole number is expected"}},
		{"seed: 010", nil, []string{"c.yaml:1", "010 begins with 0"}},
		{"name: x\n---\ntrain: {rounds: 5}", nil, []string{"c.yaml:2", "second document"}},
		{"name: x", []string{"seed=010"}, []string{"--set seed=010", "begins with 0"}},
		{"data: {class_names: {bond: 007}}", nil, []string{"007 begins with 0"}},
		{"partition: {beta: .inf}", nil, []string{"c.yaml:1", "partition.beta: +Inf is not a finite number"}},
		{"seed: 1", []string{"data.generator.difficulty=nan"}, []string{"--set", "nan is not a finite number"}},
		{"data: {class_names: {a: 1.10}}", nil, []string{"data.class_names", "text is expected"}},
	} {
		_, err := Open(file(t, c.text), c.sets)
		t.Run(c.text, func(t *testing.T) { goldentest.WantError(t, err, c.say...) })
	}
	t.Setenv("PROMPTFED_SEED", "010")
	if _, err := Open(file(t, "name: x"), nil); err == nil || !strings.Contains(err.Error(), "seed") {
		t.Errorf("a variable of 010: %v", err)
	}
}

// Unambiguous texts are read as they are: sections whose lines are all comments, and words that YAML takes for truth
// values.
func TestOneWay(t *testing.T) {
	c, err := Open(file(t, "data:\n  class_names: {a: true, b: no, c: 7}\ntrain:\n  # lr: 1\noptions:\n"), nil)
	want := map[string]string{"a": "true", "b": "no", "c": "7"}
	if err != nil || !maps.Equal(c.Data.ClassNames, want) || c.Train.LR != experiment.Defaults().Train.LR {
		t.Errorf("%v %q %v", err, c.Data.ClassNames, c.Train.LR)
	}
	c, err = Open(file(t, "seed: 0\ntrain: {lr: 0.5, weight_decay: 0}\nname: \"007\""), nil)
	if err != nil || c.Seed != 0 || c.Name != "007" || c.Train.WeightDecay != 0 {
		t.Errorf("%v %v %q", err, c.Seed, c.Name)
	}
}
