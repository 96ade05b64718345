package experiment

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Runtime is the section runtime. Nothing in it changes a result beyond rounding; numerics.Fingerprint holds what
// changes rounding.
type Runtime struct {
	Provider     string `config:"provider" in:"cpu|cuda|auto" help:"cpu, cuda or auto (cuda where it works, else cpu)"`
	Device       int    `config:"device" in:"0.." help:"number of the first CUDA device"`
	Devices      int    `config:"devices" in:"0.." help:"number of CUDA devices, from device on, that share the work"`
	Precision    string `config:"precision" in:"float32|tf32|float16|bfloat16"`
	MemoryLimit  int64  `config:"memory_limit" in:"0.."`
	Workers      int    `config:"workers" in:"0..4096"`
	BatchClients int    `config:"batch_clients" in:"0.."`
	Threads      int    `config:"threads" in:"0..4096" help:"threads of ONNX Runtime within one operator of one client"`
	Spinning     string `config:"spinning"`
	Arena        bool   `config:"arena" help:"keep freed buffers for the next run: faster, but more memory"`
	Prepack      string `config:"prepack"`
	Optimization string `config:"optimization" help:"graph optimization by ONNX Runtime: all, extended, basic or none"`
	Models       string `config:"models" help:"folder in which bundles are found by name"`
	Cache        string `config:"cache" help:"folder of the feature cache; empty: the user's cache folder"`
	Programs     string `config:"programs"`
}

func (Runtime) LongHelp() map[string]string {
	return map[string]string{
		"workers": "clients that train, batches of images that are encoded, or on a GPU images that are decoded, at " +
			"the same time; 0: one per core",
		"batch_clients": "most clients whose steps are computed in one run, with one pass of the text tower; part of " +
			"the experiment, since it changes rounding; 0: 1 on a CPU, and on a GPU as many as train.memory_gb " +
			"holds, at most 32",
		"precision": "precision of products on a CUDA device: float32, tf32, float16 or bfloat16; the rest stays in " +
			"float32; the CPU has float32 alone",
		"programs": "folder of promptfed programs whose graphs clients compute with; empty: those that the program " +
			"builds",
		"memory_limit": "limit of ONNX Runtime's arena on the CUDA device, in bytes per session; 0: no limit",
		"spinning": "let idle threads busy-wait within a run, for at most 200 µs: true, false, or auto, which is " +
			"true if workers times threads is at most the number of cores",
		"prepack": "store text towers in the layout of the kernels, once per backbone: true is faster, false needs " +
			"less memory, auto is true on the CPU",
	}
}

func defaultRuntime() Runtime {
	return Runtime{Provider: ort.CPU, Precision: ort.Float32, Devices: 1, Threads: 1, Arena: true,
		Spinning: auto, Prepack: auto, Optimization: "all"}
}

const auto = "auto"

// named returns a choice in the form of the documents, whether the configuration has it as a boolean of YAML or as
// text.
func named(choice string) string {
	if v, err := strconv.ParseBool(choice); err == nil {
		return strconv.FormatBool(v)
	}
	return choice
}

func (r Runtime) check() error {
	device := r.Provider != ort.CPU
	choice := func(key, value string) error {
		_, err := strconv.ParseBool(value)
		return configtags.Need(err == nil || value == auto, key, "%q is not known; use auto, true or false", value)
	}

	_, badLevel := ort.ParseOptLevel(r.Optimization)
	return errors.Join(configtags.Check("runtime.", r),
		configtags.Need(device || r.MemoryLimit == 0, "runtime.memory_limit",
			"%d bytes on provider cpu, which has no limit; remove it or set provider: cuda", r.MemoryLimit),
		configtags.Need(device || r.Precision == ort.Float32, "runtime.precision",
			"%s on provider cpu, which has float32 alone; remove it or set provider: cuda", r.Precision),
		configtags.Need(device || r.Devices <= 1, "runtime.devices",
			"%d on provider cpu, which has only one; remove it or set provider: cuda", r.Devices),
		choice("runtime.prepack", r.Prepack), choice("runtime.spinning", r.Spinning),
		configtags.Need(badLevel == nil, "runtime.optimization", "%w", badLevel))
}

// ChooseProvider chooses the provider (see ort.ChooseProvider) and sets its name in r; why is set if auto could not use
// CUDA.
func (r *Runtime) ChooseProvider() (why error, err error) {
	o, why, err := ort.ChooseProvider(r.Session())
	if err == nil {
		r.Provider, r.MemoryLimit, r.Devices = o.Provider, o.MemoryLimit, o.Devices
	}
	return why, err
}

func (r Runtime) workers() int {
	if r.Workers > 0 {
		return r.Workers
	}
	return runtime.GOMAXPROCS(0) // which follows the limit of a container
}

// Session returns the options of a session. The configuration must have passed Check.
func (r Runtime) Session() ort.Options {
	prepack, err := strconv.ParseBool(r.Prepack)
	if err != nil {
		prepack = r.Provider == ort.CPU
	}

	spinning, err := strconv.ParseBool(r.Spinning)
	runs := 0
	if err != nil {
		runs = r.workers()
	}

	level, _ := ort.ParseOptLevel(r.Optimization)
	return ort.Options{Provider: r.Provider, Device: r.Device, Devices: r.Devices, Precision: r.Precision,
		MemoryLimit: r.MemoryLimit, IntraThreads: r.Threads, Spinning: spinning, Runs: runs, NoArena: !r.Arena,
		Prepack: prepack, OptLevel: level}
}

// FeatureCache returns the folder of the feature cache: that of runtime.cache, or one of the user's.
func (r Runtime) FeatureCache() (string, error) {
	if r.Cache != "" {
		return r.Cache, nil
	}

	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the feature cache: %w; set runtime.cache", err)
	}

	return filepath.Join(user, "promptfed", "features"), nil
}

// keptTexts keeps features of hand-written texts in the feature cache (client.Settings.Texts).
func (r Runtime) keptTexts(key [sha256.Size]byte, shape []int, compute func() (*tensor.Tensor, error)) (*tensor.Tensor,
	error) {
	dir, err := r.FeatureCache()
	if err != nil {
		return nil, err
	}

	matrix, err := data.Cache{Dir: dir, Precision: data.Float}.Matrix(key, shape, shape[0])
	if err != nil {
		return nil, err
	}
	defer matrix.Close()

	if len(matrix.Missing()) == 0 {
		return matrix.Read(tensor.Indices(shape[0]))
	}

	t, err := compute()
	if err == nil && t.NonFinite() < 0 {
		_ = matrix.Append(t) // the next run computes them again where the folder cannot be written
	}

	return t, err
}
