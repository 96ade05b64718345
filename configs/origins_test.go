package configs

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
)

const three = `name: x
method: fedpha
options: {global_tokens: 4, local_tokens: [4], svd_every: epoch}
train:
  lr: 0.1
  rounds: 3
data: {set: synthetic}
`

// An error about a value names the flag, the variable or the line of the file that sets it; the last one that sets the
// key counts.
func TestBlame(t *testing.T) {
	for _, c := range []struct {
		old, now  string // in the file
		env, sets []string
		begins    string // after the name of the file if it begins with a colon
	}{
		{"rounds: 3", "rounds: none", nil, nil, ":6: train.rounds: "},
		{"rounds: 3", "rounds: 0", nil, nil, ":6: train.rounds: 0; it must be 1 or more"},
		{"rounds: 3", "rouns: 3", nil, nil, ":6: unknown key train.rouns"},
		{"lr: 0.1", "lr: -1", nil, nil, ":5: train: optim: sgd: lr is -1"},
		{"svd_every: epoch", "svd_every: never", nil, nil, ":3: fedpha: option svd_every"},
		{"", "", []string{"PROMPTFED_TRAIN_ROUNDS=none"}, nil, "PROMPTFED_TRAIN_ROUNDS=none: train.rounds: "},
		{"rounds: 3", "rounds: none", []string{"PROMPTFED_TRAIN_ROUNDS=0"}, nil,
			"PROMPTFED_TRAIN_ROUNDS=0: train.rounds"},
		{"", "", []string{"PROMPTFED_ATTACK_CLIENTS=[1,x]"}, nil, "PROMPTFED_ATTACK_CLIENTS=[1,x]: attack.clients[1]:"},
		{"", "", []string{"PROMPTFED_WITH=[a"}, nil, "PROMPTFED_WITH=[a: yaml: line 1: did not find"},
		{"rounds: 3", "rounds: none", []string{"PROMPTFED_TRAIN_ROUNDS=0"}, []string{"train.rounds=-1"},
			"--set train.rounds=-1: train.rounds: -1;"},
		{"", "", nil, []string{"train={rounds: 0}"}, "--set train={rounds: 0}: train.rounds: 0;"},
		{"", "", nil, []string{"train.schedule.kind=foo"}, "--set train.schedule.kind=foo: train.schedule: "},
		{"", "", nil, []string{"data.set=folder"}, ":7: data.root: "},
		{"", "", nil, []string{"train.rounds=2.5"}, "--set train.rounds=2.5: train.rounds: "},
		{"", "", nil, []string{"data.views=1001"}, "--set data.views=1001: data.views: 1001; it must lie"},
		{"", "", nil, []string{"synthetic={set: synthetic, generator: {val: 10001}}"},
			"--set synthetic={set: synthetic, generator: {val: 10001}}: synthetic: data.generator.val: 10001; "},
		{"", "", nil, []string{"train.rounds=true"}, "--set train.rounds=true: train.rounds: "},
		{"", "", nil, []string{"seed=-1"}, "--set seed=-1: seed: -1 is negative"},
		{"", "", nil, []string{"with=[fedprox]", "options.mu=high"}, "--set options.mu=high: options.fedprox.mu: "},
		{"", "", nil, []string{"with=[fedprox]", "options.mu=-1"}, "--set options.mu=-1: fedprox: option mu"},
		{"", "", nil, []string{"train.lr="}, "--set train.lr=: the value is missing"},
		{"", "", nil, []string{"seed=2", "train.momentum=-1"}, "--set train.momentum=-1: train: optim: sgd: momentum"},
		{"", "", nil, []string{"train.schedule={kind: step}"},
			"--set train.schedule={kind: step}: train.schedule: optim: schedule step has step_size 0"},
		{"", "", nil, []string{"options.fedpha.init_std=x"}, "--set options.fedpha.init_std=x: options.init_std: "},
		{"", "", nil, []string{"options.local_tokens=[x]"},
			"--set options.local_tokens=[x]: options.local_tokens[0]: "},
		{"lr: 0.1", "schedule:\n    gamma: -1", nil, nil, ":6: train.schedule: optim: gamma is -1"},
		{"", "", nil, []string{"synthetic={set: folder}"}, "--set synthetic={set: folder}: synthetic: data.root: "},
		{"data:", "synthetic:\n  set: folder\n  root: x\n  layout: y\ndata:", nil, nil, ":10: synthetic: data.layout"},
	} {
		t.Run(c.begins, func(t *testing.T) {
			for _, e := range c.env {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			path := file(t, strings.Replace(three, c.old, c.now, 1))
			l, err := Open(path, c.sets)
			if err == nil {
				err = l.Check()
			}
			want := c.begins
			if strings.HasPrefix(want, ":") {
				want = path + want
			}
			if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant %s", err, want)
			}
		})
	}
}

// An origin is added once, and to errors with a key alone.
func TestWithOrigin(t *testing.T) {
	l, err := Open(file(t, three), nil)
	if err != nil {
		t.Fatal(err)
	}
	once := l.WithOrigin(fmt.Errorf("client 0: %w", configtags.KeyErrorf("train.lr", "too large")))
	if want := l.settings.file.path + ":5: client 0: train.lr: too large"; once.Error() != want {
		t.Errorf("%v\nwant %s", once, want)
	}
	if again := l.WithOrigin(fmt.Errorf("run: %w", once)); again.Error() != "run: "+once.Error() {
		t.Error(again)
	}
	if other := errors.New("train.lr: too large"); l.WithOrigin(other) != other {
		t.Errorf("%v has no key", l.WithOrigin(other))
	}
}

