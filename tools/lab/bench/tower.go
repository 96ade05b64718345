package bench

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"promptfed/federation/method"
	"promptfed/models/bundle/converted"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

const (
	seed      = 1
	promptStd = 0.02
)

// tower is a text tower for the engine with its weights in a file. It has an image tower if vision is set.
type tower struct {
	name    string
	text    clip.Text
	vision  clip.Vision
	weights clip.Weights
	dir     string  // folder of the weights
	scale   float64 // exp(logit_scale)
	sos     int
	tokens  func(classes []string) ([][]int, error) // tokens [name . EOT] of each class
	embed   func(ids []int) ([]float32, error)
	plain   bool // use the plain form over the whole context
}

// openTower opens the tower to measure. remove deletes the tower's temporary files.
func openTower(o Options) (t tower, remove func() error, err error) {
	if b := o.Backbone; b != nil {
		words, err := b.Tokenizer()
		if err != nil {
			return t, nil, err
		}
		weights, ok := converted.Weights(b)
		if !ok {
			return t, nil, fmt.Errorf("bundle %s holds exported towers, of which the plain form is not known: take "+
				"one that promptfed convert made", b.Name)
		}
		return tower{name: b.Name, text: clip.Text{TextArch: b.Text}, weights: weights, dir: b.WeightsDir(),
				scale: b.LogitScale, sos: words.SOS(), tokens: b.ClassTokens, embed: b.Embed},
			func() error { return nil }, nil
	}
	dir, remove, err := scratch("200 MB")
	if err != nil {
		return t, nil, err
	}
	if t, err = randomTower("random", o.arch, clip.VisionArch{}, dir); err != nil {
		err = errors.Join(err, remove())
	}
	return t, remove, err
}

