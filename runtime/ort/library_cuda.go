package ort

import (
	"debug/elf"
	"path/filepath"
	"regexp"
)

// Needed is a shared library that ONNX Runtime's CUDA provider loads.
type Needed struct {
	Name  string
	Found bool // by the system's loader
}

// nvidia are the names of CUDA's, cuDNN's and the driver's libraries.
var nvidia = regexp.MustCompile(`^lib(cu|nv)`)

// CUDALibraries lists what the CUDA provider beside the library in use loads of CUDA, cuDNN and the driver; nothing where
// that library has no such provider beside it.
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
