package inference

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/federation/method"
	"promptfed/models/bundle"
)

// Exported files classify every client's test images exactly as the run's last tests: the global file as the global
// evaluation, a client's file as its personal one. The global file is tested with a client's backbone or private
// parameters if it needs them. With large steps the two evaluations differ.
func TestExportIsTheRunsTest(t *testing.T) {
	for _, c := range []struct {
		method       string
		backbones    []string
		rate         float64
		forEverybody bool
	}{{"promptfl", []string{"tiny-vit-b16"}, 2, true}, {"fedappr", []string{"tiny-vit-b16", "tiny-vit-b32"}, 2, false},
		{"fedotp", []string{"tiny-vit-b16"}, 0.2, false}} {
		t.Run(c.method, func(t *testing.T) {
			conf, dir := trainedWith(t, c.method, func(x *experiment.Config) {
				x.Backbones, x.Train.Rounds, x.Train.LR = c.backbones, 2, c.rate
				x.Data.Generator.Train, x.Data.Generator.Test, x.Data.Generator.Difficulty = 8, 20, 1
				x.Runtime.Workers = 1
			})
			b, err := experiment.Open(t.Context(), conf, nil)
			if err != nil {
				t.Fatal(err)
			}
			records, err := record.Records(dir)
			if err != nil {
				t.Fatal(err)
			}
			last := records[len(records)-1].Evaluations
			if slices.Equal(last.Global.PerClient, last.Personal.PerClient) {
				t.Fatalf("both evaluations gave %v: this is no test of what is exported", last.Global.PerClient)
			}
			for k, part := range b.Data.Parts {
				choices := map[Choice]float64{{Client: k}: last.Personal.PerClient[k],
					{Client: k, Global: true}: last.Global.PerClient[k]}
				if c.forEverybody {
					choices[Choice{Client: -1, Global: true}] = last.Global.PerClient[k]
				}
				for choice, want := range choices {
					path := filepath.Join(t.TempDir(), "c.onnx")
					f := open(t, conf, dir, choice)
					if _, err := f.Export(t.Context(), PixelsUint8, path); err != nil {
						t.Fatal(err)
					}
					file, got := predictionsOf(t, path, pick(b.Data.Set.Test, part.Test))
					right := 0
					for i, at := range part.Test {
						if got[i].Ranked()[0] == b.Data.Set.Test[at].Label {
							right++
						}
					}
					if got := float64(right) / float64(len(part.Test)); got != want {
						t.Errorf("%v is right on %v of client %d's images, the run's test on %v", choice, got, k, want)
					}
					facts, _ := file.About()
					said := want
					if choice.Client < 0 {
						said = last.Global.Accuracy()
					}
					if !slices.Contains(facts, Fact{"accuracy", fmt.Sprint(said)}) ||
						choice.Client < 0 == slices.Contains(facts, Fact{"client", fmt.Sprint(k)}) {
						t.Errorf("%v: %v, want accuracy %v", choice, facts, said)
					}
				}
			}
		})
	}
}

// Of several reasons against a global classifier the error always has the same one.
func TestOneReasonOfMany(t *testing.T) {
	f := &Classifier{has: record.Evaluable{Reads: []string{record.ReadsExamples, record.ReadsPrivate}}}
	for range 50 { // the order of a map would change
		err := (&finishedRun{}).checkForAll(f, nil, method.ClientSpec{})
		if err == nil || !strings.Contains(err.Error(), "read private parameters; give --client K") {
			t.Fatal(err)
		}
	}
}

func pick[T any](list []T, at []int) []T {
	out := make([]T, len(at))
	for i, k := range at {
		out[i] = list[k]
	}
	return out
}

// One of two backbones that is on another machine leaves the classifiers of the other.
func TestBackboneElsewhere(t *testing.T) {
	conf, dir := trainedWith(t, "coop", func(c *experiment.Config) {
		c.Backbones[1], c.Options = "../../../models/bundle/exported/testdata/siglip", map[string]any{"tokens": 3}
	})
	conf.Backbones = conf.Backbones[:1]
	leftOut, err := All(conf, dir, func(*Classifier) error { return nil })
	if err != nil || !errors.Is(errors.Join(leftOut...), bundle.ErrNotFound) {
		t.Errorf("%v, %v", leftOut, err)
	}
}

// A choice that a run lacks is refused in one line with the alternatives, and is not among all classifiers.
func TestChoicesOfARun(t *testing.T) {
	for _, c := range []struct {
		method, refused string
		change          func(*experiment.Config)
		all             []string
	}{
		{"coop", "no global classifier: its class scores use nothing that the server sends", nil,
			[]string{"client-0.onnx", "client-1.onnx"}},
		{"fedpha", "use nothing that the server sends; give --client K", nil,
			[]string{"client-0.onnx", "client-1.onnx"}},
		{"fedotp", "read private parameters; give --client K", nil, []string{"client-0.onnx", "client-1.onnx"}},
		{"promptfl", "backbones [tiny-vit-b16 tiny-vit-b32]: add --client K", nil,
			[]string{"client-0.onnx", "client-1.onnx", "global-tiny-vit-b16.onnx", "global-tiny-vit-b32.onnx"}},
		{"promptfl", "", func(c *experiment.Config) {
			c.Backbones, c.Participation = c.Backbones[:1], 0.5
		}, []string{"client-1.onnx", "global.onnx"}}, // client 0 was not drawn
		{"fedtpg", "which classes a client has examples of", nil, []string{"client-0.onnx", "client-1.onnx"}},
		{"trip", "", nil, []string{"client-0.onnx", "client-1.onnx", "global.onnx"}}, // all get the same
	} {
		change := c.change
		if change == nil {
			change = func(*experiment.Config) {}
		}
		conf, dir := trainedWith(t, c.method, change)
		f, err := Open(conf, dir, Choice{Client: -1, Global: true})
		if c.refused == "" && err == nil {
			f.Close()
		} else if err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want a line with %q", c.method, err, c.refused)
		}
		var names []string
		leftOut, err := All(conf, dir, func(f *Classifier) error {
			names = append(names, f.FileName())
			return nil
		})
		if slices.Sort(names); err != nil || !slices.Equal(names, c.all) {
			t.Errorf("%s: %v, %v; want %v", c.method, names, err, c.all)
		}
		for _, err := range leftOut {
			if !errors.Is(err, ErrNothingLearned) && !errors.Is(err, ErrNotForAll) {
				t.Error(err)
			}
		}
	}
}
