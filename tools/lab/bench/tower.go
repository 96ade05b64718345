package bench

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/clip"
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

const seed = 1

// tower is a backbone of a federation with the weights of its text tower.
type tower struct {
	experiment.Backbone
	dir     string // folder of the weights
	weights clip.Weights
	sos     int
	// tokens returns the tokens [name . EOT] of each class; nil for the tokens of the bundle's vocabulary
	tokens func(classes []string) ([][]int, error)
	plain  bool // use the plain form over the whole context
}

// tower opens the tower to measure.
func (m *Measurement) tower() (*tower, error) {
	model := m.Backbone
	if model == nil {
		return randomTower("random", m.arch, clip.VisionArch{}, m.dir)
	}

	words, err := model.Tokenizer()
	if err != nil {
		return nil, err
	}

	weights, ok := converted.Weights(model)
	if !ok {
		return nil, fmt.Errorf("bundle %s holds exported towers, of which the plain form is not known: take one that "+
			"promptfed convert made", model.Name)
	}

	return &tower{Backbone: experiment.Backbone{Bundle: model}, dir: model.WeightsDir(), weights: weights,
		sos: words.SOS(), tokens: model.ClassTokens}, nil
}

// randomTower returns a tower with the classes of package clip and with random weights, which it writes to dir.
func randomTower(name string, a clip.TextArch, v clip.VisionArch, dir string) (*tower, error) {
	words, err := bundle.Find("tiny-vit-b16")
	if err != nil {
		return nil, err
	}

	t, err := fullSize(name, a, v, words, dir)
	if err == nil {
		t.tokens = named
	}

	return t, err
}

// fullSize draws initial weights and writes them to dir. It draws only towers that have an architecture. The tokenizer
// of words splits texts into tokens, and the token numbers select rows of a random table.
func fullSize(name string, arch clip.TextArch, vision clip.VisionArch, words *bundle.Bundle, dir string) (*tower,
	error) {
	weights := stored{}
	err := weights.draw(dir, "text.safetensors", arch.Shapes(), arch.Width, arch.Layers)
	if err == nil && vision.Width > 0 {
		err = weights.draw(dir, "image.safetensors", vision.Shapes(), vision.Width, vision.Layers)
	}

	if err != nil {
		return nil, fmt.Errorf("random weights: %w; set TMPDIR to a folder with room for 2 GB", err)
	}

	b := &bundle.Bundle{Name: name, Text: arch, Vision: vision, LogitScale: 100, Dir: words.Dir,
		Vocabulary: words.Vocabulary, Texts: words.Texts, TokenRows: words.TokenRows,
		Towers: random{words.Towers, clip.Text{TextArch: arch}, clip.Vision{VisionArch: vision}, weights}}

	b.Preprocess.Size = cmp.Or(vision.Image, 224)
	return &tower{Backbone: experiment.Backbone{Bundle: b}, dir: dir, weights: weights, sos: clip.StartID}, nil
}

// random are towers with random weights. The rest of a bundle, which no measurement uses, is another bundle's.
type random struct {
	bundle.Towers
	text    clip.Text
	vision  clip.Vision
	weights stored
}

func (r random) Image(g *graph.Graph, pixels graph.Node, p clip.VisionPrompts) (image, patches graph.Node, err error) {
	if r.vision.Width == 0 {
		return image, patches, fmt.Errorf("it has no image tower here")
	}
	image, patches = r.vision.PromptedFeatures(g, r.weights, pixels, p)
	return image, patches, g.Err()
}

func (r random) ClassFeatures(g *graph.Graph, s *clip.Suffixes, prompts []clip.Prompt) ([]graph.Node, error) {
	return r.text.Prompts(g, r.weights, s, prompts), nil
}

func (r random) TextFeatures(g *graph.Graph, ids [][]int) (graph.Node, error) {
	return r.text.Sequences(g, r.weights, ids, r.Embed), nil
}

func (r random) Embed(ids []int) (rows []float32, err error) {
	for _, id := range ids {
		rows = append(rows, method.Draw(seed, 0, "token "+strconv.Itoa(id), []int{r.text.Width}, 0.02).Data...)
	}
	return rows, nil
}

// Patches returns the patches per image. Without an image tower it returns the number of ViT-B/32 and RN50 at 224
// pixels.
func (r random) Patches() int {
	if r.vision.Width == 0 {
		return 49
	}
	return r.vision.Patches()
}

// Tokens returns the tokens per image, or 0 without an image tower.
func (r random) Tokens() int {
	if r.vision.Width == 0 {
		return 0
	}
	return r.vision.Tokens()
}

func (random) TakesPromptTokens() bool { return true }

func (random) Batch() int { return 0 }

// initial returns the mean and the standard deviation of a tensor's initial values, for a tower of the given width and
// number of blocks, as CLIP's training draws them (Radford et al. 2021, initialize_parameters of the published code). A
// ResNet has no blocks.
func initial(name string, shape []int, width, layers int) (mean float32, std float64) {
	deviation := 1 / math.Sqrt(float64(width))
	switch {
	case len(shape) == 4: // He et al. 2015, so that activations keep their size
		return 0, math.Sqrt(2 / float64(tensor.Size(shape[1:])))
	case strings.HasSuffix(name, "_proj.weight") && layers > 0:
		return 0, deviation / math.Sqrt(2*float64(layers))
	case strings.HasSuffix(name, "c_fc.weight"):
		return 0, deviation / math.Sqrt2
	case strings.HasSuffix(name, "bias"), name == "positional_embedding":
		return 0, 0.01
	case len(shape) == 2, strings.HasSuffix(name, "_embedding"):
		return 0, deviation
	}

	return 1, 0 // gains of layer norms
}

