package exported

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/convert"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/ops"
	"promptfed/runtime/tensor"
)

// weights are constants of an exported graph under the names of clip.Weights, without the prefix.
type weights map[string]weight

type weight struct {
	node   graph.Node
	turned bool      // stored [in,out], requested [out,in]
	packed *graph.Op // the operator with the packed weight; node is then absent
}

func (w weights) put(name string, n graph.Node) {
	for is(n, "Identity") {
		n = n.Op().X(0)
	}
	w[name] = weight{node: n}
}

// in returns the weight in another graph.
func (c weight) in(g *graph.Graph) (graph.Node, error) {
	if c.packed == nil {
		list, err := graph.Inline(g, []graph.Node{c.node}, nil)
		return append(list, graph.Node{})[0], err
	}

	parts := slices.DeleteFunc(slices.Clone(c.packed.In[1:]), func(n graph.Node) bool { return !n.OK() })
	list, err := graph.Inline(g, parts, nil)
	if err != nil {
		return graph.Node{}, err
	}

	return ops.NBitsWeight(c.packed.Attrs, append([]graph.Node{{}}, list...))
}

// linear adds a linear layer with a bias.
func (w weights) linear(name string, l linear, in, out int) error {
	if l.in != in || l.out != out || !l.b.OK() {
		return fmt.Errorf("%s is a layer of %d to %d values, must be of %d to %d with a bias", name, l.in, l.out, in,
			out)
	}

	w.put(name+"weight", l.w)
	w.put(name+"bias", l.b)
	w[name+"weight"] = weight{w[name+"weight"].node, !l.rows, l.packed}
	return nil
}

// named implements clip.Weights with constants that stay in the export's files.
type named struct {
	prefix string
	weights
}

var _ clip.Weights = named{}

func (w named) Has(name string) bool {
	_, ok := w.weights[strings.TrimPrefix(name, w.prefix)]
	return ok
}

// Node returns the first rows of a table that has more rows than requested.
func (w named) Node(g *graph.Graph, name string, shape ...int) graph.Node {
	weight, ok := w.weights[strings.TrimPrefix(name, w.prefix)]
	if !ok {
		return g.Fail("weight %s was not found in the export", name)
	}

	node, err := weight.in(g)
	if err != nil {
		return g.Fail("weight %s: %w", name, err)
	}

	if node.DType() != graph.Float {
		node = node.Cast(graph.Float)
	}

	if weight.turned {
		node = node.Transpose(1, 0)
	}

	have, ok := node.Shape().Ints()
	switch {
	case ok && slices.Equal(have, shape):
		return node
	case !ok || tensor.Size(have) < tensor.Size(shape):
		return g.Fail("weight %s is %v in the export, the architecture needs %v", name, node.Shape(), shape)
	case tensor.Size(have) > tensor.Size(shape):
		width := shape[len(shape)-1]
		node = node.Reshape(-1, width).Slice(0, 0, tensor.Size(shape)/width)
	}

	return node.Reshape(shape...)
}

// recognised is a text tower whose graph is CLIP's, in the form that computes common prefixes of class prompts once.
type recognised struct {
	clip.Text
	named
}

// recogniseText finds CLIP's transformer in the graph of the text tower, and compares features of random prompts and
// their gradient with those of the original graph. The error says why the graph is not CLIP's.
func (m *model) recogniseText(run bundle.Runner) (*recognised, error) {
	textTower := m.text
	feeds := textTower.cut
	if textTower.embeddings.OK() {
		feeds = []graph.Node{textTower.embeddings}
	}

	matcher := newMatcher(m.bundle.Dir, "", textTower.output, feeds...)
	err := matcher.match(textTower.output, "ln_final", "text_projection", "text_projection.weight",
		func(n graph.Node) error { return matcher.textStart(n, textTower.context) })
	if err != nil {
		return nil, err
	}

	shared := &recognised{clip.Text{TextArch: clip.TextArch{Width: matcher.width, Layers: matcher.layers,
		Heads: matcher.heads, MLP: matcher.mlp, Context: textTower.context, EmbedDim: matcher.embedDim,
		Activation: matcher.act, Eps: matcher.eps}}, named{"", matcher.weights}}
	switch err := shared.Check(); {
	case err != nil:
		return nil, err
	case matcher.width != textTower.table.width || matcher.embedDim != textTower.embedDim:
		return nil, fmt.Errorf("width %d, features of size %d", matcher.width, matcher.embedDim)
	}

	return shared, m.prove(shared, run)
}

