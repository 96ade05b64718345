package client

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strconv"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// imageParts are the parts of a plan's graph that depend on the pixels of an image alone, such as the blocks of an
// image tower before the first one with an adapter, or the whole tower without prompts. They are computed once for each
// image, one image at a time, so that a value does not depend on the batch, and kept in memory. Other graphs of a plan
// have the values as inputs.
type imageParts struct {
	*program
	key    [sha256.Size]byte // of the graph and the folder of its weights
	cache  *valueCache
	shapes map[string][]int // of one image's values
}

// imageBytes bounds the values of imageParts that a worker keeps. Values that do not fit are computed in each step: to
// evict others for them would leave nothing to find where steps and tests visit more images in turn than fit.
const imageBytes = 1 << 30

// leastProducts is how many multiplications and additions of matrix products and convolutions must be saved in each
// use of an image for each number of its pixels, which are hashed, and of the values, which are copied. The patch
// embeddings and the first block of ViT-B/32 save 2,500, those of ViT-B/16 5,000, the convolutions of RN50 19,000, and
// patch embeddings alone at most 610.
const leastProducts = 2048

// aloneInput returns the input of number i that imageParts compute: rows of the batch, like the pixels.
func aloneInput(i int) method.Input {
	return method.Input{Kind: method.RowInput, Name: "alone" + strconv.Itoa(i)}
}

// withoutImageParts returns outputs in which inputs take the place of parts that depend on an image alone, and the
// parts; nil where it does not pay to compute them once. The graph decides, not what is kept. roots are the same
// outputs with placeholders for towers.
func (c *compiler) withoutImageParts(backbone spec.Backbone, scope *method.Scope, roots []graph.Node,
	out []graph.Output) ([]graph.Output, *imageParts, error) {
	_, reads := scope.Graph().InputNamed(method.PixelsInput)
	if !reads || c.kernels != graph.CPUKernels || !spec.EachImageAlone(roots...) {
		return out, nil, nil
	}

	rest, parts := cutImages(out, c.leastProducts)
	if len(parts) == 0 {
		return out, nil, nil
	}

	sum, err := graph.Signature(parts...)
	if err != nil {
		return nil, nil, err
	}

	p := &imageParts{cache: c.images, shapes: map[string][]int{}}
	p.key = sha256.Sum256(append(sum[:], backbone.WeightsDir()...))
	for _, part := range parts {
		p.shapes[part.Name] = ofOneImage(part.Node)
	}

	p.program, err = c.compile(ValueProgram, backbone, scope, parts)
	return rest, p, err
}

// cutImages replaces the largest parts of outputs that depend on an image alone by inputs, where least multiplications
// and additions are saved for each number of the pixels and of the values. Room for prompts (Pad) is not kept.
func cutImages(out []graph.Output, least float64) (rest, parts []graph.Output) {
	alone := spec.PixelsAlone(nodesOf(out)...)
	var cut []graph.Node
	seen := map[*graph.Op]bool{}
	var visit func(n graph.Node)

	visit = func(n graph.Node) {
		switch {
		case !n.OK() || slices.Contains(cut, n):
		case alone[n.Op()] && !n.Op().IsInput() && n.Op().Kind != "Pad" && pays(least, productsOf(n), n):
			cut = append(cut, n)
		case !seen[n.Op()]:
			seen[n.Op()] = true
			for _, in := range n.Op().In {
				visit(in)
			}
		}
	}

	for _, o := range out {
		visit(o.Node)
	}

	if len(cut) == 0 {
		return out, nil
	}

	slices.SortFunc(cut, func(a, b graph.Node) int { return a.Op().ID - b.Op().ID }) // alike in steps and tests
	replaced := Replace(nodesOf(out), cut, func(i int) graph.Node {
		shape := cut[i].Shape()
		in := graph.Rows("B", ofOneImage(cut[i])...)
		n := cut[i].Graph().InputFrom(aloneInput(i), graph.Float, in)
		if shape[0].N == 1 {
			return n
		}
		sizes, _ := shape[1:].Ints()
		return n.Reshape(append([]int{-1}, sizes...)...)
	})

	if replaced[0].Graph().Err() != nil || !pays(least, productsOf(nodesOf(out)...)-productsOf(replaced...), cut...) {
		return out, nil
	}

	rest = slices.Clone(out)
	for i, n := range replaced {
		rest[i].Node = n
	}

	for i, n := range cut {
		parts = append(parts, graph.Output{Name: aloneInput(i).String(), Node: n})
	}

	return rest, parts
}

