package ort

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"

	binding "github.com/yalue/onnxruntime_go"
)

// environment is the ONNX Runtime of this process. A failed start is tried again by the next caller, so that a library
// that appears later is found.
var environment struct {
	sync.Mutex
	path, version string
}

// start loads the library, one for CUDA if that is asked for and there is one, and creates the environment, once per
// process.
// ONNX Runtime keeps its log to itself: what goes wrong comes back as an error.
func start(cuda bool) error {
	environment.Lock()
	defer environment.Unlock()
	if environment.version != "" {
		return nil
	}
	path, err := findLibrary(cuda)
	if err != nil {
		return fmt.Errorf("ort: %w", err)
	}
	// Data that may not leave its site: nothing about a run may either. Microsoft's builds from 1.30 on report to a
	// collector unless this variable is set before they load; the call below covers other platforms.
	if err := os.Setenv("ORT_DISABLE_TELEMETRY", "1"); err != nil {
		return fmt.Errorf("ort: turning telemetry off: %w", err)
	}
	binding.SetSharedLibraryPath(path)
	if err := binding.InitializeEnvironment(binding.WithLogLevelFatal()); err != nil {
		return fmt.Errorf("ort: loading %s: %s: ONNX Runtime 1.24 or later for this machine is needed; set %s to its "+
			"library file", path, oneLine(err), LibraryVariable)
	}
	if err := binding.DisableTelemetry(); err != nil {
		return fmt.Errorf("ort: turning telemetry off: %s", oneLine(err))
	}
	environment.path, environment.version = path, binding.GetVersion()
	return nil
}

// Library loads ONNX Runtime if that has not happened yet and returns the path and version of the library in use.
func Library() (path, version string, err error) {
	if err := start(false); err != nil {
		return "", "", err
	}
	environment.Lock()
	defer environment.Unlock()
	return environment.path, environment.version, nil
}

// sourcePlace is where in ONNX Runtime's own source an error arose, which says nothing to a user.
var sourcePlace = regexp.MustCompile(`\S+\.(cc|h):\d+ .*?\[ONNXRuntimeError\] : \d+ : \w+ : `)

// oneLine is the text of an error of ONNX Runtime with its line breaks folded and its source places dropped.
func oneLine(err error) string {
	return sourcePlace.ReplaceAllString(strings.Join(strings.Fields(err.Error()), " "), "")
}
