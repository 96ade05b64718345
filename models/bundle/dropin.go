package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/runtime/graph"
)

// handWritten is bundle.json of towers that other tools exported (docs/dropin.md): all keys are optional. What it
// leaves out is found out from the graphs; what it says is checked against them.
type handWritten struct {
	Version       int             `json:"bundle"`
	Name          string          `json:"name"` // of the folder where it is not given
	Architecture  string          `json:"architecture"`
	Source        string          `json:"source"`
	TextWidth     int             `json:"text_width"`
	JointDim      int             `json:"joint_dim"`
	ImageSize     int             `json:"image_size"`
	Context       int             `json:"context_length"`
	LogitScale    float64         `json:"logit_scale"`
	LogScale      *float64        `json:"logit_scale_log"`
	Preprocess    json.RawMessage `json:"preprocess"`
	TokenizerFile string          `json:"tokenizer"`
	Model         string          `json:"model"` // one ONNX file with both towers
	Image         imagePorts      `json:"image"`
	Text          textPorts       `json:"text"`
	Tokens        *tokenTable     `json:"token_embedding"`
	Files         map[string]File `json:"files"`
	Notes         []string        `json:"notes"`
}

// imagePorts names what image.onnx has.
type imagePorts struct {
	File    string `json:"file"`
	Input   string `json:"input"`   // pixels [B,3,S,S]
	Output  string `json:"output"`  // features [B,D]
	Patches string `json:"patches"` // features of patches [B,M,D] in the same space, where there are some
}

// textPorts names what text.onnx has.
type textPorts struct {
	File       string `json:"file"`
	Embeddings string `json:"embeddings"`     // [C,L,w]
	IDs        string `json:"ids"`            // [C,L]
	EOT        string `json:"eot"`            // [C]
	Mask       string `json:"attention_mask"` // [C,L]
	Positions  string `json:"position_ids"`   // [C,L]
	Output     string `json:"output"`         // features [C,D]
	Causal     *bool  `json:"causal"`         // whether tokens behind EOT change nothing
}

// dropIn is what a bundle of towers of other tools has in place of weights.
type dropIn struct {
	hand   handWritten
	text   *textTower
	image  *imageTower
	files  []string // relative to the folder, sorted
	digest func() string
}

// preprocessorFile is where Hugging Face's exporter writes how images are prepared.
const preprocessorFile = "preprocessor_config.json"

// isHandWritten tells whether bundle.json lists no weights, as what convert writes always does.
func isHandWritten(data []byte) bool {
	var keys map[string]json.RawMessage
	if json.Unmarshal(data, &keys) != nil {
		return false
	}
	_, weights := keys["weights"]
	_, vision := keys["vision"]
	return !weights && !vision
}

func parseHandWritten(data []byte) (handWritten, error) {
	var h handWritten
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return h, fmt.Errorf("not the JSON of a bundle: %w; without weights the keys are name, architecture, source, "+
			"text_width, joint_dim, image_size, context_length, logit_scale, preprocess, tokenizer, model, image "+
			"{file, input, output, patches}, text {file, embeddings, ids, eot, attention_mask, position_ids, output, "+
			"causal}, token_embedding {file, tensor}, files, notes", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return h, errors.New("not the JSON of a bundle: text follows it")
	}
	if h.Version != 0 && h.Version != manifestVersion {
		return h, fmt.Errorf("bundle version %d, this program reads version %d", h.Version, manifestVersion)
	}
	for _, n := range []int{h.TextWidth, h.JointDim, h.ImageSize, h.Context} {
		if n < 0 || n > maxExtent {
			return h, fmt.Errorf("a size of %d must be from 1 to %d, or left out", n, maxExtent)
		}
	}
	for _, f := range []string{h.Model, h.Image.File, h.Text.File} {
		if f != "" && (!filepath.IsLocal(filepath.FromSlash(f)) || strings.ContainsAny(f, "\\\x00")) {
			return h, fmt.Errorf("%q is not the path of a file inside the bundle", f)
		}
	}
	return h, nil
}

// openDropIn opens a folder whose bundle.json a person wrote.
func openDropIn(dir string, data []byte) (*Bundle, error) {
	h, err := parseHandWritten(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ManifestFile), err)
	}
	if h.Name == "" {
		h.Name = filepath.Base(dir)
	}
	if err := checkName(h.Name); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ManifestFile), err)
	}
	b := newBundle(dir, Manifest{Version: manifestVersion, Name: h.Name, Architecture: orElse(h.Architecture, "ONNX"),
		Source: orElse(h.Source, "exported towers"), TokenizerFile: h.TokenizerFile, Notes: h.Notes, Files: h.Files})
	b.drop = &dropIn{hand: h}
	if err := b.drop.open(b); err != nil {
		return nil, fmt.Errorf("bundle %s: %w", b.Name, err)
	}
	return b, nil
}

func orElse(s, missing string) string {
	if s == "" {
		return missing
	}
	return s
}

