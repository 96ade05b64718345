package ort

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/oneline"
)

// LibraryVariable is the environment variable that names the ONNX Runtime library file.
const LibraryVariable = "ONNXRUNTIME_LIB"

// ErrNoLibrary is wrapped by the error of FindLibrary if there is no ONNX Runtime library.
var ErrNoLibrary = errors.New("the ONNX Runtime library was not found")

func libraryNames() []string {
	switch runtime.GOOS {
	case "darwin":
		return []string{"libonnxruntime.1.dylib", "libonnxruntime.dylib"}
	case "windows":
		return []string{"onnxruntime.dll"}
	}
	return []string{"libonnxruntime.so.1", "libonnxruntime.so"}
}

// FindLibrary returns the ONNX Runtime library to load: the file that ONNXRUNTIME_LIB names; otherwise the first one in
// the folder of the executable, its lib/ or lib/promptfed/ beside it (bin/ and lib/ of one prefix), in bin/ of this
// module if the working directory lies in the module, or in promptfed/ of the user's cache folder; otherwise a name
// that the system's loader finds. The error names every searched place and the next step.
func FindLibrary() (string, error) { return findLibrary(false) }

// findLibrary is FindLibrary that, if cuda is set, searches the subfolder cuda/ of each folder first.
func findLibrary(cuda bool) (string, error) {
	if path := os.Getenv(LibraryVariable); path != "" {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return "", fmt.Errorf("%w: %s names %s (%w): correct or unset it", ErrNoLibrary, LibraryVariable, path,
				errors.Unwrap(err))
		case info.IsDir():
			return "", fmt.Errorf("%w: %s names the folder %s: name the library file in it", ErrNoLibrary,
				LibraryVariable, path)
		}
		return path, nil
	}

	names, dirs := libraryNames(), libraryDirs(cuda)
	for _, dir := range dirs {
		for _, name := range names {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				return path, nil
			}
		}
	}

	for _, name := range names {
		if loaderKnows(name) {
			return name, nil
		}
	}

	return "", fmt.Errorf("%w: looked for %s in %s and where the system's loader looks: run `make build` in the "+
		"promptfed checkout, or set %s to the library file; without a checkout, `npm pack onnxruntime-node` fetches a "+
		"package whose folder package/bin/ has one for each platform",
		ErrNoLibrary, strings.Join(names, " and "), strings.Join(dirs, ", "), LibraryVariable)
}

func libraryDirs(cuda bool) (dirs []string) {
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dir := filepath.Dir(exe)
		dirs = append(dirs, dir, filepath.Join(dir, "lib"), filepath.Join(filepath.Dir(dir), "lib", "promptfed"))
	}

	if wd, err := os.Getwd(); err == nil {
		if root := moduleRoot(wd); root != "" {
			dirs = append(dirs, filepath.Join(root, "bin"))
		}
	}

	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(cache, "promptfed"))
	}

	if cuda {
		for i, dir := range slices.Clone(dirs) {
			dirs = slices.Insert(dirs, i, filepath.Join(dir, "cuda"))
		}
	}

	return dirs
}

var ownModule = regexp.MustCompile(`(?m)^module\s+promptfed\s*(//.*)?$`)

// moduleRoot returns the closest folder at or above dir whose go.mod declares the module promptfed, or "".
func moduleRoot(dir string) string {
	for {
		if b, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && ownModule.Match(b) {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// Dependency is a shared library that ONNX Runtime's CUDA provider loads.
type Dependency struct {
	Name  string `json:"name"`
	Found bool   `json:"found"` // by the system's loader
}

// nvidia matches the names of the libraries of CUDA, cuDNN and the driver.
var nvidia = regexp.MustCompile(`^lib(cu|nv)`)

// CUDALibraries lists the libraries of CUDA, cuDNN and the driver that the CUDA provider beside the library in use
// loads. The list is empty if there is no such provider.
func CUDALibraries() (needed []Dependency, err error) {
	if err := start(true); err != nil {
		return nil, err
	}

	path := environment.path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}

	f, err := elf.Open(filepath.Join(filepath.Dir(path), "libonnxruntime_providers_cuda.so"))
	if err != nil {
		return nil, nil
	}
	defer f.Close()

	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	defer repairHandlers() // the loader loads what it finds

	// some graphs need the last two
	for _, name := range append(names, "libcudnn.so.9", "libcufft.so.12") {
		if nvidia.MatchString(name) {
			needed = append(needed, Dependency{name, loaderKnows(name)})
		}
	}

	return needed, nil
}

func missingCUDA() (names []string) {
	needed, _ := CUDALibraries()
	for _, n := range needed {
		if !n.Found {
			names = append(names, n.Name)
		}
	}
	return names
}

// environment is the ONNX Runtime environment of this process. After a failed start the next caller tries again, so
// that a library that appears later is found.
var environment struct {
	sync.Mutex
	path, version string
}

// start loads the library (one for CUDA if cuda is set and there is one) and creates the environment, once per process.
// ONNX Runtime logs only fatal errors, because it also returns errors.
func start(cuda bool) error {
	environment.Lock()
	defer environment.Unlock()
	if environment.version != "" {
		return nil
	}

	saveHandlers()
	defer repairHandlers()
	path, err := findLibrary(cuda)
	if err != nil {
		return fmt.Errorf("ort: %w", err)
	}

	// Data that may not leave their site need a program that reports nothing. Microsoft's builds from 1.30 on send
	// telemetry unless this variable is set before they load; the call below covers other platforms.
	if err := os.Setenv("ORT_DISABLE_TELEMETRY", "1"); err != nil {
		return fmt.Errorf("ort: turning telemetry off: %w", err)
	}

	binding.SetSharedLibraryPath(path)
	if err := binding.InitializeEnvironment(binding.WithLogLevelFatal()); err != nil {
		return fmt.Errorf("ort: loading %s: %s: ONNX Runtime 1.24 or later for this machine is needed; set %s to its "+
			"library file", path, plain(err), LibraryVariable)
	}

	if err := binding.DisableTelemetry(); err != nil {
		return fmt.Errorf("ort: turning telemetry off: %s", plain(err))
	}

	environment.path, environment.version = path, binding.GetVersion()
	return nil
}

// Preload loads the library for sessions with these options in the background, unless it is loaded. Calls that need the
// library wait, try again after a failure, and report it.
func (o Options) Preload() {
	go func() {
		if start(o.WithProvider().Provider != CPU) == nil {
			_, _ = native()
		}
	}()
}

// Library loads ONNX Runtime unless it is loaded, and returns the path and the version of the library in use.
func Library() (path, version string, err error) {
	if err := start(false); err != nil {
		return "", "", err
	}
	environment.Lock()
	defer environment.Unlock()
	return environment.path, environment.version, nil
}

// sourcePlace matches a place in ONNX Runtime's source, which does not help a user.
var sourcePlace = regexp.MustCompile(`\S+\.(cc|h):\d+ .*?\[ONNXRuntimeError\] : \d+ : \w+ : `)

// plain returns the text of an ONNX Runtime error on one line, without source places.
func plain(err error) string {
	return sourcePlace.ReplaceAllString(oneline.Text(err.Error()), "")
}
