package exported

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"promptfed/models/bundle"
	"promptfed/models/tokenizer"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/graph"
)

// WriteRecorded writes a bundle of exported models to out: their files, as hard links if the file system supports them,
// and a bundle.json with all derived properties and the SHA-256 of every file. An existing bundle at out is replaced.
func WriteRecorded(b *bundle.Bundle, out string) error {
	m, ok := b.Towers.(*model)
	if !ok {
		return fmt.Errorf("bundle %s holds no exported models, so nothing has to be recorded", b.Name)
	}
	c, read := m.settled(), bundle.Hashes{}
	err := atomicfile.Folder(out, bundle.ManifestFile, func(dir string) error {
		for _, name := range m.files {
			from, to := filepath.Join(m.b.Dir, filepath.FromSlash(name)), filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if _, err := atomicfile.LinkOrCopy(context.Background(), from, to); err != nil {
				return err
			}
			f, err := read.File(context.Background(), dir, name)
			if err != nil {
				return err
			}
			c.Files[name] = f
		}
		data, err := json.MarshalIndent(c, "", " ")
		if err != nil {
			return err
		}
		return atomicfile.Write(filepath.Join(dir, bundle.ManifestFile), atomicfile.Bytes(append(data, '\n')))
	})
	if err == nil {
		read.Save(out)
	}
	return err
}

// settled returns a bundle.json with all properties.
func (m *model) settled() config {
	c, b, i, t := m.config, m.b, m.image, m.text
	name := func(n graph.Node) string {
		for _, f := range []*graph.File{i.file, t.file} {
			if k := slices.IndexFunc(f.Outputs, func(o graph.Output) bool { return o.Node == n }); k >= 0 {
				return f.Outputs[k].Name
			}
		}
		if !n.OK() {
			return ""
		}
		return n.Name()
	}
	c.Version, c.Name, c.Architecture, c.Source = bundle.Version, b.Name, b.Architecture, b.Source
	c.TextWidth, c.EmbedDim, c.ImageSize, c.Context = b.Text.Width, b.Text.EmbedDim, b.Vision.Image, b.Text.Context
	c.LogitScale, c.LogitBias, c.LogScale, c.Notes, c.Files = b.LogitScale, b.LogitBias, nil, b.Notes,
		map[string]bundle.File{}
	c.Preprocess, _ = json.Marshal(b.Preprocess)
	c.Model, c.Variant, c.TokenizerFile = "", "", b.Vocabulary
	if b.Texts != (tokenizer.TextCleaning{}) {
		c.Texts = &b.Texts
	}
	c.Image = imageConfig{File: i.name, Input: name(i.input), Output: name(i.output), Patches: name(i.patches)}
	causal := t.causal
	c.Text = textConfig{File: t.name, Embeddings: name(t.embeddings), IDs: name(t.ids), EOT: name(t.eot),
		Mask: name(t.mask), Positions: name(t.positions), Output: name(t.output), Causal: &causal}
	if t.embeddings.OK() && t.table.file != "" {
		c.Tokens = &tokenTable{File: t.table.file, Offset: t.table.offset, DType: t.table.dtype,
			Shape: []int{t.table.rows, t.table.width}}
	}
	return c
}
