package ort

import (
	"cmp"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/kernels"
	"promptfed/runtime/numerics"
)

// Providers that Options.Provider may name. The empty string is DefaultProvider.
const (
	CPU  = "cpu"
	CUDA = "cuda"
	Auto = "auto" // CUDA where it works, else CPU
)

// DefaultProvider is the provider of options that name none. Only tests change it (orttest), for the whole program and
// before the first session.
var DefaultProvider = CPU

// OptLevel says how far ONNX Runtime rewrites a graph before running it. Every level computes the same function up to
// rounding.
type OptLevel int

// Levels of graph optimisation.
const (
	OptAll      OptLevel = iota // fusions and layout changes; the default
	OptExtended                 // fusions
	OptBasic                    // constant folding and removal of what is not needed
	OptNone                     // the graph as written
)

// Options of a session. The zero value is the choice for many runs in parallel on CPU: one thread per run, no spinning,
// buffers kept for the next run, weights used from the file itself.
type Options struct {
	// Provider is CPU, CUDA or Auto. CUDA fails with a message when it is not available; Auto falls back to CPU, and
	// Session.Provider tells what it took.
	Provider string
	// Device is the number of the CUDA device, the first one of Devices, which share the runs of a session: each run
	// goes to the device with the fewest in flight, so that workers spread over them. Devices 0 is 1.
	Device, Devices int
	// MemoryLimit bounds ONNX Runtime's arena on the CUDA device in bytes; 0 is no bound. Refused on CPU, where there
	// is no such bound.
	MemoryLimit int64

	// IntraThreads is how many threads one operator may use; 0 is 1. With 1 no thread is started: a run computes on the
	// calling goroutine's thread, and parallel runs scale with the goroutines. n > 1 costs n-1 threads per session.
	IntraThreads int
	// InterThreads is how many operators of one run may run side by side; 0 is 1. More than 1 costs that many threads
	// per session and pays only for graphs with wide independent branches.
	InterThreads int
	// Spinning lets idle threads of the session busy-wait for the next operator of a run, for spinTime at most: longer
	// than a training step goes on without one that threads share. It saves waking them while one session has the
	// machine to itself, and takes time from others where it has not. Older libraries know no bound but the run's end.
	Spinning bool
	// Runs is how many runs go on side by side in a program that has the machine to itself: where all their threads
	// have a core, idle ones busy-wait as with Spinning. 0 is for unknown, and leaves it to Spinning.
	Runs int

	// NoArena returns every buffer to the C library as soon as an operator is done with it, instead of keeping buffers
	// for the next run. The arena holds about the peak memory of all runs that ever went on side by side, per session,
	// until Close; without it graphs with large activations were seen to take up to twice as long, in page faults.
	NoArena bool
	// Prepack stores constant weights once more, in the layout of the matrix kernels: once for all sessions over one
	// folder of external weights, else as private memory of the session, with loading time to match. Products of fewer
	// than about 100 rows take a fifth to a third less time; with external weights and AVX-512 they are our own
	// (runtime/kernels). Without it, external weights are mapped from their file and shared by all sessions.
	Prepack bool
	// PlainProducts uses ONNX Runtime's products with packed weights in place of the operator Product, for comparison.
	PlainProducts bool
	// OptLevel is the graph optimisation.
	OptLevel OptLevel

	// Profile, when set, makes ONNX Runtime write what every run spent on every operator to a file of JSON whose name
	// begins so, complete when the session closes.
	Profile string

	// Placement notes which provider takes each operator, for Session.Placement.
	Placement bool

	// WeightsDir is the folder that the graph's external data files are named relative to. It may be a symbolic link;
	// neither names nor links inside it may lead out of it, but for those of Hugging Face's cache (see onnx.Locate).
	WeightsDir string
	// Outputs keeps only these outputs of the graph, in this order; ONNX Runtime then removes all that they do not
	// need, which it cannot do for outputs that a Run leaves out. Empty keeps all.
	Outputs []string

	// Bind treats the CPU as a device, as a GPU is one: weights are copied to its memory, and runs bind Values there.
	// It is for tests, which have the mechanics of a GPU without one; on the CPU it saves nothing.
	Bind bool
}