// scratch makes a temporary folder for random weights.
func scratch(room string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp("", "promptfed-bench-"); err != nil {
		err = fmt.Errorf("a folder for random weights: %w; set TMPDIR to a folder with room for %s", err, room)
	}
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// randomTower draws initial weights as CLIP's training does (Radford et al. 2021, initialize_parameters of the
// published code) and writes them to dir. It draws an image tower only if v has an architecture.
func randomTower(name string, a clip.TextArch, v clip.VisionArch, dir string) (tower, error) {
	w := stored{}
	err := w.draw(dir, "text.safetensors", a.Shapes(), a.Width, a.Layers)
	if err == nil && v.Width > 0 {
		err = w.draw(dir, "image.safetensors", v.Shapes(), v.Width, v.Layers)
	}
	if err != nil {
		return tower{}, fmt.Errorf("random weights: %w; set TMPDIR to a folder with room for 600 MB", err)
	}
	embed := func(ids []int) ([]float32, error) {
		var rows []float32
		for _, id := range ids {
			rows = append(rows, method.Draw(seed, 0, "token "+strconv.Itoa(id), []int{a.Width}, 0.02).Data...)
		}
		return rows, nil
	}
	return tower{name: name, text: clip.Text{TextArch: a}, vision: clip.Vision{VisionArch: v}, weights: w, dir: dir,
		scale: 100, sos: clip.StartID, tokens: named, embed: embed}, nil
}

// start returns the mean and the standard deviation of a tensor's initial values, for a tower of the given width and
// number of blocks. A ResNet has no blocks.
func start(name string, shape []int, width, layers int) (mean float32, std float64) {
	w := 1 / math.Sqrt(float64(width))
	switch {
	case len(shape) == 4: // He et al. 2015, so that activations keep their size
		return 0, math.Sqrt(2 / float64(tensor.Size(shape[1:])))
	case strings.HasSuffix(name, "_proj.weight") && layers > 0:
		return 0, w / math.Sqrt(2*float64(layers))
	case strings.HasSuffix(name, "c_fc.weight"):
		return 0, w / math.Sqrt2
	case strings.HasSuffix(name, "bias"), name == "positional_embedding":
		return 0, 0.01
	case len(shape) == 2, strings.HasSuffix(name, "_embedding"):
		return 0, w
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

// draw writes random weights of the given shapes into a file of dir.
func (s stored) draw(dir, file string, shapes map[string][]int, width, layers int) error {
	m := tensor.Map{}
	for name, shape := range shapes {
		mean, std := start(name, shape, width, layers)
		m[name] = method.Draw(seed, 0, name, shape, std)
		for i := range m[name].Data {
			m[name].Data[i] += mean
		}
	}
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

// suffixes returns the constant parts of class prompts.
func (t tower) suffixes(classes []string) (*clip.Suffixes, error) {
	ids, err := t.tokens(classes)
	if err != nil {
		return nil, err
	}
	return clip.NewSuffixes(classes, ids, t.sos, t.text.Width, t.embed)
}

// Name returns a name that distinguishes the plain form from the fast form.
func (t tower) Name() string {
	if t.plain {
		return t.name + ", plain form"
	}
	return t.name
}

// Task returns the client specification for which the engine builds a method.
func (t tower) Task() method.ClientSpec {
	task := method.ClientSpec{Width: t.text.Width, Dim: t.text.EmbedDim, Scale: t.scale}
	if t.vision.Width > 0 {
		task.Patches, task.ImageSize = t.vision.Patches(), t.vision.Image
		task.VisionWidth, task.VisionLayers = t.vision.Width, t.vision.Layers
	}
	return task
}

// WeightsDir returns the folder of the weights.
func (t tower) WeightsDir() string { return t.dir }

// Text builds the tower over all classes and prompts.
func (t tower) Text(g *graph.Graph, classes []string, prompts []method.Prompt) ([]graph.Node, error) {
	s, err := t.suffixes(classes)
	if err != nil {
		return nil, err
	}
	ps := make([]clip.Prompt, len(prompts))
	for i, p := range prompts {
		ps[i] = clip.Prompt{Ctx: p.Ctx, ReadOffset: p.ReadOffset, Class: clip.Position(p.Position)}
	}
	if !t.plain {
		return t.text.Prompts(g, t.weights, s, ps), g.Err()
	}
	out := make([]graph.Node, len(ps))
	for i, p := range ps {
		if err := s.CheckLength(t.text.TextArch, p.Ctx.Dim(0), p.ReadOffset); err != nil {
			return nil, err
		}
		emb, read, err := t.sentences(g, s, p)
		if err != nil {
			return nil, err
		}
		out[i] = t.text.Plain(t.weights, emb, read)
	}
	return out, g.Err()
}

// sentences puts a prompt before every class as public code does. It returns embeddings [C,Context,width], padded after
// EOT, and the position [C] of EOT.
func (t tower) sentences(g *graph.Graph, s *clip.Suffixes, p clip.Prompt) (emb, read graph.Node, err error) {
	n, w, c := p.Ctx.Dim(0), t.text.Width, len(s.IDs)
	behind := t.text.Context - 1 - n
	start, err := t.embed([]int{t.sos})
	if err != nil {
		return emb, read, err
	}
	first, rest := tensor.New(c, 1, w), tensor.New(c, behind, w)
	last := make([]int, c)
	for i, ids := range s.IDs {
		copy(first.Row(i).Data, start)
		padded := append([]int{}, ids...)
		for len(padded) < behind {
			padded = append(padded, clip.PadID)
		}
		rows, err := t.embed(padded)
		if err != nil {
			return emb, read, err
		}
		copy(rest.Row(i).Data, rows)
		last[i] = n + len(ids) + p.ReadOffset
	}
	emb = graph.Concat(1, g.Const(first), p.Ctx.Reshape(1, n, w).Expand(c, n, w), g.Const(rest))
	return emb, g.Ints(last...), nil
}

// StepBytesForImage is unused, because no measured method has a prompt per image.
func (t tower) StepBytesForImage([]string, int) (int, error) { return 0, nil }

// Words is unused, because no measured method starts from words.
func (t tower) Words(string) (*tensor.Tensor, error) {
	return nil, fmt.Errorf("bench: the measured methods begin with no words")
}

// Vision builds the image tower if the tower has one.
func (t tower) Vision(g *graph.Graph, pixels graph.Node, p method.VisionPrompts) (graph.Node, error) {
	if t.vision.Width == 0 {
		return graph.Node{}, fmt.Errorf("backbone %s has no image tower here", t.name)
	}
	n, _ := t.vision.PromptedFeatures(g, t.weights, pixels, p)
	return n, g.Err()
}

// Sentences is unused, because no measured method uses hand-written prompts.
func (t tower) Sentences(*graph.Graph, []string) (graph.Node, error) {
	return graph.Node{}, fmt.Errorf("bench: the measured methods have no hand-written prompts")
}
