package exported

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// Format returns the format of this package (bundle.RegisterFormat). A batch that the export fixed is opened if run
// shows that features stay the same.
func Format(run bundle.Runner) bundle.Format {
	return bundle.Format{NameOf: nameOf, Parts: true,
		Open: func(s bundle.Spec) (*bundle.Bundle, error) { return open(s, run) }}
}

// model is an open bundle: both towers, and the properties that were derived from their graphs.
type model struct {
	bundle *bundle.Bundle
	config config
	text   *textTower
	image  *imageTower
	run    bundle.Runner
	files  []string // relative to the folder, sorted
	found  []bundle.Finding
	digest func() string

	unmeasured        string // the note of a text tower that could not be run, which says nothing about the files
	said              said
	read              []string // files besides the graphs, relative to the folder
	imageDir, textDir string   // folders in which each tower's files are searched, relative to the folder
}

// path returns the path of a file or folder whose name is relative to the folder of the bundle, with slashes.
func (m *model) path(name string) string {
	return filepath.Join(m.bundle.Dir, filepath.FromSlash(name))
}

// decided records a derived property and its source.
func (m *model) decided(what, format string, a ...any) {
	m.found = append(m.found, bundle.Finding{What: what, Value: fmt.Sprintf(format, a...)})
}

// nameOf accepts folders with a bundle.json that lists no weights, and folders without bundle.json whose file names
// have a known layout or that contain a folder for each tower.
func nameOf(dir string) (string, bool) {
	config, ok, err := readConfig(dir)
	if err != nil {
		return "", ok
	}

	if _, err := os.Stat(filepath.Join(dir, bundle.ManifestFile)); !ok && errors.Is(err, os.ErrNotExist) {
		if !looksExported(dir) {
			return "", len(pairs(dir)) > 0 // not a bundle; opening it explains how to name the towers
		}
		return filepath.Base(dir), true
	}

	return config.Name, ok
}

// open opens the parts that a specification names: one folder, or one for each tower.
func open(spec bundle.Spec, run bundle.Runner) (*bundle.Bundle, error) {
	model := &model{bundle: &bundle.Bundle{Dir: spec.Folder}, run: run}
	var err error
	if spec.Folder == "" {
		model.bundle.Dir, model.imageDir, model.textDir, err = common(spec.Image, spec.Text)
		model.config.Name = filepath.Base(spec.Image)
		for _, t := range []struct{ dir, file *string }{{&model.imageDir, &model.config.Image.File},
			{&model.textDir, &model.config.Text.File}} {
			if strings.HasSuffix(*t.dir, ".onnx") {
				*t.dir, *t.file = path.Dir(*t.dir), *t.dir
			}
		}
	} else {
		model.config, _, err = readConfig(spec.Folder)
	}

	if err != nil {
		return nil, err
	}

	config, backbone := &model.config, model.bundle
	config.Name = cmp.Or(spec.Name, config.Name, filepath.Base(spec.Folder))
	config.Variant = cmp.Or(spec.Variant, config.Variant)
	if spec.LogitScale != 0 {
		config.LogitScale, config.LogScale = spec.LogitScale, nil
	}

	config.LogitBias = cmp.Or(spec.LogitBias, config.LogitBias)
	if err := bundle.CheckName(config.Name); err != nil {
		return nil, fmt.Errorf("%s: %w", backbone.Dir, err)
	}

	backbone.Name, backbone.Architecture, backbone.Source = config.Name, cmp.Or(config.Architecture,
		"ONNX"), cmp.Or(config.Source, "exported towers")
	backbone.Notes = config.Notes
	if err := model.open(); err != nil {
		err = fmt.Errorf("bundle %s: %w", backbone.Name, err)
		if _, missing := os.Stat(filepath.Join(backbone.Dir, bundle.ManifestFile)); spec.Folder != "" &&
			missing != nil {
			err = fmt.Errorf("%w; %s has no %s, and is read as exported models: restore that file if promptfed "+
				"convert made the folder", err, backbone.Dir, bundle.ManifestFile)
		}
		return nil, err
	}

	err = model.recognise(run)
	if err == nil {
		err = model.proveBoxes(run)
	}

	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", backbone.Name, err)
	}

	model.openBatches(run)
	backbone.Towers = model
	return backbone, nil
}

// common returns the innermost folder that contains two paths, and their paths in it, with slashes.
func common(first, second string) (dir, inA, inB string, err error) {
	if first, err = filepath.Abs(first); err != nil {
		return "", "", "", err
	}

	if second, err = filepath.Abs(second); err != nil {
		return "", "", "", err
	}

	for dir = first; ; dir = filepath.Dir(dir) {
		inA, _ = filepath.Rel(dir, first)
		if inB, err = filepath.Rel(dir, second); err == nil && filepath.IsLocal(inB) {
			return dir, filepath.ToSlash(inA), filepath.ToSlash(inB), nil
		}
		if dir == filepath.Dir(dir) {
			return "", "", "", fmt.Errorf("no folder holds both %s and %s", first, second)
		}
	}
}

