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
	return shaped(g, name, m[name], g.Const, shape)
}

// InputWeights is a Weights of graph inputs with the same names, for training a tower. It uses only the names and
// shapes of the tensors.
type InputWeights tensor.Map

// Has reports whether there is a tensor of this name.
func (m InputWeights) Has(name string) bool { return m[name] != nil }

// Node returns the tensor as an input.
func (m InputWeights) Node(g *graph.Graph, name string, shape ...int) graph.Node {
	return shaped(g, name, m[name], func(t *tensor.Tensor) graph.Node {
		return g.Input(name, graph.Float, graph.Static(t.Shape...))
	}, shape)
}

// shaped returns the node of a tensor in another shape of the same size.
func shaped(g *graph.Graph, name string, weight *tensor.Tensor, node func(*tensor.Tensor) graph.Node,
	shape []int) graph.Node {
	switch {
	case weight == nil:
		return g.Fail("weight %s is missing", name)
	case tensor.Size(weight.Shape) != tensor.Size(shape):
		return g.Fail("weight %s is %v, the architecture needs %v", name, weight.Shape, shape)
	case slices.Equal(weight.Shape, shape):
		return node(weight)
	}

	return node(weight).Reshape(shape...)
}

// shapes are the shapes of tensors by OpenAI's names.
type shapes map[string][]int

// pair adds the weight and the bias of a linear layer [out,in], of a convolution [out,in,k,k] or of a norm [width].
func (s shapes) pair(name string, shape ...int) {
	s[name+"weight"], s[name+"bias"] = shape, shape[:1:1]
}

// block adds the tensors of a residual block, or of an attention pooling, which has no first norm.
func (s shapes) block(prefix string, width, mlp int) {
	s.pair(prefix+"attn.in_proj_", 3*width, width)
	s.pair(prefix+"attn.out_proj.", width, width)
	s.pair(prefix+"ln_2.", width)
	s.pair(prefix+"mlp.c_fc.", mlp, width)
	s.pair(prefix+"mlp.c_proj.", width, mlp)
}

func (s shapes) blocks(prefix string, width, mlp, layers int) {
	for i := range layers {
		p := fmt.Sprintf("%stransformer.resblocks.%d.", prefix, i)
		s.pair(p+"ln_1.", width)
		s.block(p, width, mlp)
	}
}

// Shapes returns the tensors of the tower by OpenAI's names, without the token embedding.
func (a TextArch) Shapes() map[string][]int {
	shapes := shapes{"positional_embedding": {a.Context, a.Width}}
	norm, from := "ln_final.", a.Width
	if a.PostNorm {
		norm = "ln_pre."
	}

	shapes.pair(norm, a.Width)
	if a.Hidden > 0 {
		shapes["text_hidden.weight"], from = []int{a.Hidden, a.Width}, a.Hidden
	}

	if !a.NoProjection {
		shapes["text_projection"] = []int{from, a.EmbedDim}
	}

	if a.ProjectionBias {
		shapes["text_projection.bias"] = []int{a.EmbedDim}
	}

	if a.Pooler {
		shapes.pair("pooler.", a.Width, a.Width)
	}

	shapes.blocks("", a.Width, a.Units(), a.Layers)
	return shapes
}

// Shapes returns the tensors of the tower by OpenAI's names. For a ResNet, batch normalisation is folded into the
// convolutions, each of which then has a bias.
func (a VisionArch) Shapes() map[string][]int {
	if a.ResNet() {
		s := shapes{"visual.attnpool.positional_embedding": {1 + a.Patches(), a.Width}}
		for _, c := range a.Convolutions() {
			s.pair(c.Name+".", c.Out, c.In, c.Kernel, c.Kernel)
		}
		for _, name := range []string{"q_proj.", "k_proj.", "v_proj."} {
			s.pair("visual.attnpool."+name, a.Width, a.Width)
		}
		s.pair("visual.attnpool.c_proj.", a.EmbedDim, a.Width)
		return s
	}

	shapes := shapes{"visual.conv1.weight": {a.Width, 3, a.Patch, a.Patch},
		"visual.positional_embedding": {a.Tokens(), a.Width}}
	shapes.pair("visual.ln_post.", a.Width)
	if !a.NoClass {
		shapes["visual.class_embedding"] = []int{a.Width}
	}

	if !a.NoPreNorm {
		shapes.pair("visual.ln_pre.", a.Width)
	}

	if !a.NoProjection {
		shapes["visual.proj"] = []int{a.Width, a.EmbedDim}
	}

	if a.ProjectionBias {
		shapes["visual_projection.bias"] = []int{a.EmbedDim}
	}

	if a.Pool == AttentionPool {
		shapes["visual.attn_pool.probe"] = []int{1, 1, a.Width}
		shapes.block("visual.attn_pool.", a.Width, a.Units())
	}

	shapes.blocks("visual.", a.Width, a.Units(), a.Layers)
	return shapes
}

// TrainedShapes returns the tensors that training changes: Shapes, with the gain and bias of each batch normalisation
// of a ResNet in place of the biases of convolutions.
func (a VisionArch) TrainedShapes() map[string][]int {
	s := shapes(a.Shapes())
	for _, c := range a.Convolutions() {
		delete(s, c.Name+".bias")
		s.pair(c.Norm+".", c.Out)
	}
	return s
}