// WithProvider gives options that name a provider, DefaultProvider where none was.
func (o Options) WithProvider() Options {
	o.Provider = cmp.Or(o.Provider, DefaultProvider)
	return o
}

// onDevice tells whether the provider keeps weights and Values on a device of its own, to which runs bind them.
func (o Options) onDevice(provider string) bool { return provider == CUDA || o.Bind }

func (o Options) check() error {
	switch o.Provider {
	case CPU:
		if o.MemoryLimit != 0 {
			return fmt.Errorf("ort: a memory limit of %d bytes on provider cpu, which has none: remove the limit or "+
				"choose cuda", o.MemoryLimit)
		}
		if o.Devices > 1 && !o.Bind {
			return fmt.Errorf("ort: %d devices on provider cpu, which is one: remove them or choose cuda", o.Devices)
		}
	case CUDA, Auto:
	default:
		return fmt.Errorf("ort: unknown provider %q: use cpu, cuda or auto", o.Provider)
	}
	switch {
	case o.Device < 0 || o.Devices < 0:
		return fmt.Errorf("ort: device %d and %d devices: devices count from 0", o.Device, o.Devices)
	case o.MemoryLimit < 0:
		return fmt.Errorf("ort: a memory limit of %d bytes: use 0 for none", o.MemoryLimit)
	case o.IntraThreads < 0 || o.InterThreads < 0:
		return fmt.Errorf("ort: %d intra and %d inter threads: use 0 for one thread", o.IntraThreads, o.InterThreads)
	case o.OptLevel < OptAll || o.OptLevel > OptNone:
		return fmt.Errorf("ort: unknown optimisation level %d", o.OptLevel)
	}
	return nil
}

// ownProducts tells whether products with packed weights are our own.
func (o Options) ownProducts() bool {
	return o.Provider == CPU && o.Prepack && !o.Bind && !o.PlainProducts && kernels.HasProduct()
}

// Fingerprint is what decides the bits of what a session with these options computes, beside its graph and its inputs.
// The provider auto is resolved (ChooseProvider). What is left out changes no bit: InterThreads, Spinning, Runs,
// NoArena, and how many runs go on side by side.
func (o Options) Fingerprint() (f numerics.Fingerprint, err error) {
	if o = o.WithProvider(); o.Provider == Auto {
		if o, _, err = ChooseProvider(o); err != nil {
			return f, err
		}
	}
	_, version, err := Library()
	if err != nil {
		return f, err
	}
	a, err := native()
	if err != nil {
		return f, err
	}
	f = numerics.OfMachine()
	f.Compilers = strings.TrimSpace(fmt.Sprintf("%s, C %s, glibc %s", f.Compilers, compilerC(), libraryC()))
	f.Library, f.Provider = version+", "+strings.TrimPrefix(a.buildInfo(), "ORT Build Info: "), o.Provider
	f.Optimization, f.Threads = levels[o.OptLevel].name, max(1, o.IntraThreads)
	f.Prepack, f.OwnProducts = o.Prepack, o.ownProducts()
	return f, nil
}

// native makes the binding's options for one provider. The caller destroys them.
func (o Options) native(provider, weights string) (*binding.SessionOptions, error) {
	so, err := binding.NewSessionOptions()
	if err != nil {
		return nil, fmt.Errorf("ort: session options: %s", oneLine(err))
	}
	if err := o.fill(so, weights); err != nil {
		so.Destroy()
		return nil, fmt.Errorf("ort: session options: %s", oneLine(err))
	}
	add := addKernels
	if provider == CUDA {
		add = o.addCUDA
	}
	if err := add(so); err != nil {
		so.Destroy()
		return nil, err
	}
	return so, nil
}

// addKernels makes the operators of runtime/kernels known to a session.
func addKernels(so *binding.SessionOptions) error {
	a, err := native()
	if err == nil {
		err = a.addKernels(so)
	}
	if err != nil {
		return fmt.Errorf("ort: own operators: %s", oneLine(err))
	}
	return nil
}