// recognise looks for CLIP's transformers in both towers.
func (m *model) recognise(run bundle.Runner) error {
	t := m.text
	var other error // why the text tower is not CLIP's
	if t.box == nil {
		var r *recognised
		if r, other = m.recogniseText(run); other == nil {
			t.shared, t.batch, m.bundle.Text = r, 0, r.TextArch
		}
	}

	if err := m.findExtent(run); err != nil {
		return err
	}

	switch {
	case t.box != nil:
		m.decided("text form", "plain, with the gradient in %s", t.box.Name())
	case t.shared != nil:
		m.decided("text form", "CLIP's transformer of %d blocks, recognised and compared on random prompts: classes "+
			"share the computation of their common prefix, and blocks accept prompts", t.shared.Layers)
	default:
		const prompt, name = 16, 5
		m.decided("text form", "plain (%v): with %d prompt tokens a step costs about %d times that of a recognised or "+
			"converted tower", other, prompt, (t.extent(1+prompt+name)+name/2)/name)
	}

	imageTower := m.image
	if imageTower.box != nil {
		m.decided("image prompts", "of pixels only, with the gradient in %s", imageTower.box.Name())
		return nil
	}

	var err error
	if imageTower.vit, err = m.recogniseImage(run); err == nil {
		m.bundle.Vision = imageTower.vit.VisionArch
		m.decided("image prompts", "CLIP's vision transformer of %d blocks was found: prompt tokens, after a "+
			"comparison of both forms", m.bundle.Vision.Layers)
		return nil
	}

	s, other := imageTower.findStream(m.bundle.Dir, run)
	if other != nil {
		m.decided("image prompts", "of pixels only (%v; %v)", err, other)
		return nil
	}

	imageTower.stream = s
	m.bundle.Vision.Width, m.bundle.Vision.Layers = s.width, len(s.values)
	m.decided("image prompts", "prompt tokens before %d blocks, which run as exported (%v), after a "+
		"comparison with duplicated tokens", len(s.values), err)
	return nil
}

// proofClasses lists the lengths of the class names in the comparison of both forms.
var proofClasses = []int{1, 3, 2}

// prove runs both forms of the text tower on prompts of random tokens.
func (m *model) prove(shared *recognised, run bundle.Runner) error {
	textTower, rng := m.text, rand.New(rand.NewPCG(1, 2))
	tokens := func(n int) (ids []int) {
		for range n {
			id := rng.IntN(textTower.table.rows)
			if id == textTower.sos || id == textTower.eotID {
				id = textTower.filler
			}
			ids = append(ids, id)
		}
		return ids
	}

	length := min(4, textTower.context-1-slices.Max(proofClasses)-2)
	if length < 1 {
		return fmt.Errorf("a context of %d is too short to compare both forms", textTower.context)
	}

	ids := convert.Slice(proofClasses, func(n int) []int { return append(tokens(n+1), textTower.eotID) })
	suffixes, err := clip.NewSuffixes(make([]string, len(ids)), ids,
		clip.SpecialTokens{SOS: textTower.sos, Pad: textTower.pad}, textTower.table.width, m.Embed)
	if err != nil {
		return err
	}

	rows, err := m.Embed(tokens(length))
	if err != nil {
		return err
	}

	g := graph.New()
	ctx := g.Input("ctx", graph.Float, graph.Static(length, textTower.table.width))
	prompts := []clip.Prompt{{Ctx: ctx}}
	weigh := g.Const(bundle.Noise(len(ids), textTower.embedDim))
	var list []graph.Output
	for i, features := range [][]graph.Node{shared.Prompts(g, shared, suffixes, prompts),
		textTower.prompts(g, suffixes, prompts)} {
		f, form := features[0].L2Normalize(), []string{"shared", "plain"}[i]
		dx, err := grad.Of(f.Mul(weigh).Sum(), ctx)
		if err != nil {
			return err
		}
		list = append(list, graph.Output{Name: form, Node: f}, graph.Output{Name: form + " gradient", Node: dx[0]})
	}

	model, err := graph.Model(list...)
	if err != nil {
		return err
	}

	out, err := run(model, m.bundle.Dir, tensor.Map{"ctx": tensor.Of(rows, length, textTower.table.width)})
	if err != nil {
		return err
	}

	for _, what := range []string{"", " gradient"} {
		if err := bundle.SameFeatures(out["shared"+what], out["plain"+what]); err != nil {
			return fmt.Errorf("it resembles CLIP's, but its%s %w from CLIP's", what, err)
		}
	}

	return nil
}

