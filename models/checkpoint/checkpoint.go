package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"promptfed/runtime/convert"
)

// Format is the format of a checkpoint.
type Format string

const (
	OpenAI      Format = "openai"      // a TorchScript archive
	HuggingFace Format = "huggingface" // a folder with config.json
	OpenCLIP    Format = "openclip"    // a folder with open_clip_config.json
	StateDict   Format = "state_dict"  // a bare file of named tensors
)

// Options state what a checkpoint does not state itself. With the zero value, everything comes from the checkpoint.
type Options struct {
	Activation  string  // QuickGELU, GELU or GELUTanh, of both towers
	TextHeads   int     // attention heads of the text tower
	VisionHeads int     // attention heads of the image tower
	Epsilon     float64 // of the layer norms of both towers
}

func (o Options) check() error {
	if o.Activation != "" && !slices.Contains(activations, o.Activation) {
		return fmt.Errorf("activation %q: want one of %q", o.Activation, activations)
	}

	if math.IsNaN(o.Epsilon) || o.Epsilon < 0 || o.Epsilon >= 1 {
		return fmt.Errorf("epsilon %g: want a number from 0 to 1", o.Epsilon)
	}

	if o.TextHeads < 0 || o.VisionHeads < 0 {
		return fmt.Errorf("%d text heads and %d vision heads: want positive numbers", o.TextHeads, o.VisionHeads)
	}

	return nil
}

// sideFiles lists the files beside the weights in a Hugging Face or OpenCLIP folder.
var sideFiles = []string{"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json",
	"special_tokens_map.json", "preprocessor_config.json", "spiece.model", "vocab.txt"}

// Checkpoint is an open checkpoint. Its methods are safe for concurrent use.
type Checkpoint struct {
	format  Format
	path    string
	dir     string
	handles map[string]*Handle
	config  map[string]any
	files   []string // weights, by base name
	side    []string // configuration and tokenizer, by base name
	closers []io.Closer
	opts    Options

	training bool // a training loop saved the tensors: with an optimizer, or under a wrapper's names
}

// Format returns the format of the checkpoint.
func (c *Checkpoint) Format() Format { return c.format }

// Path returns the argument of Open.
func (c *Checkpoint) Path() string { return c.path }

// Dir returns the folder of the checkpoint; empty for a checkpoint in memory.
func (c *Checkpoint) Dir() string { return c.dir }

// Names returns the names of the tensors, sorted, without the prefixes of wrappers ("module.", "_orig_mod.").
func (c *Checkpoint) Names() []string { return keys(c.handles) }

// Has reports whether the checkpoint holds the named tensor.
func (c *Checkpoint) Has(name string) bool { return c.handles[name] != nil }

// Tensor returns the named tensor, unread.
func (c *Checkpoint) Tensor(name string) (*Handle, error) {
	h := c.handles[name]
	if h == nil {
		return nil, fmt.Errorf("%s: no tensor %q among %d", c.path, name, len(c.handles))
	}
	return h, nil
}

// Files returns the paths of the existing configuration, tokenizer and preprocessing files of a folder.
func (c *Checkpoint) Files() []string { return c.paths(c.side) }

// WeightFiles returns the paths of the files that hold the tensors.
func (c *Checkpoint) WeightFiles() []string { return c.paths(c.files) }

// File returns the path of a side file such as "vocab.json"; empty if it does not exist.
func (c *Checkpoint) File(base string) string {
	if slices.Contains(c.side, base) {
		return filepath.Join(c.dir, base)
	}
	return ""
}

func (c *Checkpoint) paths(base []string) []string {
	return convert.Slice(base, func(b string) string { return filepath.Join(c.dir, b) })
}

// Preprocessor returns preprocessor_config.json (Hugging Face), or preprocess_cfg of the OpenCLIP configuration; nil if
// there is neither.
func (c *Checkpoint) Preprocessor() (map[string]any, error) {
	if cfg := section(c.config, "preprocess_cfg"); c.format == OpenCLIP && cfg != nil {
		return cfg, nil
	}
	if path := c.File("preprocessor_config.json"); path != "" {
		return readJSON(path)
	}
	return nil, nil
}

// Close closes the files; handles cannot be loaded afterwards.
func (c *Checkpoint) Close() error {
	var err error
	for _, f := range c.closers {
		err = errors.Join(err, f.Close())
	}
	c.closers = nil
	return err
}
