// Package exported is the bundle of a CLIP that another tool wrote as ONNX files: a folder with one or two of them, a
// vocabulary and what says how images are prepared. What a bundle.json leaves out is found in the graphs; what it says
// is checked against them (docs/exported.md).
package exported

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/runtime/graph"
)

// Form is what registers the package (bundle.Use).
var Form = bundle.Form{NameOf: nameOf, Open: open}

// model is an open bundle: both towers, and what was found out of them.
type model struct {
	b      *bundle.Bundle
	config config
	text   *textTower
	image  *imageTower
	files  []string // relative to the folder, sorted
	digest func() string
}

// preprocessorFile is where Hugging Face's exporter writes how images are prepared.
const preprocessorFile = "preprocessor_config.json"

func nameOf(dir string) (string, bool) {
	c, ok, err := readConfig(dir)
	if err != nil {
		return "", ok
	}
	return c.Name, ok
}

func open(dir string) (*bundle.Bundle, error) {
	c, _, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	b := &bundle.Bundle{Name: c.Name, Architecture: cmp.Or(c.Architecture, "ONNX"),
		Source: cmp.Or(c.Source, "exported towers"), Vocabulary: c.TokenizerFile, Notes: c.Notes, Dir: dir}
	m := &model{b: b, config: c}
	if err := m.open(); err != nil {
		return nil, fmt.Errorf("bundle %s: %w", b.Name, err)
	}
	b.Towers = m
	return b, nil
}

func (m *model) open() error {
	imageFile, textFile := m.fileOf(m.config.Image.File, "image.onnx"), m.fileOf(m.config.Text.File, "text.onnx")
	open := map[string]*graph.File{}
	for _, name := range []string{imageFile, textFile} {
		if open[name] != nil {
			continue
		}
		f, err := graph.OpenFile(m.b.Dir, name)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is missing from %s: put it there, or name the file in %s as \"model\" (both "+
				"towers), \"image\": {\"file\": ...} or \"text\": {\"file\": ...}",
				name, m.b.Dir, bundle.ManifestFile)
		}
		if err != nil {
			return err
		}
		open[name] = f
	}
	var err error
	if m.image, err = newImageTower(open[imageFile], imageFile, m.config.Image, m.config.ImageSize); err != nil {
		return fmt.Errorf("%s: %w", imageFile, err)
	}
	if err := m.describe(); err != nil {
		return err
	}
	if m.text, err = newTextTower(m.b.Dir, open[textFile], textFile, m.config.Text); err != nil {
		return fmt.Errorf("%s: %w", textFile, err)
	}
	if err := m.finish(); err != nil {
		return err
	}
	return m.list()
}

// fileOf is the ONNX file of a tower: the one named for it, the one named for both, or what is there.
func (m *model) fileOf(own, usual string) string {
	there := func(name string) bool {
		st, err := os.Stat(filepath.Join(m.b.Dir, filepath.FromSlash(name)))
		return err == nil && st.Mode().IsRegular()
	}
	switch {
	case own != "":
		return own
	case m.config.Model != "":
		return m.config.Model
	}
	for _, name := range []string{usual, "onnx/" + usual, "model.onnx", "onnx/model.onnx"} {
		if there(name) {
			return name
		}
	}
	return usual
}

// describe fills in what does not depend on the text tower.
func (m *model) describe() error {
	h, b := m.config, m.b
	scale := h.LogitScale
	switch {
	case scale == 0 && h.LogScale != nil:
		scale = math.Exp(*h.LogScale)
	case scale == 0:
		scale = 100
		b.Notes = append(b.Notes, "logit_scale is not given: 100, as in OpenAI's models")
	}
	if !(scale > 0) || math.IsInf(scale, 0) {
		return fmt.Errorf("logit_scale %g must be positive and finite", scale)
	}
	if h.LogScale != nil && math.Abs(math.Log(scale)-*h.LogScale) > 1e-4 {
		return fmt.Errorf("logit_scale %g is not the exponential of logit_scale_log %g: leave one of them out", scale,
			*h.LogScale)
	}
	p, found, err := m.preprocessor()
	if err != nil {
		return err
	}
	if h.Preprocess != nil {
		dec := json.NewDecoder(bytes.NewReader(h.Preprocess))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&p); err != nil {
			return fmt.Errorf("preprocess: %w; the keys are size, resize, crop, mean, std", err)
		}
	} else if !found {
		b.Notes = append(b.Notes, "preprocess is not given: that of OpenAI's models")
	}
	if err := p.Validate(); err != nil {
		return err
	}
	if p.Size != m.image.size {
		return fmt.Errorf("preprocess: images of %d pixels for a tower that takes %d", p.Size, m.image.size)
	}
	b.LogitScale, b.Preprocess = scale, p
	b.Vision = clip.VisionArch{Image: m.image.size, EmbedDim: m.image.embedDim}
	return nil
}

// preprocessor is what a preprocessor_config.json in the folder says, or what OpenAI's models take.
func (m *model) preprocessor() (p preprocess.Preprocess, found bool, err error) {
	f, err := os.Open(filepath.Join(m.b.Dir, preprocessorFile))
	if errors.Is(err, os.ErrNotExist) {
		return preprocess.CLIP(m.image.size), false, nil
	}
	if err != nil {
		return p, false, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<24))
	if err != nil {
		return p, false, err
	}
	p, err = preprocess.FromHF(data)
	return p, true, err
}

// finish finds the token embedding, the width and the context, and checks that the towers belong together.
func (m *model) finish() error {
	h, b, t := m.config, m.b, m.text
	tokens, err := m.tokenizer()
	if err != nil {
		return err
	}
	if err := t.findTable(m.b.Dir, h.Tokens, tokens.VocabSize(), h.TextWidth); err != nil {
		return err
	}
	if rows := t.table.rows; tokens.VocabSize() > rows {
		return fmt.Errorf("the tokenizer has %d tokens, the token embedding of %s %d rows: they do not belong "+
			"together", tokens.VocabSize(), t.name, rows)
	}
	t.sos, t.eotID = tokens.SOS(), tokens.EOT()
	filler, err := tokens.Encode("x")
	if err != nil || len(filler) == 0 {
		filler = []int{1}
	}
	t.filler = filler[0]
	if err := t.measure(h.Context); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	for _, c := range []struct {
		key       string
		said, got int
	}{{"text_width", h.TextWidth, t.table.width}, {"embed_dim", h.EmbedDim, t.embedDim}, {"context_length", h.Context,
		t.context}} {
		if c.said != 0 && c.said != c.got {
			return fmt.Errorf("%s says %s %d, %s has %d", bundle.ManifestFile, c.key, c.said, t.name, c.got)
		}
	}
	if t.embedDim != m.image.embedDim {
		return fmt.Errorf("%s gives features of size %d (output %s), %s of size %d (output %s): export both with "+
			"their projections into the space that both share",
			m.image.name, m.image.embedDim, m.image.output.Name(), t.name, t.embedDim, t.output.Name())
	}
	b.TokenRows = t.table.rows
	b.Text = clip.TextArch{Width: t.table.width, Context: t.context, EmbedDim: t.embedDim}
	b.Notes = append(b.Notes, t.notes...)
	return nil
}