// recognisedViT is an image tower whose graph is CLIP's vision transformer, which accepts prompt tokens in all blocks.
type recognisedViT struct {
	clip.Vision
	named
	front graph.Node   // the image from which patches are cut
	proof func() error // compares both forms of the tower, once
}

// recogniseImage finds CLIP's vision transformer in the graph of the image tower.
func (m *model) recogniseImage(run bundle.Runner) (*recognisedViT, error) {
	imageTower, vit := m.image, &recognisedViT{}
	matcher := newMatcher(m.bundle.Dir, "visual.", imageTower.output, imageTower.input)
	var conv graph.Node
	err := matcher.match(imageTower.output, "ln_post", "proj", "visual_projection.weight",
		func(n graph.Node) (err error) {
			vit.front, conv, err = matcher.visionStart(n)
			return err
		})

	if err != nil {
		return nil, err
	}

	patch := conv.Op().X(1).Dim(2)
	if s, _ := conv.Op().Attrs.Ints("strides"); !slices.Equal(s, []int{patch, patch}) {
		return nil, fmt.Errorf("patches of %d pixels that overlap or have gaps: strides %v", patch, s)
	}

	vit.named = named{"visual.", matcher.weights}
	vit.VisionArch = clip.VisionArch{Width: matcher.width, Layers: matcher.layers, Heads: matcher.heads,
		MLP:   matcher.mlp,
		Patch: patch, Image: imageTower.size, EmbedDim: matcher.embedDim, Activation: matcher.act, Eps: matcher.eps}
	vit.proof = sync.OnceValue(func() error { return imageTower.prove(vit, m.bundle.Dir, run) })
	return vit, vit.Check()
}

// prove runs both forms of the image tower on an image of noise.
func (t *imageTower) prove(r *recognisedViT, dir string, run bundle.Runner) error {
	g := graph.New()
	pixels := bundle.AddPixelsInput(g, 1, t.size)
	plain, _ := t.build(g, pixels)
	vit, _ := t.tokens(g, r, pixels, clip.VisionPrompts{})
	in := tensor.Map{bundle.PixelsInput: t.example(1)}
	_, err := bundle.TwoForms{Got: vit.L2Normalize(), Want: plain.L2Normalize(), In: in}.Compare(dir, run)
	return err
}

// tokens adds the recognised tower with prompts to g.
func (t *imageTower) tokens(g *graph.Graph, r *recognisedViT, pixels graph.Node, p clip.VisionPrompts) (image,
	patches graph.Node) {
	front := inlined(g, []graph.Node{r.front}, map[graph.Node]graph.Node{t.input: t.feed(g, pixels)}, nil)
	p.Pixels = graph.Node{} // already added to pixels
	return r.PromptedFeatures(g, r, front[0].Cast(graph.Float), p)
}
