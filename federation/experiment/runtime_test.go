package experiment

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"promptfed/runtime/ort"
)

func TestRuntimeChecks(t *testing.T) {
	for want, change := range map[string]func(*Runtime){
		"": func(r *Runtime) {},
		`runtime.provider: "tpu"; use cpu, cuda or auto`: func(r *Runtime) { r.Provider = "tpu" },
		"runtime.memory_limit: 7 bytes on provider cpu":  func(r *Runtime) { r.MemoryLimit = 7 },
		"runtime.memory_limit: -7": func(r *Runtime) {
			r.Provider, r.MemoryLimit = ort.CUDA, -7
		},
		"runtime.device: -1":                                       func(r *Runtime) { r.Device = -1 },
		"runtime.workers: -1":                                      func(r *Runtime) { r.Workers = -1 },
		"runtime.batch_clients: -3; it must be 0":                  func(r *Runtime) { r.BatchClients = -3 },
		"runtime.threads: -1":                                      func(r *Runtime) { r.Threads = -1 },
		`runtime.prepack: "maybe" is not known`:                    func(r *Runtime) { r.Prepack = "maybe" },
		`runtime.optimization: unknown optimisation level "most":`: func(r *Runtime) { r.Optimization = "most" },
	} {
		c := Defaults()
		c.Data.Set = "synthetic"
		change(&c.Runtime)
		err := c.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestRuntimeReachesSessions(t *testing.T) {
	r := Runtime{Provider: ort.CUDA, Device: 1, MemoryLimit: 5, Threads: 2, Spinning: "true",
		Prepack: "true", Optimization: "basic"}
	want := ort.Options{Provider: ort.CUDA, Device: 1, MemoryLimit: 5, IntraThreads: 2, Spinning: true,
		NoArena: true, Prepack: true, OptLevel: ort.OptBasic}
	if got := r.Session(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, c := range []struct {
		prepack, provider string
		want              bool
	}{{"true", ort.CUDA, true}, {"1", ort.CPU, true}, {"false", ort.CPU, false}, {"0", ort.CPU, false},
		{"auto", ort.CPU, true}, {"auto", ort.CUDA, false}} {
		r.Prepack, r.Provider = c.prepack, c.provider
		if got := r.Session().Prepack; got != c.want {
			t.Errorf("prepack %s on %s is %v", c.prepack, c.provider, got)
		}
	}
	for _, c := range []struct {
		spinning string
		workers  int
		runs     int
		want     bool
	}{{"true", 3, 0, true}, {"false", 3, 0, false}, {"auto", 3, 3, false}, {"auto", 0, runtime.GOMAXPROCS(0), false}} {
		r.Spinning, r.Workers = c.spinning, c.workers
		if got := r.Session(); got.Spinning != c.want || got.Runs != c.runs {
			t.Errorf("spinning %s of %d workers is %v, %d runs", c.spinning, c.workers, got.Spinning, got.Runs)
		}
	}
	for given, want := range map[string]string{"1": "true", "true": "true", "0": "false", "auto": "auto"} {
		if got := named(given); got != want {
			t.Errorf("%s is written %s, want %s", given, got, want)
		}
	}
}

// Auto does not change the configuration and prints its choice. It chooses CUDA if the library has it.
func TestAutoTellsWhatItTook(t *testing.T) {
	c := Defaults()
	c.Data.Set = "synthetic"
	c.Runtime.Provider, c.Runtime.MemoryLimit, c.Runtime.Devices = ort.Auto, 1<<30, 2
	c.Data.Generator.Classes, c.Data.Generator.Train, c.Data.Generator.Test = []string{"circle", "square"}, 4, 4
	b := taskOf(t, c)
	set, taken, configured := (&Federation{Task: b}).Settings(), b.Runtime.Provider, b.Protocol.Config.Runtime.Provider
	session := set.Client.Session
	if configured != ort.Auto || session.Provider != taken || !strings.HasPrefix(set.Provider, taken) {
		t.Errorf("configuration %q, taken %q, session %q, summary %q", configured, taken, session.Provider,
			set.Provider)
	}
	if taken == ort.CPU && (b.Fallback == nil || session.MemoryLimit != 0 || session.Devices != 1 ||
		!strings.Contains(set.Provider, "provider cuda is not available")) {
		t.Errorf("fallback %v, limit %d, %d devices, summary %q", b.Fallback, set.Client.Session.MemoryLimit,
			set.Client.Session.Devices, set.Provider)
	}
}
