package experiment

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/ort"
)

func TestRuntimeChecks(t *testing.T) {
	for want, change := range map[string]func(*Runtime){
		"":                                     func(r *Runtime) {},
		`runtime.provider: "tpu" is not known`: func(r *Runtime) { r.Provider = "tpu" },
		"runtime.memory_limit: 7 bytes on provider cpu": func(r *Runtime) { r.MemoryLimit = 7 },
		"runtime.memory_limit: -7": func(r *Runtime) {
			r.Provider,
				r.MemoryLimit = ort.CUDA, -7
		},
		"runtime.device: -1":                                     func(r *Runtime) { r.Device = -1 },
		"runtime.workers: -1":                                    func(r *Runtime) { r.Workers = -1 },
		"runtime.threads: -1":                                    func(r *Runtime) { r.Threads = -1 },
		"runtime.inter_threads: -1":                              func(r *Runtime) { r.InterThreads = -1 },
		`runtime.prepack: "maybe" is not known`:                  func(r *Runtime) { r.Prepack = "maybe" },
		`runtime.optimization: "most" is no optimisation level:`: func(r *Runtime) { r.Optimization = "most" },
	} {
		c := Defaults()
		change(&c.Runtime)
		err := c.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestRuntimeReachesSessions(t *testing.T) {
	r := Runtime{Provider: ort.CUDA, Device: 1, MemoryLimit: 5, Threads: 2, InterThreads: 3, Spinning: true,
		Prepack: "true", Optimization: "basic"}
	want := ort.Options{Provider: ort.CUDA, Device: 1, MemoryLimit: 5, IntraThreads: 2, InterThreads: 3, Spinning: true,
		NoArena: true,
		Prepack: true, OptLevel: ort.OptBasic}
	if got := r.Session(0); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, c := range []struct {
		prepack string
		copies  int64
		want    bool
	}{{"true", 1 << 40, true}, {"1", 1 << 40, true}, {"false", 0, false}, {"0", 0, false}, {"auto", 1 << 30, true},
		{"auto", 1<<30 + 1, false}} {
		r.Prepack = c.prepack
		if got := r.Session(c.copies).Prepack; got != c.want {
			t.Errorf("prepack %s with %d bytes of copies is %v", c.prepack, c.copies, got)
		}
	}
	for given, want := range map[string]string{"1": "true", "true": "true", "0": "false", "auto": "auto"} {
		if got := named(given); got != want {
			t.Errorf("%s is written %s, want %s", given, got, want)
		}
	}
}

// sizes are towers that are only asked for their sizes.
type sizes struct{ bundle.Towers }

func (sizes) Patches() int            { return 196 }
func (sizes) TakesPromptTokens() bool { return true }

// Worked out by hand for ViT-B's text tower of width 512: each of 12 blocks has matrices [1536,512], [512,512],
// [2048,512] and [512,2048], which are 12 x 512 x 512 numbers; with the projection [512,512], positions [77,512] and 4
// bytes for each, 12 x 12,582,912 + 1,048,576 + 157,696. Three copies of it for two backbones stay under 1 GiB, for
// three they do not.
func TestPrepackStopsWithTheThirdFullSizeBackbone(t *testing.T) {
	const bytes = 12*12_582_912 + 1_048_576 + 157_696
	large := func(name string) *bundle.Bundle {
		return &bundle.Bundle{Name: name, Text: clip.TextB, Vision: clip.VisionArch{Image: 224, Patch: 16},
			Towers: sizes{}}
	}
	if got := matrixBytes(large("a")); got != bytes {
		t.Errorf("%d bytes, want %d", got, bytes)
	}
	c := Defaults()
	c.Data.Generator.Classes, c.Data.Generator.Train, c.Data.Generator.Test = []string{"circle", "square"}, 4, 4
	b, err := Open(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Settings().Session.Prepack {
		t.Error("one tiny backbone is not prepacked")
	}
	one, two, three := large("a"), large("b"), large("c")
	for _, c := range []struct {
		assigned []*bundle.Bundle
		copies   int64
		prepack  bool
	}{
		{[]*bundle.Bundle{one, one, one, one}, 3 * bytes, true},
		{[]*bundle.Bundle{one, two, one}, 6 * bytes, true},
		{[]*bundle.Bundle{one, two, three}, 9 * bytes, false},
	} {
		b.Assigned = c.assigned
		if got := b.copies(); got != c.copies || b.Settings().Session.Prepack != c.prepack {
			t.Errorf("%d backbones: %d bytes and prepack %v, want %d and %v", len(c.assigned), got,
				b.Settings().Session.Prepack, c.copies, c.prepack)
		}
	}
}

// Auto leaves the configuration as it was and tells what it took; a library with CUDA takes that.
func TestAutoTellsWhatItTook(t *testing.T) {
	c := Defaults()
	c.Runtime.Provider, c.Runtime.MemoryLimit = ort.Auto, 1<<30
	c.Data.Generator.Classes, c.Data.Generator.Train, c.Data.Generator.Test = []string{"circle", "square"}, 4, 4
	b, err := Open(context.Background(), c, nil)
	if err == nil {
		err = b.ChooseProvider()
	}
	if err != nil {
		t.Fatal(err)
	}
	set := b.Settings()
	if b.Config.Runtime.Provider != ort.Auto || set.Session.Provider != b.Provider || !strings.HasPrefix(set.Provider,
		b.Provider) {
		t.Errorf("configuration %q, taken %q, session %q, summary %q", b.Config.Runtime.Provider, b.Provider,
			set.Session.Provider, set.Provider)
	}
	if b.Provider == ort.CPU && (b.Fallback == nil || set.Session.MemoryLimit != 0 || !strings.Contains(set.Provider,
		"provider cuda cannot be had")) {
		t.Errorf("fallback %v, limit %d, summary %q", b.Fallback, set.Session.MemoryLimit, set.Provider)
	}
}