func (d *dropIn) open(b *Bundle) error {
	imageFile, textFile := d.fileOf(b.dir, d.hand.Image.File, ImageFile), d.fileOf(b.dir, d.hand.Text.File, TextFile)
	open := map[string]*graph.File{}
	for _, name := range []string{imageFile, textFile} {
		if open[name] != nil {
			continue
		}
		f, err := graph.OpenFile(b.dir, name)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is missing from %s: put it there, or name the file in %s as \"model\" (both "+
				"towers), \"image\": {\"file\": ...} or \"text\": {\"file\": ...}",
				name, b.dir, ManifestFile)
		}
		if err != nil {
			return err
		}
		open[name] = f
	}
	var err error
	if d.image, err = newImageTower(open[imageFile], imageFile, d.hand.Image, d.hand.ImageSize); err != nil {
		return fmt.Errorf("%s: %w", imageFile, err)
	}
	if err := d.describe(b); err != nil {
		return err
	}
	if d.text, err = newTextTower(b.dir, open[textFile], textFile, d.hand.Text); err != nil {
		return fmt.Errorf("%s: %w", textFile, err)
	}
	if err := d.finish(b); err != nil {
		return err
	}
	return d.list(b)
}

// fileOf is the ONNX file of a tower: the one named for it, the one named for both, or what is there.
func (d *dropIn) fileOf(dir, own, usual string) string {
	there := func(name string) bool {
		st, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		return err == nil && st.Mode().IsRegular()
	}
	switch {
	case own != "":
		return own
	case d.hand.Model != "":
		return d.hand.Model
	}
	for _, name := range []string{usual, "onnx/" + usual, "model.onnx", "onnx/model.onnx"} {
		if there(name) {
			return name
		}
	}
	return usual
}

// describe fills in what does not depend on the text tower.
func (d *dropIn) describe(b *Bundle) error {
	h, m := d.hand, &b.manifest
	scale := h.LogitScale
	switch {
	case scale == 0 && h.LogScale != nil:
		scale = math.Exp(*h.LogScale)
	case scale == 0:
		scale = 100
		m.Notes = append(m.Notes, "logit_scale is not given: 100, as in OpenAI's models")
	}
	if !(scale > 0) || math.IsInf(scale, 0) {
		return fmt.Errorf("logit_scale %g must be positive and finite", scale)
	}
	if h.LogScale != nil && math.Abs(math.Log(scale)-*h.LogScale) > 1e-4 {
		return fmt.Errorf("logit_scale %g is not the exponential of logit_scale_log %g: leave one of them out", scale,
			*h.LogScale)
	}
	p, found, err := d.preprocessor(b.dir)
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
		m.Notes = append(m.Notes, "preprocess is not given: that of OpenAI's models")
	}
	if err := p.Validate(); err != nil {
		return err
	}
	if p.Size != d.image.size {
		return fmt.Errorf("preprocess: images of %d pixels for a tower that takes %d", p.Size, d.image.size)
	}
	m.LogitScale, m.LogScale, m.Preprocess, m.ImageSize = scale, math.Log(scale), p, d.image.size
	m.Vision = clip.VisionArch{Image: d.image.size, Joint: d.image.joint}
	b.LogitScale, b.Preprocess, b.Vision = scale, p, m.Vision
	return nil
}

// preprocessor is what a preprocessor_config.json in the folder says, or what OpenAI's models take.
func (d *dropIn) preprocessor(dir string) (p preprocess.Preprocess, found bool, err error) {
	f, err := os.Open(filepath.Join(dir, preprocessorFile))
	if errors.Is(err, os.ErrNotExist) {
		return preprocess.CLIP(d.image.size), false, nil
	}
	if err != nil {
		return p, false, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return p, false, err
	}
	p, err = preprocess.FromHF(data)
	return p, true, err
}

// finish finds the token embedding, the width and the context, and checks that the towers belong together.
func (d *dropIn) finish(b *Bundle) error {
	h, m, t := d.hand, &b.manifest, d.text
	tokens, err := b.dropTokenizer()
	if err != nil {
		return err
	}
	if err := t.findTable(b.dir, h.Tokens, tokens.VocabSize(), h.TextWidth); err != nil {
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
	}{{"text_width", h.TextWidth, t.table.width}, {"joint_dim", h.JointDim, t.joint}, {"context_length", h.Context,
		t.context}} {
		if c.said != 0 && c.said != c.got {
			return fmt.Errorf("%s says %s %d, %s has %d", ManifestFile, c.key, c.said, t.name, c.got)
		}
	}
	if t.joint != d.image.joint {
		return fmt.Errorf("%s gives features of size %d (output %s), %s of size %d (output %s): export both with "+
			"their projections into the joint space",
			d.image.name, d.image.joint, d.image.output.Name(), t.name, t.joint, t.output.Name())
	}
	m.TextWidth, m.JointDim, m.Context = t.table.width, t.joint, t.context
	m.Tokens = Place{File: t.table.file, Offset: t.table.offset, DType: t.table.dtype, Shape: []int{t.table.rows,
		t.table.width}}
	m.Text = clip.TextArch{Width: t.table.width, Context: t.context, Joint: t.joint}
	m.Notes = append(m.Notes, t.notes...)
	b.Text, b.Notes = m.Text, m.Notes
	return nil
}
