package runfolder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"promptfed/federation/experiment"
	"promptfed/models/bundle"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/numerics"
	"promptfed/runtime/ort"
	"promptfed/runtime/version"
)

// Provenance is the content of ProvenanceFile.
type Provenance struct {
	Seeds map[string]uint64 `json:"seeds"`
	Data  *Data             `json:"data,omitempty"` // nil if other machines hold the data
	// Backbones lists those that were fetched from the Hugging Face hub or from OpenAI.
	Backbones []Backbone `json:"backbones,omitempty"`
	Calls     []Call     `json:"calls"` // calls of the program; more than one for a resumed run
}

// Data describes the data of a run.
type Data struct {
	Set     string         `json:"set"`
	Root    string         `json:"root,omitempty"` // absolute
	Digest  string         `json:"digest"`         // see experiment.Data.Digest
	Classes int            `json:"classes"`
	Domains int            `json:"domains"`
	Images  map[string]int `json:"images"` // by split
	Clients int            `json:"clients"`
}

// Backbone says where a backbone came from.
type Backbone struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // see bundle.Towers
	bundle.Origin
}

// Call is one execution of the program.
type Call struct {
	Command []string `json:"command"` // without secrets
	Folder  string   `json:"folder"`  // working directory
	Version string   `json:"version"`
	Commit  string   `json:"commit"`
	Go      string   `json:"go"`
	ONNX    string   `json:"onnx_runtime,omitempty"`
	Host    string   `json:"host"`
	System  string   `json:"system"`
	CPUs    int      `json:"cpus"`
	// Numerics is what may change a bit of the results; absent if this process computes no tensors.
	Numerics *numerics.Fingerprint `json:"numerics,omitempty"`
	Start    time.Time             `json:"start"`
	Seconds  *float64              `json:"seconds,omitempty"` // absent if the process was killed
	// Beginning is when parts of the beginning had ended, in seconds after Start, see Clock.
	Beginning map[string]float64 `json:"beginning,omitempty"`
	Finished  bool               `json:"finished"`        // whether the run ended without an error
	Error     string             `json:"error,omitempty"` // absent if the run was interrupted
}

// dataOf returns the description of the data of a task.
func dataOf(t *experiment.Task) *Data {
	d := &Data{Set: t.Info.Set, Digest: t.Data.Digest, Classes: t.Info.Classes, Domains: len(t.Info.Domains),
		Images: map[string]int{}, Clients: len(t.Data.Parts)}
	if root := t.Protocol.Config.Data.Root; root != "" && d.Set != "synthetic" {
		d.Root, _ = filepath.Abs(root)
	}

	for _, s := range t.Info.Splits {
		d.Images[s.Name] = s.Images
	}

	return d
}

// MaxProvenance is the size limit of ProvenanceFile, in bytes.
const MaxProvenance = 4 << 20

// ReadProvenance reads ProvenanceFile. Without the file it returns an empty Provenance.
func ReadProvenance(dir string) (provenance Provenance, err error) {
	path := filepath.Join(dir, ProvenanceFile)
	text, err := atomicfile.ReadAtMost(path, MaxProvenance)
	if errors.Is(err, fs.ErrNotExist) {
		return provenance, nil
	}

	if err == nil {
		err = json.Unmarshal(text, &provenance)
	}

	if err != nil {
		return provenance, fmt.Errorf("%s: %w; remove it to continue without it", path, err)
	}

	return provenance, nil
}

// Clock measures a call of the program. It is safe for concurrent use.
type Clock struct {
	Start time.Time

	mu    sync.Mutex
	ended map[string]float64
}

// Parts of the beginning of a run, in order: data and backbones are opened, image features are there, the run folder is
// written, the first client has trained.
const (
	OpenedPart   = "opened"
	FeaturesPart = "features"
	FolderPart   = "folder"
	TrainedPart  = "trained"
)

