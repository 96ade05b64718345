package clip

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// ConstantWeights is a Weights of tensors in memory, as constants.
type ConstantWeights tensor.Map

// Has reports whether there is a tensor of this name.
func (m ConstantWeights) Has(name string) bool { return m[name] != nil }

// Node returns the tensor as a constant.
func (m ConstantWeights) Node(g *graph.Graph, name string, shape ...int) graph.Node {
	t := m[name]
	if err := fits(name, t, shape); err != nil {
		return g.Fail("%w", err)
	}
	if !slices.Equal(t.Shape, shape) {
		t = tensor.Of(t.Data, shape...)
	}
	return g.Const(t)
}

// InputWeights is a Weights of graph inputs with the same names, for training a tower. It uses only the names and
// shapes of the tensors.
type InputWeights tensor.Map

// Has reports whether there is a tensor of this name.
func (m InputWeights) Has(name string) bool { return m[name] != nil }

// Node returns the tensor as an input.
func (m InputWeights) Node(g *graph.Graph, name string, shape ...int) graph.Node {
	t := m[name]
	if err := fits(name, t, shape); err != nil {
		return g.Fail("%w", err)
	}
	n := g.Input(name, graph.Float, graph.Static(t.Shape...))
	if !slices.Equal(t.Shape, shape) {
		return n.Reshape(shape...)
	}
	return n
}

func fits(name string, t *tensor.Tensor, shape []int) error {
	switch {
	case t == nil:
		return fmt.Errorf("weight %s is missing", name)
	case tensor.Size(t.Shape) != tensor.Size(shape):
		return fmt.Errorf("weight %s is %v, the architecture needs %v", name, t.Shape, shape)
	}
	return nil
}

// Shapes returns the tensors of the tower by OpenAI's names, without the token embedding.
func (a TextArch) Shapes() map[string][]int {
	s := map[string][]int{
		"positional_embedding": {a.Context, a.Width},
		"ln_final.weight":      {a.Width}, "ln_final.bias": {a.Width},
		"text_projection": {a.Width, a.EmbedDim},
	}
	if a.PostNorm {
		delete(s, "ln_final.weight")
		delete(s, "ln_final.bias")
		s["ln_pre.weight"], s["ln_pre.bias"] = []int{a.Width}, []int{a.Width}
	}
	if a.NoProjection {
		delete(s, "text_projection")
	}
	if a.ProjectionBias {
		s["text_projection.bias"] = []int{a.EmbedDim}
	}
	if a.Pooler {
		s["pooler.weight"], s["pooler.bias"] = []int{a.Width, a.Width}, []int{a.Width}
	}
	if a.Hidden > 0 {
		s["text_hidden.weight"], s["text_projection"] = []int{a.Hidden, a.Width}, []int{a.Hidden, a.EmbedDim}
	}
	blockShapes(s, "", a.Width, units(a.MLP, a.Width), a.Layers)
	return s
}

// Shapes returns the tensors of the tower by OpenAI's names. For a ResNet, batch normalisation is folded into the
// convolutions, each of which then has a bias.
func (a VisionArch) Shapes() map[string][]int {
	if a.ResNet() {
		s := a.poolShapes()
		for _, c := range a.Convolutions() {
			s[c.Name+".weight"], s[c.Name+".bias"] = []int{c.Out, c.In, c.Kernel, c.Kernel}, []int{c.Out}
		}
		return s
	}
	s := map[string][]int{
		"visual.conv1.weight":         {a.Width, 3, a.Patch, a.Patch},
		"visual.class_embedding":      {a.Width},
		"visual.positional_embedding": {a.Tokens(), a.Width},
		"visual.ln_pre.weight":        {a.Width}, "visual.ln_pre.bias": {a.Width},
		"visual.ln_post.weight": {a.Width}, "visual.ln_post.bias": {a.Width},
		"visual.proj": {a.Width, a.EmbedDim},
	}
	for _, absent := range []struct {
		is    bool
		names []string
	}{{a.NoClass, []string{"visual.class_embedding"}}, {a.NoProjection, []string{"visual.proj"}},
		{a.NoPreNorm, []string{"visual.ln_pre.weight", "visual.ln_pre.bias"}}} {
		for _, name := range absent.names {
			if absent.is {
				delete(s, name)
			}
		}
	}
	if a.ProjectionBias {
		s["visual_projection.bias"] = []int{a.EmbedDim}
	}
	if a.Pool == AttentionPool {
		a.attentionShapes(s)
	}
	blockShapes(s, "visual.", a.Width, units(a.MLP, a.Width), a.Layers)
	return s
}

// TrainedShapes returns the tensors that training changes: Shapes, with the gain and bias of each batch normalisation
// of a ResNet in place of the biases of convolutions.
func (a VisionArch) TrainedShapes() map[string][]int {
	s := a.Shapes()
	for _, c := range a.Convolutions() {
		delete(s, c.Name+".bias")
		s[c.Norm+".weight"], s[c.Norm+".bias"] = []int{c.Out}, []int{c.Out}
	}
	return s
}

func (a VisionArch) poolShapes() map[string][]int {
	s := map[string][]int{"visual.attnpool.positional_embedding": {1 + a.Patches(), a.Width}}
	for name, out := range map[string]int{"q_proj": a.Width, "k_proj": a.Width, "v_proj": a.Width,
		"c_proj": a.EmbedDim} {
		s["visual.attnpool."+name+".weight"], s["visual.attnpool."+name+".bias"] = []int{out, a.Width}, []int{out}
	}
	return s
}

func blockShapes(s map[string][]int, prefix string, w, mlp, layers int) {
	for i := range layers {
		p := fmt.Sprintf("%stransformer.resblocks.%d.", prefix, i)
		for _, ln := range []string{"ln_1", "ln_2"} {
			s[p+ln+".weight"], s[p+ln+".bias"] = []int{w}, []int{w}
		}
		s[p+"attn.in_proj_weight"], s[p+"attn.in_proj_bias"] = []int{3 * w, w}, []int{3 * w}
		s[p+"attn.out_proj.weight"], s[p+"attn.out_proj.bias"] = []int{w, w}, []int{w}
		s[p+"mlp.c_fc.weight"], s[p+"mlp.c_fc.bias"] = []int{mlp, w}, []int{mlp}
		s[p+"mlp.c_proj.weight"], s[p+"mlp.c_proj.bias"] = []int{w, mlp}, []int{w}
	}
}
