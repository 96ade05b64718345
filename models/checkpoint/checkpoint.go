// Package checkpoint reads CLIP weights as people have them on disk, without copying or converting them first:
//
//   - OpenAI's .pt: a TorchScript archive (ZIP);
//   - files of torch.save, new (ZIP) and from before PyTorch 1.6: bare state dicts and training checkpoints;
//   - a Hugging Face folder: config.json with model.safetensors, its shards, or pytorch_model.bin;
//   - an OpenCLIP folder: open_clip_config.json with open_clip_model.safetensors or open_clip_pytorch_model.bin;
//   - a bare .safetensors file.
//
// Files come from strangers. Pickles run no code: a global that is not on a short list is an error naming it. Sizes,
// offsets and nesting are checked before anything is allocated for them, and every failure is an error of one line.
package checkpoint

import (
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
)

// Format is how a checkpoint was stored.
type Format string

const (
	OpenAI      Format = "openai"      // a TorchScript archive
	HuggingFace Format = "huggingface" // a folder with config.json
	OpenCLIP    Format = "openclip"    // a folder with open_clip_config.json
	StateDict   Format = "state_dict"  // a bare file of named tensors
)

// Options settle what a checkpoint does not say. The zero value takes everything from the checkpoint.
type Options struct {
	Activation  string  // QuickGELU, GELU or GELUTanh, of both towers
	TextHeads   int     // attention heads of the text tower
	VisionHeads int     // attention heads of the image tower
	Epsilon     float64 // of the layer normalisations of both towers
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

// sideFiles lie beside the weights of a Hugging Face or OpenCLIP folder.
var sideFiles = []string{"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json",
	"special_tokens_map.json",
	"preprocessor_config.json", "spiece.model", "vocab.txt"}

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

	training bool // the tensors were saved by a training loop: beside an optimizer, or under a wrapper's names
}

// Format tells how the checkpoint was stored.
func (c *Checkpoint) Format() Format { return c.format }

// Path is what Open was given.
func (c *Checkpoint) Path() string { return c.path }

// Dir is the folder of the checkpoint; empty in memory.
func (c *Checkpoint) Dir() string { return c.dir }

// Config is config.json or open_clip_config.json with numbers as json.Number; nil when there is none.
func (c *Checkpoint) Config() map[string]any { return maps.Clone(c.config) }

// Names lists the tensors in sorted order, without the prefixes of wrappers ("module.", "_orig_mod.").
func (c *Checkpoint) Names() []string { return keys(c.handles) }

// Has tells whether the checkpoint holds the named tensor.
func (c *Checkpoint) Has(name string) bool { return c.handles[name] != nil }

// Tensor is the named tensor, unread.
func (c *Checkpoint) Tensor(name string) (*Handle, error) {
	h := c.handles[name]
	if h == nil {
		return nil, fmt.Errorf("%s: no tensor %q among %d", c.path, name, len(c.handles))
	}
	return h, nil
}

// Files lists the paths of configuration, tokenizer and preprocessing files of a folder, those that are there.
func (c *Checkpoint) Files() []string { return c.paths(c.side) }

// WeightFiles lists the paths of the files the tensors lie in.
func (c *Checkpoint) WeightFiles() []string { return c.paths(c.files) }

// File is the path of a side file such as "vocab.json"; empty when it is not there.
func (c *Checkpoint) File(base string) string {
	if slices.Contains(c.side, base) {
		return filepath.Join(c.dir, base)
	}
	return ""
}

func (c *Checkpoint) paths(base []string) []string {
	out := make([]string, len(base))
	for i, b := range base {
		out[i] = filepath.Join(c.dir, b)
	}
	return out
}

// Preprocessor is preprocessor_config.json (Hugging Face), or preprocess_cfg of the OpenCLIP configuration; nil when
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

// Close releases the files; handles cannot be loaded after it.
func (c *Checkpoint) Close() error {
	var first error
	for _, f := range c.closers {
		if err := f.Close(); err != nil && first == nil {
			first = err
		}
	}
	c.closers = nil
	return first
}
