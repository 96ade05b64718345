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
// gradient files that are missing, if gradients is set, and a bundle.json with all derived properties and the SHA-256
// of every file. An existing bundle at out is replaced.
func WriteRecorded(b *bundle.Bundle, out string, gradients bool) error {
	m, ok := b.Towers.(*model)
	if !ok {
		return fmt.Errorf("bundle %s holds no exported models, so nothing has to be recorded", b.Name)
	}

	config, read := m.settled(), bundle.Hashes{}
	err := atomicfile.Folder(out, bundle.ManifestFile, func(dir string) error {
		for _, name := range m.files {
			from, to := filepath.Join(m.bundle.Dir, filepath.FromSlash(name)), filepath.Join(dir,
				filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if _, err := atomicfile.LinkOrCopy(context.Background(), from, to); err != nil {
				return err
			}
		}

		files := m.files
		if gradients {
			more, err := m.writeGradients(dir)
			if err != nil {
				return err
			}
			files = slices.Concat(files, more)
		}

		for _, name := range files {
			f, err := read.File(context.Background(), dir, name)
			if err != nil {
				return err
			}
			config.Files[name] = f
		}

		config.Version = bundle.VersionOf(config.Files)
		data, err := json.MarshalIndent(config, "", " ")
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

// nameIn returns the name of a value in a file, as output if it is one; "" for an absent one.
func nameIn(f *graph.File, n graph.Node) string {
	if k := slices.IndexFunc(f.Outputs, func(o graph.Output) bool { return o.Node == n }); k >= 0 {
		return f.Outputs[k].Name
	}
	if !n.OK() {
		return ""
	}
	return n.Name()
}

// settled returns a bundle.json with all properties.
func (m *model) settled() config {
	c, b, imageTower, textTower := m.config, m.bundle, m.image, m.text
	c.Name, c.Architecture, c.Source = b.Name, b.Architecture, b.Source
	c.TextWidth, c.EmbedDim, c.ImageSize, c.Context = b.Text.Width, b.Text.EmbedDim, b.Vision.Image, b.Text.Context
	c.LogitScale, c.LogitBias, c.LogScale, c.Notes, c.Files = b.LogitScale, b.LogitBias, nil, b.Notes,
		map[string]bundle.File{}
	c.Preprocess, _ = json.Marshal(b.Preprocess)
	c.Model, c.Variant, c.TokenizerFile = "", "", b.Vocabulary
	if b.Texts != (tokenizer.TextCleaning{}) {
		c.Texts = &b.Texts
	}

	c.Image = imageConfig{File: imageTower.name, Input: imageTower.input.Name(),
		Output:  nameIn(imageTower.file, imageTower.output),
		Patches: nameIn(imageTower.file, imageTower.patches)}
	causal, name := textTower.causal, func(n graph.Node) string { return nameIn(textTower.file, n) }
	c.Text = textConfig{File: textTower.name, Embeddings: name(textTower.embeddings), IDs: name(textTower.ids),
		EOT:  name(textTower.eot),
		Mask: name(textTower.mask), Positions: name(textTower.positions), Output: name(textTower.output),
		Causal: &causal}

	if textTower.embeddings.OK() && textTower.table.file != "" {
		c.Tokens = &tokenTable{File: textTower.table.file, Offset: textTower.table.offset, DType: textTower.table.dtype,
			Shape: []int{textTower.table.rows, textTower.table.width}}
	}

	return c
}