// named returns the tokens of class names that package clip knows.
func named(classes []string) ([][]int, error) {
	known := map[string][]int{}
	for _, s := range sets {
		for i, ids := range s.classes.Suffixes() {
			known[s.classes[i].Name] = ids
		}
	}

	out := make([][]int, len(classes))
	for c, name := range classes {
		if out[c] = known[name]; out[c] == nil {
			return nil, fmt.Errorf("class %q has no known tokens", name)
		}
	}

	return out, nil
}

// stored maps names of weights to their places in files.
type stored map[string]graph.External

// draw adds random weights of the given shapes to m.
func draw(m tensor.Map, shapes map[string][]int, width, layers int) {
	for name, shape := range shapes {
		mean, std := initial(name, shape, width, layers)
		m[name] = method.Draw(seed, 0, name, shape, std)
		for i := range m[name].Data {
			m[name].Data[i] += mean
		}
	}
}

// draw writes random weights of the given shapes into a file of dir, which it makes.
func (s stored) draw(dir, file string, shapes map[string][]int, width, layers int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	m := tensor.Map{}
	draw(m, shapes, width, layers)
	path := filepath.Join(dir, file)
	if err := safetensors.WriteFile(path, m, nil); err != nil {
		return err
	}

	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()

	for _, name := range f.Names() {
		i, err := f.Info(name)
		if err != nil {
			return err
		}
		s[name] = graph.External{File: file, Offset: i.Offset, Length: i.Length}
	}

	return nil
}

func (s stored) Has(name string) bool { _, ok := s[name]; return ok }

func (s stored) Node(g *graph.Graph, name string, shape ...int) graph.Node {
	at, ok := s[name]
	if !ok {
		return g.Fail("weight %s is missing", name)
	}
	return g.Weight(name, graph.Float, at, shape...)
}

// asPlain returns the tower in the plain form.
func (t *tower) asPlain() *tower {
	plain := *t
	plain.plain = true
	return &plain
}

// Name returns a name that distinguishes the plain form from the fast form.
func (t *tower) Name() string {
	if t.plain {
		return t.Bundle.Name + ", plain form"
	}
	return t.Bundle.Name
}

// WeightsDir returns the folder of the weights, which is not the one of the vocabulary.
func (t *tower) WeightsDir() string { return t.dir }

func (t *tower) text() clip.Text { return clip.Text{TextArch: t.Bundle.Text} }

// suffixes returns the constant parts of class prompts.
func (t *tower) suffixes(classes []string) (*clip.Suffixes, error) {
	ids, err := t.tokens(classes)
	if err != nil {
		return nil, err
	}
	return clip.NewSuffixes(classes, ids, clip.SpecialTokens{SOS: t.sos}, t.text().Width, t.Embed)
}

// StepBytes reckons with the tokens of Text.
func (t *tower) StepBytes(classes []string, prompt method.Prompt) (int, error) {
	if t.tokens == nil {
		return t.Backbone.StepBytes(classes, prompt)
	}

	s, err := t.suffixes(classes)
	if err != nil {
		return 0, err
	}

	return t.text().StepBytes(s, placed(prompt)), nil
}

func placed(p method.Prompt) clip.Prompt {
	return clip.Prompt{Ctx: p.Ctx, ReadOffset: p.ReadOffset, Class: clip.Position(p.Position)}
}

// Text builds the tower over all classes and prompts.
func (t *tower) Text(g *graph.Graph, classes []string, prompts []method.Prompt) ([]graph.Node, error) {
	if t.tokens == nil {
		return t.Backbone.Text(g, classes, prompts)
	}

	suffixes, err := t.suffixes(classes)
	if err != nil {
		return nil, err
	}

	ps := convert.Slice(prompts, placed)
	if !t.plain {
		return t.text().Prompts(g, t.weights, suffixes, ps), g.Err()
	}

	out := make([]graph.Node, len(ps))
	for i, p := range ps {
		if err := suffixes.CheckLength(t.text().TextArch, p.Ctx.Dim(0), p.ReadOffset); err != nil {
			return nil, err
		}
		emb, _, read := suffixes.Sequences(p, t.text().Context)
		out[i] = t.text().Plain(t.weights, emb, g.Ints(read...))
	}

	return out, g.Err()
}

// FullSize replaces the backbone of every client of an experiment by a full-size backbone whose weights lie in dir. It
// also replaces images and patches by random unit rows. Labels stay. Evaluation sets are removed.
func FullSize(exp *spec.Experiment, words *bundle.Bundle, dir string) error {
	tower, err := fullSize("random-vit-b16", clip.TextB, clip.VisionArch{}, words, dir)
	if err != nil {
		return err
	}

	drawn, task, patches := examples{}, tower.Task(), []string{method.PatchesInput}
	for _, client := range exp.Clients {
		client.Backbone = tower
		client.Train = drawn.of(task, client.ID, "train", client.Train.Labels(), patches)
		client.Test = drawn.of(task, client.ID, "test", client.Test.Labels(), patches)
	}

	if s := exp.Synthetic; s != nil {
		s.Backbone, s.Data = tower, drawn.of(task, -1, "synthetic", s.Data.Labels(), patches)
	}

	exp.EvaluationSets = nil
	return nil
}