func (m *model) open() error {
	if err := m.verify(false); err != nil {
		return err
	}

	imageFile, textFile, err := m.towerFiles()
	if err != nil {
		return err
	}

	open := map[string]*graph.File{}
	for _, name := range []string{imageFile, textFile} {
		if open[name] != nil {
			continue
		}

		file, err := graph.OpenFile(m.bundle.Dir, name)
		if _, missing := os.Stat(m.path(name)); err != nil &&
			errors.Is(missing, os.ErrNotExist) {
			return fmt.Errorf("%s is missing from %s: put it there, or name the file in %s as \"model\" (both "+
				"towers), \"image\": {\"file\": ...} or \"text\": {\"file\": ...}",
				name, m.bundle.Dir, bundle.ManifestFile)
		}

		if err != nil {
			return err
		}

		open[name] = file
	}

	if m.image, err = newImageTower(m.bundle.Dir, open[imageFile], imageFile, m.config.Image); err != nil {
		return fmt.Errorf("%s: %w", imageFile, err)
	}

	if err := m.describe(); err != nil {
		return err
	}

	if m.text, err = newTextTower(m.bundle.Dir, open[textFile], textFile, m.config.Text); err != nil {
		return fmt.Errorf("%s: %w", textFile, err)
	}

	if err := m.finish(); err != nil {
		return err
	}

	return m.list()
}

// towerFiles returns the ONNX files of both towers: those that bundle.json names, or those of a known layout.
func (m *model) towerFiles() (image, text string, err error) {
	image, text = cmp.Or(m.config.Image.File, m.config.Model), cmp.Or(m.config.Text.File, m.config.Model)
	switch {
	case image != "" && text != "":
		return image, text, nil
	case m.imageDir != "":
		for _, tower := range []struct {
			dir   string
			image bool
			to    *string
		}{{m.imageDir, true, &image}, {m.textDir, false, &text}} {
			if *tower.to != "" {
				continue
			}
			e, origin, err := findTower(m.path(tower.dir), tower.image,
				m.config.Variant)
			if err != nil {
				return "", "", err
			}
			*tower.to = path.Join(tower.dir, e.file)
			m.decided("file", "%s, a name of %s", *tower.to, origin)
		}
		return image, text, nil
	}

	found, err := findTowers(m.bundle.Dir, m.config.Variant)
	if err != nil {
		return "", "", err
	}

	names := found.image.file
	if found.text != found.image {
		names += " and " + found.text.file
	}

	m.decided("layout", "%s: %s", found.origin, names)
	if len(found.others) > 0 {
		m.decided("other variants", "%s (choose with variant)", files(found.others))
	}

	return cmp.Or(image, found.image.file), cmp.Or(text, found.text.file), nil
}

// describe sets the fields that do not depend on the text tower.
func (m *model) describe() error {
	scale, bias, err := m.findScale()
	if err != nil {
		return err
	}

	p, err := m.preprocessing()
	if err != nil {
		return err
	}

	b := m.bundle
	b.LogitScale, b.LogitBias, b.Preprocess = scale, bias, p
	b.RoundsImage = m.image.box == nil && (m.image.rounded || rounds(m.image.output) != nil)
	b.Vision = clip.VisionArch{Image: m.image.size, EmbedDim: m.image.embedDim}
	return nil
}

// finish finds the token embedding, the width and the context length, and checks that the towers belong together.
func (m *model) finish() error {
	config, backbone, textTower := m.config, m.bundle, m.text
	tokens, err := m.tokenizer()
	if err != nil {
		return err
	}

	if err := m.findTable(tokens.VocabSize()); err != nil {
		return err
	}

	if rows := textTower.table.rows; tokens.VocabSize() > rows {
		return fmt.Errorf("the tokenizer has %d tokens, the token embedding of %s %d rows: they do not belong "+
			"together; put the vocabulary of this model beside the text tower, or name it as \"tokenizer\" in %s",
			tokens.VocabSize(), textTower.name, rows, bundle.ManifestFile)
	}

	textTower.sos, textTower.eotID, textTower.pad = tokens.SOS(), tokens.EOT(), tokens.Pad()
	filler, err := tokens.Encode("x")
	if err != nil || len(filler) == 0 {
		filler = []int{1}
	}

	textTower.filler = filler[0]
	if err := textTower.measure(cmp.Or(config.Context, m.said.context), config.Context != 0); err != nil {
		return fmt.Errorf("%s: %w", textTower.name, err)
	}

	for _, c := range []struct {
		key       string
		said, got int
	}{{"text_width", config.TextWidth, textTower.table.width}, {"embed_dim", config.EmbedDim,
		textTower.embedDim}, {"context_length", config.Context,
		textTower.context}} {
		if c.said != 0 && c.said != c.got {
			return fmt.Errorf("%s says %s %d, %s has %d", bundle.ManifestFile, c.key, c.said, textTower.name, c.got)
		}
	}

	if textTower.embedDim != m.image.embedDim {
		return fmt.Errorf("%s has features of size %d (output %s), %s of size %d (output %s): export both with "+
			"their projections to the common space",
			m.image.name, m.image.embedDim, m.image.output.Name(), textTower.name, textTower.embedDim,
			textTower.output.Name())
	}

	backbone.TokenRows = textTower.table.rows
	backbone.Text = clip.TextArch{Width: textTower.table.width, Context: textTower.context,
		EmbedDim: textTower.embedDim, Pad: textTower.pad}
	return nil
}
