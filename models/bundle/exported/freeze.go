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
	model, ok := b.Towers.(*model)
	if !ok {
		return fmt.Errorf("bundle %s holds no exported models, so nothing has to be recorded", b.Name)
	}

	config, read := model.settled(), bundle.Hashes{}
	err := atomicfile.Folder(out, bundle.ManifestFile, func(dir string) error {
		for _, name := range model.files {
			from, to := model.path(name), filepath.Join(dir,
				filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if _, err := atomicfile.LinkOrCopy(context.Background(), from, to); err != nil {
				return err
			}
		}

		files := model.files
		if gradients {
			more, err := model.writeGradients(dir)
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
		return atomicfile.Write(filepath.Join(dir, bundle.ManifestFile), atomicfile.JSON(config, " "))
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
	config, b, imageTower, textTower := m.config, m.bundle, m.image, m.text
	config.Name, config.Architecture, config.Source = b.Name, b.Architecture, b.Source
	config.TextWidth, config.EmbedDim, config.ImageSize, config.Context = b.Text.Width, b.Text.EmbedDim, b.Vision.Image,
		b.Text.Context
	config.LogitScale, config.LogitBias, config.LogScale, config.Files = b.LogitScale, b.LogitBias, nil,
		map[string]bundle.File{}
	config.Notes = slices.DeleteFunc(slices.Clone(b.Notes), func(note string) bool {
		return note != "" && note == m.unmeasured
	})

	config.Preprocess, _ = json.Marshal(b.Preprocess)
	config.Model, config.Variant, config.TokenizerFile = "", "", b.Vocabulary
	if b.Texts != (tokenizer.TextCleaning{}) {
		config.Texts = &b.Texts
	}

	config.Image = imageConfig{File: imageTower.name, Input: imageTower.input.Name(),
		Output:  nameIn(imageTower.file, imageTower.output),
		Patches: nameIn(imageTower.file, imageTower.patches)}
	name := func(n graph.Node) string { return nameIn(textTower.file, n) }
	config.Text = textConfig{File: textTower.name, Embeddings: name(textTower.embeddings), IDs: name(textTower.ids),
		EOT:  name(textTower.eot),
		Mask: name(textTower.mask), Positions: name(textTower.positions), Output: name(textTower.output),
		Causal: textTower.causal}

	if textTower.embeddings.OK() && textTower.table.file != "" {
		config.Tokens = &tokenTable{File: textTower.table.file, Offset: textTower.table.offset,
			DType: textTower.table.dtype,
			Shape: []int{textTower.table.rows, textTower.table.width}}
	}

	return config
}
