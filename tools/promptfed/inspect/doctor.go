package inspect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/data"
	"promptfed/federation/data/sets"
	"promptfed/federation/experiment"
	"promptfed/models/bundle"
	"promptfed/runtime/ort"
	"promptfed/runtime/version"
	"promptfed/tools/lab/bench"
	"promptfed/tools/promptfed/cli"
)

// Environment variables of data.root and runtime.cache.
const (
	dataRoot     = "PROMPTFED_DATA_ROOT"
	runtimeCache = "PROMPTFED_RUNTIME_CACHE"
)

func doctorCommand() *cobra.Command {
	c := &cobra.Command{Use: "doctor", Args: cli.Exactly(0), Short: "show what this machine has: ONNX Runtime and " +
		"its providers, cores, memory, disk, backbones, caches and image sets"}
	var models, root string
	c.Flags().StringVar(&models, "models", "", "folder in which bundles are found by name")
	c.Flags().StringVar(&root, "data", os.Getenv(dataRoot), "folder with image sets (data.root)")
	c.RunE = func(*cobra.Command, []string) error {
		rows := [][]string{{"what", "found"}, {"promptfed", version.String() + ", " + runtime.Version()}}
		rows = append(rows, machineRows()...)
		library, err := libraryRows(ort.Options{Provider: ort.Auto})
		if len(library) > 1 {
			rows = append(append(rows, library[1:]...), numericsRows()...)
		} else {
			rows = append(rows, []string{"ONNX Runtime", "not found or not loadable: see below"})
		}
		rows = append(rows, bundleRows(models)...)
		rows = append(rows, cacheRows()...)
		fmt.Print(align(append(rows, dataRows(root)...)))
		return err
	}
	return c
}

// numericsRows describes what determines the last bits of results in the default configuration.
func numericsRows() [][]string {
	c := experiment.Defaults()
	f, err := c.Runtime.Session().Fingerprint()
	if err != nil {
		return nil
	}
	return [][]string{{"numerics", f.Digest()[:12]}, {"processor", f.Processor}, {"compilers", f.Compilers},
		{"build of ONNX Runtime", f.Library}}
}

func machineRows() [][]string {
	value := fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	if total, free := bench.Memory(); total > 0 {
		value += fmt.Sprintf(", %s of memory, %s free", gigabytes(total), gigabytes(free))
	}
	rows := [][]string{{"machine", value}}
	if dir, err := os.Getwd(); err == nil {
		rows = append(rows, []string{"current folder", dir + diskOf(dir)})
	}
	return rows
}

func gigabytes(n int64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

// diskOf returns the free space of a folder, if the system reports it.
func diskOf(dir string) string {
	if free, ok := data.FreeBytes(dir); ok {
		return ", " + gigabytes(free) + " free"
	}
	return ""
}

// bundleRows lists the search path of backbones and the backbones in each folder.
func bundleRows(models string) (rows [][]string) {
	in := map[string][]string{}
	for _, e := range bundle.List(models) {
		dir := "the program itself"
		if e.Dir != "" {
			dir = filepath.Dir(e.Dir)
		}
		in[dir] = append(in[dir], e.Name)
	}
	for _, dir := range append([]string{"the program itself"}, bundle.SearchPath(models)...) {
		rows = append(rows, []string{"backbones in " + dir, bundle.JoinOrNone(in[filepath.Clean(dir)])})
	}
	return append(rows, pulledRow(models))
}

func cacheRows() [][]string {
	dir, err := experiment.FeatureCache(os.Getenv(runtimeCache))
	if err != nil {
		return [][]string{{"feature cache", err.Error()}}
	}
	var files, bytes int64
	err = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if info, err := e.Info(); err == nil {
			files, bytes = files+1, bytes+info.Size()
		}
		return nil
	})
	value := fmt.Sprintf("%s: %d files, %s", dir, files, gigabytes(bytes))
	switch {
	case errors.Is(err, os.ErrNotExist):
		value = dir + ": empty"
	case err != nil:
		value = err.Error()
	}
	return [][]string{{"feature cache", value + diskOf(dir)}}
}

// dataRows lists the image sets in a folder.
func dataRows(root string) (rows [][]string) {
	if root == "" {
		return [][]string{{"image sets", "no folder given: use --data, or set " + dataRoot}}
	}
	for _, k := range sets.Kinds() {
		c := sets.Defaults()
		if c.Set, c.Root = k.Name, root; k.Expects == "" {
			continue
		}
		if s, err := sets.Open(c); err == nil {
			value := fmt.Sprintf("%d classes, %d training and %d test images", len(s.Classes), len(s.Train),
				len(s.Test))
			value = strings.Join(append([]string{value}, s.Domains...), ", ")
			rows = append(rows, []string{"image set " + k.Name, value})
		}
	}
	if rows == nil {
		rows = [][]string{{"image sets", "no known set in " + root}}
	}
	return rows
}
