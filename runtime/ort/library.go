package ort

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// LibraryVariable is the environment variable that names the ONNX Runtime library file.
const LibraryVariable = "ONNXRUNTIME_LIB"

// ErrNoLibrary is wrapped by the error that FindLibrary returns when no ONNX Runtime library was found.
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

// FindLibrary returns the ONNX Runtime library to load: the file that ONNXRUNTIME_LIB names; else the first one found
// in the folder of the executable or lib/ inside it, in bin/ of this module's root when the working directory lies in
// the module, or in promptfed/ of the user's cache folder; else a name that the system's loader knows.
// The error names every place that was searched and says what to do.
func FindLibrary() (string, error) { return findLibrary(false) }

// findLibrary is FindLibrary; where CUDA is asked for, a folder cuda/ inside of each comes before all of them.
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
		dirs = append(dirs, filepath.Dir(exe), filepath.Join(filepath.Dir(exe), "lib"))
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

// moduleRoot is the closest folder at or above dir whose go.mod declares module promptfed, or "".
func moduleRoot(dir string) string {
	for {
		if declaresModule(filepath.Join(dir, "go.mod"), "promptfed") {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

func declaresModule(path, module string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) >= 2 && words[0] == "module" {
			return words[1] == module
		}
	}
	return false
}

// Dependency is a shared library that ONNX Runtime's CUDA provider loads.
type Needed struct {
	Name  string
	Found bool // by the system's loader
}

// nvidia are the names of CUDA's, cuDNN's and the driver's libraries.
var nvidia = regexp.MustCompile(`^lib(cu|nv)`)

// CUDALibraries lists the libraries of CUDA, cuDNN and the driver that the CUDA provider beside the library in use
// loads. The list is empty if there is no such provider.
func CUDALibraries() (needed []Needed, err error) {
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
	for _, name := range append(names, "libcudnn.so.9", "libcufft.so.12") { // the last two when a graph needs them
		if nvidia.MatchString(name) {
			needed = append(needed, Needed{name, loaderKnows(name)})
		}
	}
	return needed, nil
}

// missingCUDA names those that are not found.
func missingCUDA() (names []string) {
	needed, _ := CUDALibraries()
	for _, n := range needed {
		if !n.Found {
			names = append(names, n.Name)
		}
	}
	return names
}
