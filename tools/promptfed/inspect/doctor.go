package inspect

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/data"
	"promptfed/federation/data/sets"
	"promptfed/federation/data/sets/source"
	"promptfed/federation/experiment"
	"promptfed/models/bundle"
	"promptfed/runtime/convert"
	"promptfed/runtime/numerics"
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
	command := &cobra.Command{Use: "doctor", Args: cli.Exactly(0),
		Short: "show what this machine has: ONNX Runtime and " +
			"its providers, cores, memory, disk, backbones, caches and image sets, and what is missing for what"}
	var models, root string
	command.Flags().StringVar(&models, "models", "", "folder in which bundles are found by name")
	command.Flags().StringVar(&root, "data", os.Getenv(dataRoot), "folder with image sets (data.root)")
	result := cli.AddJSON(command, machine{})
	command.RunE = func(*cobra.Command, []string) error {
		found := machine{Version: version.Version(), Commit: version.Commit(), Go: runtime.Version(),
			System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.GOMAXPROCS(0)}
		if total, free := bench.Memory(); total > 0 {
			found.Memory, found.FreeMemory = &total, &free
		}

		if dir, err := os.Getwd(); err == nil {
			found.Folder, found.FreeDisk = dir, diskOf(dir)
		}

		var err error
		if found.Library, err = openLibrary(ort.Options{Provider: ort.Auto}); found.Library != nil {
			found.numerics()
		}

		found.Backbones, found.Pulled, found.Cache = foldersOf(models), pulledOf(models),
			cacheOf(os.Getenv(runtimeCache))
		found.sets(root)
		found.needs()
		return cmp.Or(err, result.Print(found, align(found.rows())))
	}

	return command
}

// machine is what doctor finds. Sizes are in bytes; nil if unknown.
type machine struct {
	Version    string       `json:"version"`
	Commit     string       `json:"commit"`
	Go         string       `json:"go"`
	System     string       `json:"system"`
	Cores      int          `json:"cores"`
	Memory     *int64       `json:"memory_bytes"`
	FreeMemory *int64       `json:"free_memory_bytes"`
	Folder     string       `json:"folder"`
	FreeDisk   *int64       `json:"free_disk_bytes"`
	Library    *library     `json:"onnx_runtime"` // nil if it is not found or not loadable
	Numerics   *numericsOf  `json:"numerics"`
	Backbones  []modelDir   `json:"backbones"`
	Pulled     []pulled     `json:"fetched_models"`
	Cache      featureCache `json:"feature_cache"`
	DataRoot   string       `json:"data_root"`
	Sets       []foundSet   `json:"image_sets"`
	Missing    []missing    `json:"missing"`

	without []string // names of sets that are not in DataRoot
}

// numericsOf is what determines the last bits of results in the default configuration.
type numericsOf struct {
	Digest string `json:"digest"`
	numerics.Fingerprint
}

// modelDir is a folder of the search path; empty for the program itself.
type modelDir struct {
	Folder string   `json:"folder"`
	Names  []string `json:"names"`
}

type featureCache struct {
	Folder   string `json:"folder"`
	Files    int64  `json:"files"`
	Bytes    int64  `json:"bytes"`
	FreeDisk *int64 `json:"free_disk_bytes"`
	Problem  string `json:"problem"`
}

type foundSet struct {
	Set     string   `json:"set"`
	Classes int      `json:"classes"`
	Train   int      `json:"train"`
	Test    int      `json:"test"`
	Domains []string `json:"domains"`
}

// numerics describes the default configuration, which runs on the CPU. If this process has loaded the library for CUDA,
// the description is that of another process, because no process loads two libraries.
func (m *machine) numerics() {
	path, err := ort.FindLibrary() // a name alone for a library that only the system's loader finds
	if err == nil && path != m.Library.Path && filepath.IsAbs(path) {
		m.Numerics = numericsWith(path)
		return
	}

	c := experiment.Defaults()
	if f, err := c.Runtime.Session().Fingerprint(); err == nil {
		m.Numerics = &numericsOf{f.Digest(), f}
	}
}

// numericsWith returns what doctor says in a process with another library; nil if that fails.
func numericsWith(library string) *numericsOf {
	program, err := os.Executable()
	if err != nil {
		return nil
	}

	c := exec.Command(program, "doctor", "--json")
	c.Env = append(os.Environ(), ort.LibraryVariable+"="+library)
	text, err := c.Output()
	var there machine
	if err != nil || json.Unmarshal(text, &there) != nil {
		return nil
	}

	return there.Numerics
}

