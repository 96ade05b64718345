package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"promptfed/runtime/oneline"
	"promptfed/runtime/safetensors"
)

const (
	huggingfaceConfig = "config.json"
	openclipConfig    = "open_clip_config.json"
)

// layout is the content of a folder: a configuration, and the weight files in the order in which they are searched,
// safetensors first, since they hold no executable content.
type layout struct {
	format Format
	config string
	files  []string
}

var (
	huggingface = layout{HuggingFace, huggingfaceConfig, []string{"model.safetensors", "model.safetensors.index.json",
		"pytorch_model.bin", "pytorch_model.bin.index.json"}}
	openclip = layout{OpenCLIP, openclipConfig, []string{"open_clip_model.safetensors",
		"open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin"}}
)

// Open reads the layout of the checkpoint at path, which is a file or a folder (see the package comment). Tensors are
// read on demand; Close closes the files.
func Open(path string, opts Options) (*Checkpoint, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}

	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}

	ckpt := &Checkpoint{path: path, dir: path, handles: map[string]*Handle{}, opts: opts}
	if st.IsDir() {
		err = ckpt.openFolder()
	} else {
		ckpt.dir = filepath.Dir(path)
		err = ckpt.openSingle(filepath.Base(path))
	}

	if err == nil && len(ckpt.handles) == 0 {
		err = fmt.Errorf("%s: the checkpoint holds no tensors", path)
	}

	if err != nil {
		ckpt.Close()
		return nil, err
	}

	return ckpt, nil
}

func (c *Checkpoint) openFolder() error {
	l, weights, err := choose(c.dir, func(name string) bool { return exists(filepath.Join(c.dir, name)) })
	if err != nil {
		return err
	}
	return c.openNamed(l, weights)
}

// choose returns the layout and the weight file of a folder that has some files. It reads config.json in dir.
func choose(dir string, has func(string) bool) (layout layout, weights string, err error) {
	hf, oc := first(huggingface.files, has), first(openclip.files, has)
	if !has(openclipConfig) {
		if hf == "" && oc != "" {
			return layout, "", fmt.Errorf("%s: %s is there, but %s is missing", dir, oc, openclipConfig)
		}
		oc = ""
	}

	if hf != "" && oc != "" {
		// Hub repositories often hold both formats; weights that config.json does not describe as a CLIP, or that are
		// pickles, yield to the others.
		cfg, err := readJSON(filepath.Join(dir, huggingfaceConfig))
		if err != nil || !slices.Contains(modelTypes, fmt.Sprint(cfg["model_type"])) || isSafe(oc) && !isSafe(hf) {
			hf = ""
		}
	}

	switch {
	case hf != "":
		return huggingface, hf, nil
	case oc != "":
		return openclip, oc, nil
	}

	return layout, "", fmt.Errorf("%s: no weights there; want one of %s (Hugging Face) or %s with one of %s (OpenCLIP)",
		dir, strings.Join(huggingface.files, ", "), openclipConfig, strings.Join(openclip.files, ", "))
}

func isSafe(name string) bool { return strings.Contains(name, ".safetensors") }

func first(names []string, has func(string) bool) string {
	if i := slices.IndexFunc(names, has); i >= 0 {
		return names[i]
	}
	return ""
}

// IsWeights reports whether a file of Needed is large: it holds tensors.
func IsWeights(name string) bool {
	return !slices.Contains(smallFiles, name) && !strings.HasSuffix(name, ".json")
}

// smallFiles lists the files that are read before weights.
var smallFiles = append([]string{huggingfaceConfig, openclipConfig}, sideFiles...)

// Needed returns the files that Open reads in a folder with all of the given files, as far as those that are in dir
// already tell: first configuration and vocabulary, then also weights, then also the shards that their index names.
func Needed(dir string, all []string) ([]string, error) {
	has := func(name string) bool { return slices.Contains(all, name) }
	there := func(name string) bool { return exists(filepath.Join(dir, name)) }
	needed := slices.DeleteFunc(slices.Clone(smallFiles), func(name string) bool { return !has(name) })
	for _, name := range needed {
		if !there(name) {
			return needed, nil
		}
	}

	_, weights, err := choose(dir, has)
	if err != nil {
		return nil, err
	}

	if needed = append(needed, weights); there(weights) && strings.HasSuffix(weights, ".index.json") {
		index, err := shardIndex(filepath.Join(dir, weights))
		if err != nil {
			return nil, err
		}
		needed = append(needed, slices.Compact(slices.Sorted(maps.Values(index)))...)
	}

	return needed, nil
}

// openSingle opens one weights file. A file with a standard name beside its configuration is read like its folder.
func (c *Checkpoint) openSingle(base string) error {
	for _, l := range []layout{huggingface, openclip} {
		if slices.Contains(l.files, base) && exists(filepath.Join(c.dir, l.config)) {
			return c.openNamed(l, base)
		}
	}
	c.format = StateDict
	return c.weights(base)
}

func (c *Checkpoint) openNamed(l layout, weights string) error {
	c.format = l.format
	for _, name := range append([]string{l.config}, sideFiles...) {
		if exists(filepath.Join(c.dir, name)) {
			c.side = append(c.side, name)
		}
	}

	if path := c.File(l.config); path != "" {
		var err error
		if c.config, err = readJSON(path); err != nil {
			return err
		}
	}

	return c.weights(weights)
}

