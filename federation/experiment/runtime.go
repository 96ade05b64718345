package experiment

import (
	"errors"
	"fmt"
	"strconv"

	"promptfed/models/bundle"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Runtime is the section runtime: nothing here changes a result beyond rounding.
type Runtime struct {
	Provider     string `config:"provider" help:"cpu, cuda or auto (cuda where it works, else cpu, and says so)"`
	Device       int    `config:"device" help:"number of the CUDA device"`
	MemoryLimit  int64  `config:"memory_limit" help:"bytes of ONNX Runtime's arena on the CUDA device, for each session; 0 for no limit"`
	Workers      int    `config:"workers" help:"clients that train at a time; 0 is one per core"`
	Threads      int    `config:"threads" help:"of ONNX Runtime within one operator of one client"`
	InterThreads int    `config:"inter_threads" help:"operators of one client that run side by side"`
	Spinning     bool   `config:"spinning" help:"idle threads busy-wait"`
	Arena        bool   `config:"arena" help:"keep freed buffers for the next run: faster, more memory"`
	Prepack      string `config:"prepack" help:"copies of the weights in the kernels' layout: true is faster, false takes less memory, auto is true while the copies stay under 1 GiB"`
	Optimization string `config:"optimization" help:"of graphs by ONNX Runtime: all, extended, basic or none"`
	Models       string `config:"models" help:"folder with bundles by name"`
	Cache        string `config:"cache" help:"folder of the feature cache; empty is the user's cache folder"`
	Encode       bool   `config:"encode" help:"send every message through its encoded form"`
}

func defaultRuntime() Runtime {
	return Runtime{Provider: ort.CPU, Threads: 1, InterThreads: 1, Arena: true, Prepack: auto, Optimization: "all"}
}

const auto = "auto"

// named writes a choice as the documents do, whether the configuration gave it as YAML's true or as text.
func named(choice string) string {
	if v, err := strconv.ParseBool(choice); err == nil {
		return strconv.FormatBool(v)
	}
	return choice
}

func (r Runtime) check() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("runtime."+format, a...)) }
	switch r.Provider {
	case ort.CPU:
		if r.MemoryLimit != 0 {
			bad("memory_limit: %d bytes on provider cpu, which has none; remove it or choose provider cuda",
				r.MemoryLimit)
		}
	case ort.CUDA, ort.Auto:
	default:
		bad("provider: %q is not known; take cpu, cuda or auto", r.Provider)
	}
	for _, n := range []struct {
		key   string
		value int64
	}{{"device", int64(r.Device)}, {"memory_limit", r.MemoryLimit}, {"workers", int64(r.Workers)},
		{"threads", int64(r.Threads)},
		{"inter_threads", int64(r.InterThreads)}} {
		if n.value < 0 {
			bad("%s: %d; it may not be negative", n.key, n.value)
		}
	}
	if _, err := strconv.ParseBool(r.Prepack); err != nil && r.Prepack != auto {
		bad("prepack: %q is not known; take auto, true or false", r.Prepack)
	}
	if _, err := ort.Level(r.Optimization); err != nil {
		bad("optimization: %w", err)
	}
	return errors.Join(errs...)
}

// ChooseProvider takes the provider (see ort.ChooseProvider) and leaves its name in r; why is set when auto could not
// have CUDA.
func (r *Runtime) ChooseProvider() (why error, err error) {
	o, why, err := ort.ChooseProvider(r.Session(0))
	if err == nil {
		r.Provider, r.MemoryLimit = o.Provider, o.MemoryLimit
	}
	return why, err
}

// Session are the options of a session that would hold copies bytes of prepacked weights, together with all others of
// the run. The configuration must have passed Check.
func (r Runtime) Session(copies int64) ort.Options {
	prepack, err := strconv.ParseBool(r.Prepack)
	if err != nil {
		prepack = copies <= maxCopies
	}
	level, err := ort.Level(r.Optimization)
	if err != nil {
		level = ort.OptAll
	}
	return ort.Options{Provider: r.Provider, Device: r.Device, MemoryLimit: r.MemoryLimit, IntraThreads: r.Threads,
		InterThreads: r.InterThreads, Spinning: r.Spinning, NoArena: !r.Arena, Prepack: prepack, OptLevel: level}
}

// maxCopies is how many bytes prepack auto spends on copies: two text towers of ViT-B/16 with their three copies each
// are 0.85 GiB, and four would take as much memory again as the checkpoints themselves.
const maxCopies = 1 << 30

// copies is what prepacking costs the run: ONNX Runtime keeps the matrices of the text tower anew in every session that
// multiplies by them. A backbone's step has them twice, as they are and transposed, its class scores once; private
// prompts of several lengths make further sessions.
func (b *Built) copies() int64 {
	total := int64(0)
	seen := map[string]bool{}
	for i, f := range b.Assigned {
		task := backbone{f}.Task()
		task.Client, task.Clients, task.Classes = i, len(b.Assigned), len(b.Set.Classes)
		key := f.Name
		for _, p := range b.Method.Params(task) {
			key += fmt.Sprint(" ", p.Name, p.Shape)
		}
		if !seen[key] {
			seen[key] = true
			total += 3 * matrixBytes(f)
		}
	}
	return total
}

// matrixBytes is the size of the text tower's matrices.
func matrixBytes(f *bundle.Bundle) int64 {
	n := int64(0)
	for _, shape := range f.Text.Shapes() {
		if len(shape) == 2 {
			n += 4 * int64(tensor.Size(shape))
		}
	}
	return n
}