// Ended notes that a part has ended now. If a part ends several times, the first counts.
func (c *Clock) Ended(part string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = map[string]float64{}
	}

	if _, known := c.ended[part]; !known {
		c.ended[part] = c.seconds()
	}
}

func (c *Clock) seconds() float64 { return math.Round(1000*time.Since(c.Start).Seconds()) / 1000 }

// Begin adds the current call to ProvenanceFile. end records the duration of the call and whether it failed. The task
// is nil on a server whose clients are on other machines.
func Begin(ctx context.Context, dir string, c experiment.Config, task *experiment.Task, clock *Clock) (
	end func(error) error, err error) {
	path := filepath.Join(dir, ProvenanceFile)
	provenance, err := ReadProvenance(dir)
	if err != nil {
		return nil, err
	}

	provenance.Seeds = map[string]uint64{"seed": c.Seed, "data.seed": c.Data.Seed, "partition.seed": c.Partition.Seed}
	provenance.Data, provenance.Backbones = nil, nil
	call := Call{Command: withoutSecrets(CommandLine(ctx)), Version: version.Version(), Commit: version.Commit(),
		Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		Start: clock.Start.UTC().Truncate(time.Millisecond)}
	call.Host, _ = os.Hostname()
	call.Folder, _ = os.Getwd()
	if _, v, err := ort.Library(); err == nil {
		call.ONNX = v
	}

	if task != nil {
		provenance.Data = dataOf(task)
		for _, f := range task.Backbones.Distinct {
			if f.Origin.Source != "" {
				provenance.Backbones = append(provenance.Backbones, Backbone{f.Name, f.Digest(), f.Origin})
			}
		}
		if n, err := task.Numerics(); err == nil {
			call.Numerics = &n
		}
	}

	provenance.Calls = append(provenance.Calls, call)
	write := func() error { return atomicfile.Write(path, atomicfile.JSON(provenance, "  ")) }
	return func(failed error) error {
		last := &provenance.Calls[len(provenance.Calls)-1]
		seconds := clock.seconds()
		if last.Seconds, last.Finished = &seconds, failed == nil; failed != nil && ctx.Err() == nil {
			last.Error = failed.Error()
		}
		clock.mu.Lock()
		last.Beginning = maps.Clone(clock.ended)
		clock.mu.Unlock()
		return write()
	}, write()
}

// password matches the password in a URL.
var password = regexp.MustCompile(`(://[^\s/@:]*:)[^\s/@]*@`)

// withoutSecrets replaces the value of --token and the passwords in URLs.
func withoutSecrets(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if strings.HasPrefix(a, "--token=") {
			out[i] = "--token=..."
		} else if i > 0 && args[i-1] == "--token" {
			out[i] = "..."
		} else {
			out[i] = password.ReplaceAllString(a, "$1...@")
		}
	}

	return out
}

type commandLine struct{}

// WithCommandLine returns a context with the command line of the process.
func WithCommandLine(ctx context.Context, args []string) context.Context {
	return context.WithValue(ctx, commandLine{}, args)
}

// CommandLine returns the command line in a context.
func CommandLine(ctx context.Context) []string {
	args, _ := ctx.Value(commandLine{}).([]string)
	return args
}

// CommandWith returns a shell command that repeats the command line of the process with one more flag, and with the
// environment variables that changed its configuration.
func CommandWith(ctx context.Context, flag string) string {
	var words []string
	for _, pair := range slices.Sorted(slices.Values(os.Environ())) {
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "PROMPTFED_") && name != "PROMPTFED_TOKEN" {
			words = append(words, name+"="+quoted(value))
		}
	}

	args := withoutSecrets(CommandLine(ctx))
	for _, a := range args {
		if a != "--force" {
			words = append(words, quoted(a))
		}
	}

	if !slices.Contains(args, flag) {
		words = append(words, flag)
	}

	return strings.Join(words, " ")
}

// quoted quotes a word for a POSIX shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' ||
			strings.ContainsRune("_-./=:,+@%", r)
	}

	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}

	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