// pays reports whether so many saved multiplications and additions for each image are enough for values to keep. A
// value must be a row, or some, for each image.
func pays(least, saved float64, values ...graph.Node) bool {
	numbers := 0
	for _, n := range values {
		shape := ofOneImage(n)
		if shape == nil {
			return false
		}
		numbers += tensor.Size(shape)
	}

	for _, in := range graph.Inputs(values...) {
		numbers += sizeOf(in.Shape())
	}

	return saved >= least*float64(numbers)
}

// ofOneImage returns the shape of a node [B·n,...] for one image, [n,...], or [...] where n is 1; nil for other nodes.
func ofOneImage(n graph.Node) []int {
	shape := n.Shape()
	if n.DType() != graph.Float || len(shape) == 0 || shape[0].Sym != "B" {
		return nil
	}

	rest, ok := shape[1:].Ints()
	switch {
	case !ok:
		return nil
	case shape[0].N == 1:
		return rest
	}

	return append([]int{shape[0].N}, rest...)
}

// productsOf counts the multiplications and additions in the matrix products and convolutions that nodes need for one
// image. Attention in one operator does not count.
func productsOf(nodes ...graph.Node) (n float64) {
	for _, op := range graph.Reachable(nodes...) {
		inner := 0
		switch op.Kind {
		case "MatMul", "FusedMatMul", "Gemm":
			if s := op.In[0].Shape(); len(s) > 1 {
				k := len(s) - 1 - op.Attrs.Int("transA", 0)
				inner = sizeOf(s[k : k+1])
			}
		case "Conv":
			inner = sizeOf(op.In[1].Shape()[1:])
		}
		n += float64(inner) * float64(sizeOf(op.Out[0].Shape()))
	}

	return n
}

// sizeOf returns the number of elements of a shape for one image.
func sizeOf(s graph.Shape) int {
	n := 1
	for _, d := range s {
		n *= d.N
	}
	return n
}

// read adds the pixels to what a program reads of a batch.
func (p *imageParts) read(by *program) {
	if p != nil && !slices.Contains(by.largeInputs, method.PixelsInput) {
		by.largeInputs = append(by.largeInputs, method.PixelsInput)
	}
}

// add returns a batch with the values of its images.
func (p *imageParts) add(ctx context.Context, in inputs) (tensor.Map, error) {
	pixels, err := in.need(method.Input{Kind: method.RowInput, Name: method.PixelsInput})
	if err != nil {
		return nil, err
	}

	out, n := maps.Clone(in.batch), pixels.Shape[0]
	for name, shape := range p.shapes {
		out[name] = tensor.New(append([]int{n}, shape...)...)
	}

	for i := range n {
		one := pixels.Row(i)
		one = tensor.Of(one.Data, append([]int{1}, one.Shape...)...)
		values, err := cached(p.cache, p.of(one), func() (tensor.Map, error) {
			session, err := p.session(1)
			if err != nil {
				return nil, err
			}
			return session.Run(ctx, tensor.Map{method.PixelsInput: one})
		})

		if err != nil {
			return nil, err
		}

		for name, v := range values {
			copy(out[name].Row(i).Data, v.Data)
		}
	}

	return out, nil
}

// of returns the key of the values of one image: the graph, its weights and all pixels.
func (p *imageParts) of(pixels *tensor.Tensor) [sha256.Size]byte {
	buf := slices.Grow(slices.Clone(p.key[:]), 4*len(pixels.Data))
	for _, v := range pixels.Data {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
	}
	return sha256.Sum256(buf)
}