// rows lays the machine out for a terminal.
func (m *machine) rows() rows {
	out := rows{{"what", "found"}}
	out.add("promptfed", "%s, %s", version.String(), m.Go)
	memory := ""
	if m.Memory != nil {
		memory = fmt.Sprintf(", %s of memory, %s free", gigabytes(*m.Memory), gigabytes(*m.FreeMemory))
	}

	out.add("machine", "%s, %d cores%s", m.System, m.Cores, memory)
	if m.Folder != "" {
		out.add("current folder", "%s%s", m.Folder, freeText(m.FreeDisk))
	}

	if m.Library != nil {
		out = append(out, m.Library.rows()[1:]...)
	} else {
		out.add("ONNX Runtime", "not found or not loadable: see below")
	}

	if n := m.Numerics; n != nil {
		out.add("numerics on the CPU", "%.12s", n.Digest)
		out.add("processor", "%s", n.Processor)
		out.add("compilers", "%s", n.Compilers)
		out.add("build of ONNX Runtime", "%s", n.Fingerprint.Library)
	}

	for _, b := range m.Backbones {
		out.add("backbones in "+cmp.Or(b.Folder, "the program itself"), "%s", bundle.JoinOrNone(b.Names))
	}

	out.add("fetched models", "%s", bundle.JoinOrNone(convert.Slice(m.Pulled, pulled.String)))
	switch c := m.Cache; {
	case c.Problem != "":
		out.add("feature cache", "%s", c.Problem)
	case c.Files == 0:
		out.add("feature cache", "%s: empty%s", c.Folder, freeText(c.FreeDisk))
	default:
		out.add("feature cache", "%s: %d files, %s%s", c.Folder, c.Files, gigabytes(c.Bytes), freeText(c.FreeDisk))
	}

	for _, s := range m.Sets {
		sizes := fmt.Sprintf("%d classes, %d training and %d test images", s.Classes, s.Train, s.Test)
		out.add("image set "+s.Set, "%s", strings.Join(append([]string{sizes}, s.Domains...), ", "))
	}

	for _, n := range m.Missing {
		out.add("missing for "+n.For, "%s: %s", n.What, n.Do)
	}

	return out
}

func gigabytes(n int64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

// diskOf returns the free space of a folder; nil if the system does not report it.
func diskOf(dir string) *int64 {
	if free, ok := data.FreeBytes(dir); ok {
		return &free
	}
	return nil
}

func freeText(bytes *int64) string {
	if bytes == nil {
		return ""
	}
	return ", " + gigabytes(*bytes) + " free"
}

// foldersOf lists the search path of backbones and the backbones in each folder.
func foldersOf(models string) (list []modelDir) {
	in := map[string][]string{}
	for _, e := range bundle.List(models) {
		dir := ""
		if e.Dir != "" {
			dir = filepath.Dir(e.Dir)
		}
		in[dir] = append(in[dir], e.Name)
	}

	list = append(list, modelDir{"", in[""]})
	for _, dir := range bundle.SearchPath(models) {
		list = append(list, modelDir{dir, in[filepath.Clean(dir)]})
	}

	return list
}

func cacheOf(folder string) (cache featureCache) {
	dir, err := experiment.Runtime{Cache: folder}.FeatureCache()
	if err != nil {
		return featureCache{Problem: err.Error()}
	}

	cache = featureCache{Folder: dir, FreeDisk: diskOf(dir)}
	err = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if info, err := e.Info(); err == nil {
			cache.Files, cache.Bytes = cache.Files+1, cache.Bytes+info.Size()
		}
		return nil
	})

	if err != nil && !errors.Is(err, os.ErrNotExist) {
		cache.Problem = err.Error()
	}

	return cache
}

// sets lists the image sets in a folder; empty for none. Those that are not there are in without, and published ones
// that cannot be opened in Missing. Kinds that read any images fail in a folder of another kind.
func (m *machine) sets(root string) {
	if m.DataRoot = root; root == "" {
		return
	}

	for _, k := range sets.Kinds() {
		c := sets.Defaults()
		if c.Set, c.Root = k.Name, root; k.Expects == "" {
			continue
		}
		s, err := sets.Open(c)
		switch {
		case err == nil:
			m.Sets = append(m.Sets, foundSet{k.Name, len(s.Classes), len(s.Train), len(s.Test), s.Domains})
		case errors.As(err, &sets.Missing{}):
			m.without = append(m.without, k.Name)
		case source.IsFolder(root) && !slices.Contains([]string{"folder", "list", "parquet"}, k.Name):
			m.Missing = append(m.Missing, missing{"image set " + k.Name, err.Error(), whichFiles})
		}
	}
}

// missing is what a purpose lacks on this machine.
type missing struct {
	For  string `json:"for"`
	What string `json:"what"`
	Do   string `json:"do"`
}

// whichFiles says where a set is described.
const whichFiles = "promptfed list datasets NAME says which files, and from where"

// needs lists what is missing, one entry for each purpose.
func (m *machine) needs() {
	add := func(purpose, what, do string) { m.Missing = append(m.Missing, missing{purpose, what, do}) }
	if m.Library == nil {
		add("every run", "ONNX Runtime", "put its library beside the program, or its path into ONNXRUNTIME_LIB; in a "+
			"checkout, make library")
	}

	if !slices.ContainsFunc(m.Backbones, func(d modelDir) bool { return d.Folder != "" && len(d.Names) > 0 }) {
		add("results", "weights of a real CLIP", "promptfed pull clip-vit-base-patch16 fetches 0.6 GB (docs/models.md)")
	}

	_, err := os.Stat(m.DataRoot)
	switch {
	case m.DataRoot == "":
		add("real images", "a folder with image sets", "name it with --data, or in "+dataRoot+"; "+whichFiles)
	case err != nil:
		add("real images", err.Error(), "name another folder with --data, or in "+dataRoot)
	case len(m.without) > 0:
		add("real images", "in "+m.DataRoot+" "+strings.Join(m.without, ", "), whichFiles)
	}

	if l := m.Library; l != nil && l.Fallback != "" {
		add("CUDA", "provider cuda does not run here", "provider auto above says why; docs/performance.md says "+
			"what a GPU needs")
	}
}