// Unknown variables are errors in every configuration. Those of an experiment are known to other commands too.
func TestVariables(t *testing.T) {
	for name, say := range map[string]string{
		"PROMPTFED_TRAIN_LRR":      "did you mean PROMPTFED_TRAIN_LR?",
		"PROMPTFED_TRAIN_SPEED":    "is unknown",
		"PROMPTFED_OPTIONS_TOKENS": "--set options.tokens=",
		"PROMPTFED_TOKENS":         "is unknown",
		"PROMPTFED_MODELS":         "",
		"PROMPTFED_DEVICE_KERNELS": "", // of docs/performance.md
		"PROMPTFED_TEST_WHATEVER":  "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "3")
			_, err := Open(file(t, three), nil)
			if say == "" && err != nil || say != "" && (err == nil || !strings.Contains(err.Error(), name) ||
				!strings.Contains(err.Error(), say)) {
				t.Errorf("%v, want %q", err, say)
			}
		})
	}
}

// A variable sets any list as --set does.
func TestListsOfVariables(t *testing.T) {
	for key, value := range configtags.Flatten(experiment.Defaults()) {
		if reflect.ValueOf(value).Kind() == reflect.Slice {
			want := loaded(t, three, key+"=[3, 4]")
			t.Setenv(variable(key), "[3, 4]")
			if got := loaded(t, three); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v\nwant %+v", key, got, want)
			}
		}
	}
}

// If the command line names another method than the file, the options of the file that this method does not have are
// ignored with a note. Such options on the command line, and unknown options in the file, are errors.
func TestOptionsOfAnotherMethod(t *testing.T) {
	l, err := Open(file(t, three), []string{"method=promptfl", "options.tokens=8"})
	if err == nil {
		err = l.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	want := "--set method=promptfl drops the options of fedpha: global_tokens, local_tokens, svd_every"
	if len(l.Options) != 1 || l.Options["tokens"] != 8 || !slices.Equal(l.Notes, []string{want}) {
		t.Errorf("options %v, notes %q", l.Options, l.Notes)
	}
	if l, err = Open(file(t, three), []string{"method=fedpha"}); err != nil || len(l.Notes) > 0 || len(l.Options) != 3 {
		t.Errorf("the same method: %v, %v, notes %q", err, l.Options, l.Notes)
	}
	if l, err = Open(file(t, three), []string{"with=[fedprox]"}); err != nil || len(l.Notes) > 0 ||
		len(l.Options) != 3 {
		t.Errorf("a wrapper more: %v, %v, notes %q", err, l.Options, l.Notes)
	}
	t.Setenv("PROMPTFED_METHOD", "coop")
	if l, err = Open(file(t, three), nil); err != nil || len(l.Options) != 0 || len(l.Notes) != 1 {
		t.Errorf("by a variable: %v, %v, notes %q", err, l.Options, l.Notes)
	}
	for text, sets := range map[string][]string{
		three: {"options.ratio=0.5"}, // for a method that does not have it
		strings.Replace(three, "svd_every", "svd_evry", 1): nil,
	} {
		l, err := Open(file(t, text), sets)
		if err == nil {
			err = l.Check()
		}
		if err == nil || !strings.Contains(err.Error(), "unknown; known options are coop") {
			t.Errorf("%v: %v", sets, err)
		}
	}
}

// The same holds for every cell of a sweep.
func TestOptionsOfAnotherMethodInASweep(t *testing.T) {
	path := file(t, three+"sweep: {axes: [{name: batch, key: train.batch, values: [2, 4]}]}\n")
	s, err := LoadSweep(path, SweepOptions{Sets: []string{"method=promptfl", "options.tokens=8"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Cells) != 2 || len(s.Cells[1].Config.Options) != 1 || s.Cells[1].Config.Options["tokens"] != 8 ||
		len(s.Notes) != 1 {
		t.Errorf("%v, notes %q", s.Cells[1].Config.Options, s.Notes)
	}
}

// An error about the cells of a sweep names the flag, if a flag causes it, and the cells.
func TestBlameOfCells(t *testing.T) {
	text := three + "sweep: {axes: [{name: batch, key: train.batch, values: [2, 0]}]}\n"
	path := file(t, text)
	for want, sets := range map[string][]string{
		path + ": cell 0/seed-1: train.batch: 0; it must be 1 or more": nil,
		path + ": cell 2/seed-1: --set eval.every=0: eval.every: 0;":   {"eval.every=0"},
	} {
		_, err := LoadSweep(path, SweepOptions{Sets: sets})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// A variable sets one key: dots become underscores, which names contain too, so that two keys could have the same
// variable.
func TestVariablesAreDistinct(t *testing.T) {
	keys := map[string]string{} // by name of the variable
	for key := range configtags.Flatten(experiment.Defaults()) {
		name := variable(key)
		if other, ok := keys[name]; ok {
			t.Errorf("%s is of %s and of %s", name, other, key)
		}
		keys[name] = key
		if slices.Contains(variables, strings.TrimPrefix(name, prefix)) {
			t.Errorf("%s is of %s and has another meaning", name, key)
		}
	}
}