func (c *Checkpoint) weights(base string) error {
	if strings.HasSuffix(base, ".index.json") {
		return c.shards(base)
	}

	handles, err := c.file(base)
	if err != nil {
		return err
	}

	c.handles = trimPrefixes(handles)
	for name := range handles { // all names have the prefix, or none
		c.training = c.training || c.handles[name] == nil
	}

	return nil
}

// shardIndex reads {"weight_map": {tensor: file}}; the files are in the same folder.
func shardIndex(path string) (map[string]string, error) {
	index, err := readJSON(path)
	if err != nil {
		return nil, err
	}

	out := map[string]string{}
	for name, file := range section(index, "weight_map") {
		if len(name) > maxName {
			return nil, fmt.Errorf("%s: a tensor has a name of %d bytes, the limit is %d", path, len(name), maxName)
		}
		text, ok := file.(string)
		if !ok || !plainName(text) {
			return nil, fmt.Errorf("%s: tensor %q lies in %s, want the name of a file in the same folder", path, name,
				oneline.Short(fmt.Sprint(file)))
		}
		out[name] = text
	}

	return out, nil
}

// shards reads an index and every file that it names.
func (c *Checkpoint) shards(base string) error {
	path := filepath.Join(c.dir, base)
	index, err := shardIndex(path)
	if err != nil {
		return err
	}

	c.side = append(c.side, base)
	files := map[string]map[string]*Handle{}
	for _, name := range keys(index) {
		file := index[name]
		if files[file] == nil {
			if files[file], err = c.file(file); err != nil {
				return fmt.Errorf("%s: tensor %q: its shard: %w", path, name, err)
			}
		}
		h := files[file][name]
		if h == nil {
			return fmt.Errorf("%s: tensor %q is not in the shard %s", path, name, file)
		}
		c.handles[name] = h
	}

	c.handles = trimPrefixes(c.handles)
	return nil
}

// plainName reports whether a text can be the name of a file in the same folder: no path, no control characters, and at
// most the 255 bytes that file systems allow.
func plainName(file string) bool {
	return file != "" && len(file) <= 255 && filepath.Base(file) == file && filepath.IsLocal(file) &&
		!strings.ContainsFunc(file, unicode.IsControl)
}

// file returns the tensors of one weights file, whose format follows from its first bytes.
func (c *Checkpoint) file(base string) (handles map[string]*Handle, err error) {
	path := filepath.Join(c.dir, base)
	f, size, err := safetensors.OpenRegular(path)
	if err != nil {
		return nil, err
	}

	c.closers = append(c.closers, f)
	c.files = append(c.files, base)
	handles, err = c.read(path, f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return handles, nil
}

func (c *Checkpoint) read(path string, reader io.ReaderAt, size int64) (map[string]*Handle, error) {
	head := make([]byte, 512)
	n, err := reader.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}

	head = head[:n]
	switch {
	case len(head) == 0:
		return nil, errors.New("the file is empty")
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		a, err := openArchive(reader, size)
		if err != nil {
			return nil, err
		}
		object, err := a.load()
		return c.pickled(path, object, a, err)
	case bytes.HasPrefix(head, []byte("version https://git-lfs")):
		return nil, errors.New("the file is a Git LFS pointer, not the weights; fetch them with git lfs pull")
	case len(head) > 262 && string(head[257:262]) == "ustar":
		return nil, errTorchTar
	case len(head) > 8 && head[8] == '{' || strings.HasSuffix(path, ".safetensors"):
		return readSafetensors(path, reader, size)
	case head[0] == 0x80:
		object, l, err := openLegacy(reader, size)
		return c.pickled(path, object, l, err)
	}

	return nil, errors.New("not a checkpoint: want safetensors, a TorchScript archive or a file of torch.save")
}

func readSafetensors(path string, reader io.ReaderAt, size int64) (map[string]*Handle, error) {
	f, err := safetensors.Parse(reader, size)
	if err != nil {
		return nil, err
	}

	out := map[string]*Handle{}
	for _, name := range f.Names() {
		info, err := f.Info(name)
		if err != nil {
			return nil, err
		}
		out[name] = inFile(name, path, reader, info)
	}

	return out, nil
}

// pickled returns the tensors of an object that PyTorch saved.
func (c *Checkpoint) pickled(path string, object any, from buffers, err error) (map[string]*Handle, error) {
	var found map[string]*view
	if root, ok := object.(*module); ok && err == nil {
		if c.format == StateDict {
			c.format = OpenAI
		}
		found, err = flattenModule(root)
	} else if err == nil {
		found, c.training, err = flattenDict(object)
	}

	if err != nil {
		return nil, err
	}

	return handlesOf(found, path, from)
}

func handlesOf(found map[string]*view, path string, from buffers) (map[string]*Handle, error) {
	out := make(map[string]*Handle, len(found))
	for _, name := range keys(found) {
		if len(name) > maxName {
			return nil, fmt.Errorf("a tensor has a name of %d bytes, the limit is %d", len(name), maxName)
		}
		h, err := found[name].handle(name, path, from)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		out[name] = h
	}

	return out, nil
}