// spinTime is in microseconds. In steps of ViT-B/16's text tower with 10 classes, operators of one thread take no more
// than 105 one after the other.
const spinTime = "200"

// spins tells whether idle threads busy-wait.
func (o Options) spins() bool {
	return o.Spinning || o.Runs > 0 && o.IntraThreads > 1 && o.Runs*o.IntraThreads <= runtime.GOMAXPROCS(0)
}

func (o Options) fill(so *binding.SessionOptions, weights string) error {
	mode, spins := binding.ExecutionMode(binding.ExecutionModeSequential), o.spins()
	if o.InterThreads > 1 {
		mode = binding.ExecutionModeParallel
	}
	entries := [][2]string{
		{"session.intra_op.allow_spinning", flag(spins)},
		{"session.inter_op.allow_spinning", flag(spins)},
		{"session.disable_prepacking", flag(!o.Prepack)},
	}
	if !o.NoArena {
		if _, err := native(); err != nil { // has made the arena
			return err
		}
		entries = append(entries, [2]string{"session.use_env_allocators", "1"})
	}
	if spins {
		entries = append(entries, [2]string{"session.intra_op.spin_duration_us", spinTime},
			[2]string{"session.inter_op.spin_duration_us", spinTime}, [2]string{"session.force_spinning_stop", "1"})
	}
	if o.Placement {
		entries = append(entries, [2]string{"session.record_ep_graph_assignment_info", "1"})
	}
	if weights != "" {
		entries = append(entries, [2]string{"session.model_external_initializers_file_folder_path", weights})
	}
	steps := []func() error{
		func() error { return so.SetIntraOpNumThreads(max(1, o.IntraThreads)) },
		func() error { return so.SetInterOpNumThreads(max(1, o.InterThreads)) },
		func() error { return so.SetExecutionMode(mode) },
		func() error { return so.SetGraphOptimizationLevel(levels[o.OptLevel].native) },
		func() error { return so.SetCpuMemArena(!o.NoArena) },
		func() error { return so.SetMemPattern(false) }, // a block for all values, beside the first run's buffers
	}
	if o.Profile != "" {
		steps = append(steps, func() error { return so.EnableProfiling(o.Profile) })
	}
	for _, e := range entries {
		steps = append(steps, func() error { return so.AddSessionConfigEntry(e[0], e[1]) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// addCUDA asks for full float32 products (no TF32), so that gradients are as exact as on CPU.
func (o Options) addCUDA(so *binding.SessionOptions) error {
	cuda, err := binding.NewCUDAProviderOptions()
	if err != nil {
		return noCUDA(err)
	}
	defer cuda.Destroy()
	settings := map[string]string{"device_id": strconv.Itoa(o.Device), "use_tf32": "0",
		"arena_extend_strategy": "kSameAsRequested"}
	if o.MemoryLimit > 0 {
		settings["gpu_mem_limit"] = strconv.FormatInt(o.MemoryLimit, 10)
	}
	if err := cuda.Update(settings); err != nil {
		return noCUDA(err)
	}
	if err := so.AppendExecutionProviderCUDA(cuda); err != nil {
		return noCUDA(err)
	}
	return nil
}

func noCUDA(err error) error {
	todo := "run `make library-cuda`, or install Microsoft's GPU build of ONNX Runtime and set " + LibraryVariable +
		" to its library file"
	if missing := missingCUDA(); len(missing) > 0 {
		todo = fmt.Sprintf("missing here: %s: install CUDA 13, cuDNN 9 and NVIDIA's driver, where the loader finds "+
			"them (LD_LIBRARY_PATH)", strings.Join(missing, ", "))
	}
	return absent{fmt.Sprintf("ort: provider cuda is not available in %s (%s): %s, or use provider cpu",
		environment.path, oneLine(err), todo)}
}

// absent is an ErrProvider that says all of it itself.
type absent struct{ text string }

func (a absent) Error() string { return a.text }

func (a absent) Is(target error) bool { return target == ErrProvider }

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
