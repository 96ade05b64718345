package exported

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/tokenizer"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// list collects the files that the towers use, and prepares the digest.
func (m *model) list() error {
	m.files = append(slices.Clone(m.read), m.image.name, m.text.name)
	for _, file := range []string{m.text.table.file, m.text.table.model} {
		if file != "" {
			m.files = append(m.files, file)
		}
	}

	graphs := []*graph.File{m.image.file, m.text.file}
	for _, b := range []*bundle.Box{m.image.box, m.text.box} {
		if b != nil {
			m.files, graphs = append(m.files, b.Name()), append(graphs, b.File)
		}
	}

	for _, f := range graphs {
		files, err := onnx.ExternalFiles(f.Proto)
		if err != nil {
			return err
		}
		m.files = append(m.files, files...)
	}

	slices.Sort(m.files)
	m.files = slices.Compact(m.files)
	for _, name := range m.files {
		if _, err := os.Stat(m.path(name)); err != nil {
			return err
		}
	}

	m.digest = sync.OnceValue(m.sum)
	return nil
}

// verify checks the files that bundle.json lists: the contents of all of them, or of those without a record.
func (m *model) verify(all bool) error {
	for name := range m.config.Files {
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return fmt.Errorf("files: %q is not the path of a file inside the bundle", name)
		}
	}
	return bundle.Verify(m.bundle.Dir, m.config.Files, all, "get the original file again, or write size and sha256 "+
		"of the new one in "+bundle.ManifestFile)
}

func (m *model) Verify() error { return m.verify(true) }

// sum returns the digest: a hash of the contents of all files, and of the keys of bundle.json that affect their use. An
// unreadable file enters with its error; running the model will report it.
func (m *model) sum() string {
	config := m.config
	config.Name, config.Architecture, config.Source, config.Notes, config.Files = "", "", "", nil,
		map[string]bundle.File{}
	config.LogitScale, config.LogScale, config.LogitBias = 0, nil, 0
	config.Texts = nil
	if texts := m.bundle.Texts; texts != (tokenizer.TextCleaning{}) {
		config.Texts = &texts
	}

	for _, name := range m.files {
		have, err := bundle.HashFiles(m.bundle.Dir, []string{name}, false)
		if config.Files[name] = have[name]; err != nil {
			config.Files[name] = bundle.File{SHA256: err.Error()}
		}
	}

	return bundle.DigestOf(config)
}

// tokenizer reads the vocabulary: the file that bundle.json names, or the one nearest to the text tower.
func (m *model) tokenizer() (*tokenizer.Tokenizer, error) {
	name := m.config.TokenizerFile
	if name != "" && !filepath.IsLocal(filepath.FromSlash(name)) {
		return nil, fmt.Errorf("tokenizer %q is not the path of a file inside the bundle", name)
	}

	regular := func(file string) bool {
		st, err := os.Stat(m.path(file))
		return err == nil && st.Mode().IsRegular()
	}

	dirs := places(m.textDir, m.text.name)
	if regular(name) {
		m.read, dirs = append(m.read, name), nil
		for _, file := range tokenizer.Beside(name) {
			if file = path.Join(path.Dir(name), file); regular(file) {
				m.read = append(m.read, file)
			}
		}
	} else if name != "" {
		dirs = []string{name}
	}

	for _, dir := range dirs {
		before := len(m.read)
		for _, file := range append(tokenizer.FileNames(), tokenizer.ConfigName) {
			if file = path.Join(dir, file); regular(file) {
				m.read = append(m.read, file)
			}
		}
		if len(m.read) > before {
			name = strings.TrimSuffix(dir, ".")
			break
		}
	}

	m.bundle.Vocabulary = name
	t, err := tokenizer.Load(m.path(name))
	if err != nil {
		return nil, err
	}

	return m.treated(t)
}

// treated applies the treatment of texts to the tokenizer: that of bundle.json, or of an OpenCLIP configuration beside
// the text tower.
func (m *model) treated(tokens *tokenizer.Tokenizer) (*tokenizer.Tokenizer, error) {
	var texts checkpoint.Texts
	if c := m.config.Texts; c != nil {
		texts.TextCleaning = *c
	} else {
		for _, file := range []string{"open_clip_config.json", "config.json"} {
			name, data, err := m.look(places(m.textDir, m.text.name), file)
			if err == nil && data != nil {
				texts, err = checkpoint.ParseTexts(data)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w; the key texts of %s, as {\"clean\": \"whitespace\"}, goes before it",
					name, err, bundle.ManifestFile)
			}
			if texts != (checkpoint.Texts{}) {
				m.read = append(m.read, name)
				break
			}
		}
	}

	if texts.StripSep {
		return nil, fmt.Errorf("strip_sep_token is not supported for exported towers, whose graphs may look for the "+
			"separator: convert the checkpoint, or write the key texts, as {\"clean\": \"whitespace\"}, in %s if "+
			"texts keep it", bundle.ManifestFile)
	}

	tokens, err := texts.Apply(tokens)
	if err == nil {
		m.bundle.Texts = tokens.Cleaning()
	}

	return tokens, err
}
