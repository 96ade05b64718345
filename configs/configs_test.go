package configs

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/experiment"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

const text = `
name: Test
train: {lr: 0.5, rounds: 3, schedule: {kind: cosine, t_max: 7}}
backbones: [a, b]
options: {tokens: 4, fedprox: {mu: 2}, attributes: {v1.0: [new]}}
data: {set: synthetic, generator: {classes: [star]}, class_names: {St. Bernard: big dog, 0.5: half}}
`

func file(t *testing.T, text string) string {
	t.Helper()
	return filetest.Write(t, filepath.Join(t.TempDir(), "c.yaml"), text)
}

// loaded returns the configuration of a text and of changes to it.
func loaded(t *testing.T, text string, sets ...string) experiment.Config {
	t.Helper()
	c, err := Open(file(t, text), sets)
	if err != nil {
		t.Fatal(err)
	}
	return c.Config
}

// Flags override the environment, which overrides the file, which overrides the defaults.
func TestOrder(t *testing.T) {
	path := file(t, text)
	t.Setenv("PROMPTFED_TRAIN_LR", "0.25")
	t.Setenv("PROMPTFED_TRAIN_EPOCHS", "5")
	t.Setenv("PROMPTFED_BACKBONES", "x,y,z")
	c, err := Open(path, []string{"train.epochs=9", "options.tokens=8", "data.generator.classes=[heart, key]"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "Test" || c.Train.LR != 0.25 || c.Train.Epochs != 9 || c.Train.Rounds != 3 || c.Train.Momentum != 0.9 {
		t.Errorf("%+v", c.Train)
	}
	if c.Train.Schedule.Kind != "cosine" || c.Train.Schedule.TMax != 7 {
		t.Errorf("schedule %+v", c.Train.Schedule)
	}
	if !reflect.DeepEqual(c.Backbones, []string{"x", "y", "z"}) || !reflect.DeepEqual(c.Data.Generator.Classes,
		[]string{"heart", "key"}) {
		t.Errorf("backbones %v, classes %v", c.Backbones, c.Data.Generator.Classes)
	}
	if want := map[string]any{"tokens": 8, "fedprox": map[string]any{"mu": 2},
		"attributes": map[string]any{"v1.0": []any{"new"}}}; !reflect.DeepEqual(c.Options, want) {
		t.Errorf("options %v, want %v: a changed option must leave the others", c.Options, want)
	}
	t.Setenv("PROMPTFED_RUNTIME_WORKERS", "3")
	if run, err := LoadRun(path, nil); err != nil || run.Train.LR == 0.25 || run.Runtime.Workers != 3 {
		t.Errorf("of a finished run, the environment changes the runtime alone: %+v, %v", run.Train, err)
	}
}

// A whole map on the command line replaces that of the file.
func TestWholeMap(t *testing.T) {
	c := loaded(t, text, "options={alpha: 2}")
	if want := map[string]any{"alpha": 2}; !reflect.DeepEqual(c.Options, want) {
		t.Errorf("options %v, want %v", c.Options, want)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		sets []string
		say  []string
	}{
		{"nam: x", nil, []string{"unknown key nam", "name"}},
		{"train: {rate: 1}", nil, []string{"unknown key train.rate", "lr"}},
		{"backbones: [{image: a, model: b}]", nil, []string{"backbones"}},
		{"name: {image: [a]}", nil, []string{"name"}},
		{"train: 3", nil, []string{"train", "lr"}},
		{"train: {lr: fast}", nil, []string{"lr"}},
		{"a: [", nil, []string{"c.yaml"}},
		{"name: x", []string{"train.lr"}, []string{"key=value"}},
		{"name: x", []string{"train.foo=1"}, []string{"train.foo"}},
		{"name: x", []string{"train.lr=["}, []string{"train.lr"}},
	} {
		_, err := Open(file(t, c.text), c.sets)
		t.Run(c.text, func(t *testing.T) { goldentest.WantError(t, err, c.say...) })
	}
}

// The output of YAML reads as the same configuration.
func TestRoundTrip(t *testing.T) {
	c := loaded(t, text)
	b, err := YAML(c)
	if err != nil || c.Data.ClassNames["st. bernard"]+c.Data.ClassNames["0.5"] != "big doghalf" {
		t.Fatal(c.Data.ClassNames, err)
	}
	back := loaded(t, string(b))
	if !reflect.DeepEqual(back, c) { // also lists that were not given: null in an identity
		t.Errorf("%#v\n%#v", back, c)
	}
}

// A backbone with keys becomes the text that bundle.ParseSpec reads.
func TestBackbonesWithKeys(t *testing.T) {
	c := loaded(t, "backbones: [tiny-rn50, {image: a/b, text: c}, {folder: x, variant: fp16}, {folder: s, "+
		"logit_scale: 117.5, logit_bias: -12}]")
	if want := []string{"tiny-rn50", "image=a/b,text=c", "folder=x,variant=fp16",
		"folder=s,logit_bias=-12,logit_scale=117.5"}; !slices.Equal(c.Backbones, want) {
		t.Errorf("backbones %q, want %q", c.Backbones, want)
	}
}

// A configuration that does not name its images is an error: an empty file, a blank one, one without the key. The file,
// a flag or a variable must name synthetic images too. A command that opens no images needs no name.
func TestImagesAreNamed(t *testing.T) {
	for _, text := range []string{"", "\n# nothing\n\n", "method: coop\n", "data: {shots: 2}\n"} {
		path := file(t, text)
		l, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		goldentest.WantError(t, l.Check(), path, "data.set: missing", "data.root", "data.set: synthetic", "--images")
		if err := l.CheckWithoutData(); err != nil || l.Empty() != !strings.Contains(text, ":") {
			t.Errorf("%q: %v, empty %v", text, err, l.Empty())
		}
		if l, err = Open(path, []string{"data.set=synthetic"}); err != nil || l.Check() != nil || l.Empty() {
			t.Errorf("%q with a flag: %v, %v", text, err, l.Check())
		}
	}
	_, err := Open("", nil)
	goldentest.WantError(t, err, "empty", "--images")
	t.Setenv("PROMPTFED_DATA_SET", "synthetic")
	if l, err := Open(file(t, ""), nil); err != nil || l.Check() != nil {
		t.Errorf("by a variable: %v, %v", err, l.Check())
	}
}
