package exported

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"promptfed/models/bundle"
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
)

// describe lists values for messages, each with name, type and shape.
func describe(list ...graph.Node) string {
	var out []string
	for _, n := range list {
		out = append(out, fmt.Sprintf("%s %s%v", n.Name(), strings.ToLower(n.DType().String()), n.Shape()))
	}
	return bundle.JoinOrNone(out)
}

func outputs(list []graph.Output) []graph.Node {
	return convert.Slice(list, func(o graph.Output) graph.Node { return o.Node })
}

// namedInput looks up an input that bundle.json names.
func namedInput(f *graph.File, key, name string) (graph.Node, error) {
	if n, ok := f.Graph.InputNamed(name); ok {
		return n, nil
	}
	return graph.Node{}, fmt.Errorf("%s %q in %s is none of its inputs %s", key, name, bundle.ManifestFile,
		describe(f.Inputs()...))
}

// role describes the features of a tower.
type role struct {
	key   string
	usual []string // usual names of outputs with these features
	could func(f *graph.File, n graph.Node) bool
	takes string // description of the tower's inputs
}

// pooler is the output with the features of SigLIP, whose towers have no projection; in CLIP, a projection follows it.
const pooler = "pooler_output"

var (
	imageRole = role{"image", []string{"image_embeds", "image_features", "image_embeddings", "unnorm_image_features",
		"embedding", bundle.ImageOutput, pooler},
		func(f *graph.File, n graph.Node) bool { return takesPixels(f, n) && !takesText(f, n) },
		"pixels [batch,3,size,size] or [batch,size,size,3], floating-point or uint8"}
	textRole = role{"text", []string{"text_embeds", "text_features", "text_embeddings", "unnorm_text_features",
		"embedding", bundle.TextOutput, pooler},
		func(f *graph.File, n graph.Node) bool { return takesText(f, n) && !takesPixels(f, n) },
		"token ids [texts,length], int64 or int32, or floating-point embeddings [texts,length,width]"}
)

// pick returns the value that holds the features of a tower: the named output, the only possible output, or an output
// with a usual name; if no output holds them, a factor of the product that computes the similarities of images and
// texts. scale is the factor of these similarities, 0 if there are none, and bias the term that is added to them.
func pick(dir string, file *graph.File, name string, role role) (value graph.Node, scale, bias float64, err error) {
	var fit []graph.Output
	image, text, scale, bias := similarities(dir, file)
	for _, o := range file.Outputs {
		if name != "" && o.Name == name {
			return o.Node, scale, bias, nil
		}
		if (o.Node.Rank() == 2 || o.Node.Rank() < 0) && graph.Differentiable(o.Node.DType()) && role.could(file,
			o.Node) {
			fit = append(fit, o)
		}
	}

	if n, ok := file.Node(name); ok && role.could(file, n) {
		return n, scale, bias, nil // an inner value, such as the features in a file whose output is similarities
	}

	if name != "" {
		return value, 0, 0, fmt.Errorf("%s.output %q in %s is none of its outputs %s", role.key, name,
			bundle.ManifestFile, describe(outputs(file.Outputs)...))
	}

	if len(fit) == 1 {
		return fit[0].Node, scale, bias, nil
	}

	for _, u := range role.usual {
		if i := slices.IndexFunc(fit, func(o graph.Output) bool { return o.Name == u }); i >= 0 {
			return fit[i].Node, scale, bias, nil
		}
	}

	if len(fit) == 0 && image.OK() {
		return map[string]graph.Node{"image": image, "text": text}[role.key], scale, bias, nil
	}

	if len(fit) == 0 {
		return value, 0, 0, role.missing(file)
	}

	return value, 0, 0, fmt.Errorf("the output that holds the features is not clear among %s: write \"%s\": "+
		"{\"output\": NAME} in %s", describe(outputs(fit)...), role.key, bundle.ManifestFile)
}

// missing returns an error that says why no output of a file can hold the features of a tower.
func (r role) missing(f *graph.File) error {
	var could []graph.Output
	var in []graph.Node
	for _, o := range f.Outputs {
		if r.could(f, o.Node) {
			could = append(could, o)
		}
		for _, n := range reached(f, o.Node) {
			if !slices.Contains(in, n) {
				in = append(in, n)
			}
		}
	}

	pixels := slices.ContainsFunc(in, isPixels)
	ids := slices.ContainsFunc(in, func(n graph.Node) bool { return isInt(n) && n.Rank() <= 2 })
	switch {
	case len(could) > 0:
		return fmt.Errorf("no output holds features, which are floating-point [batch,size]; it has %s: export the %s "+
			"tower with its projected features, one row for each %s", describe(outputs(could)...), r.key, r.key)
	case pixels && ids:
		return fmt.Errorf("every output depends on images and on texts (%s): write the value that holds the features "+
			"of %ss as \"%s\": {\"output\": NAME} in %s", describe(in...), r.key, r.key, bundle.ManifestFile)
	case pixels && r.key == "text" || ids && r.key == "image":
		return fmt.Errorf("it is not the %s tower, because it takes %s: swap both towers, or name their files, with "+
			"image=IMAGE.onnx,text=TEXT.onnx or as \"image\": {\"file\": ...} and \"text\": {\"file\": ...} in %s",
			r.key, describe(in...), bundle.ManifestFile)
	}

	return fmt.Errorf("it takes %s; the %s tower must take %s: export it so", describe(in...), r.key, r.takes)
}

// checkSizes refuses inputs with a size of 0, which is not a symbolic size.
func checkSizes(list ...graph.Node) error {
	for _, n := range list {
		if slices.ContainsFunc(n.Shape(), func(d graph.Dim) bool { return d.Is(0) }) {
			return fmt.Errorf("input %s has a size of 0, which accepts no data: export it with that size open, that "+
				"is, with a name or no value (dynamic_axes or dynamic_shapes), or above 0", describe(n))
		}
	}
	return nil
}

// similarities finds the product of image features and text features, its factor, and the term that is added to it.
func similarities(dir string, file *graph.File) (image, text graph.Node, scale, bias float64) {
	for _, op := range graph.Reachable(outputs(file.Outputs)...) {
		if op.Domain != graph.Standard || op.Kind != "MatMul" && op.Kind != "Gemm" {
			continue
		}

		a, b := op.In[0], op.In[1]
		if takesText(file, a) {
			a, b = b, a
		}

		if !imageRole.could(file, a) || !textRole.could(file, b) {
			continue
		}

		scale = 1
		image, scale = unscaled(dir, a, scale)
		text, scale = unscaled(dir, b, scale)
		product := map[graph.Node]bool{op.Out[0]: true}
		for _, after := range graph.Reachable(outputs(file.Outputs)...) {
			i := slices.IndexFunc(after.In, func(n graph.Node) bool { return product[n] })
			if i < 0 || after.Domain != graph.Standard {
				continue
			}
			switch by := constant(dir, other(after, after.In[i])); {
			case after.Kind == "Mul" && by > 0:
				scale *= by
				product[after.Out[0]] = true
			case after.Kind == "Add" && bias == 0:
				bias = by
			}
		}

		if scale == 1 {
			scale = 0
		}

		return image, text, scale, bias
	}

	return graph.Node{}, graph.Node{}, 0, 0
}

// unscaled removes transposes and products with a number from features.
func unscaled(dir string, features graph.Node, scale float64) (graph.Node, float64) {
	for {
		if !features.OK() {
			return features, scale
		}
		op := features.Op()
		switch {
		case op.Kind == "Transpose" && op.Domain == graph.Standard:
			features = op.In[0]
		case op.Kind == "Mul" && constant(dir, op.In[0]) > 0:
			features, scale = op.In[1], scale*constant(dir, op.In[0])
		case op.Kind == "Mul" && constant(dir, op.In[1]) > 0:
			features, scale = op.In[0], scale*constant(dir, op.In[1])
		default:
			return features, scale
		}
	}
}

// constant returns the number that a value is, or the exponential of a number; 0 for other values.
func constant(dir string, value graph.Node) float64 {
	if !value.OK() {
		return 0
	}

	op := value.Op()
	if op.Kind == "Cast" && op.Domain == graph.Standard {
		return constant(dir, op.In[0])
	}

	if op.Kind == "Exp" && op.Domain == graph.Standard {
		if v := constantsOf(dir, op.In[0]); len(v) == 1 {
			return math.Exp(float64(v[0]))
		}
	}

	if v := constantsOf(dir, value); len(v) == 1 {
		return float64(v[0])
	}

	return 0
}

// constantsOf returns the numbers of a small constant.
func constantsOf(dir string, n graph.Node) []float32 {
	if n = constantBehind(n); !n.OK() {
		return nil
	}
	return floatsOf(dir, n)
}

// normalised reports from the operators after the input whether the graph normalises pixels: it returns their largest
// value, 255 or 1, or 0 if it does not.
func normalised(dir string, input, output graph.Node) float32 {
	readers := map[graph.Node][]*graph.Op{}
	for _, op := range graph.Reachable(output) {
		for _, in := range op.In {
			readers[in] = append(readers[in], op)
		}
	}

	factor, changed := 1.0, input.DType() == graph.Uint8
walk:
	for n := input; len(readers[n]) == 1; n = readers[n][0].Out[0] {
		op := readers[n][0]
		switch op.Kind {
		case "Cast", "Identity", "Transpose":
		case "Add", "Sub", "Mul", "Div":
			other := op.In[1]
			if other == n {
				other = op.In[0]
			}
			v := constantsOf(dir, other)
			if len(v) != 1 && len(v) != 3 || v[0] == 0 && op.Kind != "Add" && op.Kind != "Sub" {
				break walk
			}
			changed = true
			switch op.Kind {
			case "Mul":
				factor *= float64(v[0])
			case "Div":
				factor /= float64(v[0])
			}
		default:
			break walk
		}
	}

	switch {
	case !changed:
		return 0
	case factor < 0.2 || input.DType() == graph.Uint8: // 1/255 divided by a standard deviation of 0.2 or more
		return 255
	}

	return 1
}

// reached lists the inputs that n depends on, in the order of the file.
func reached(f *graph.File, n graph.Node) []graph.Node {
	behind := graph.Inputs(n)
	return slices.DeleteFunc(f.Inputs(), func(in graph.Node) bool { return !slices.Contains(behind, in) })
}

func isFloat(n graph.Node) bool { return n.DType() != 0 && graph.Differentiable(n.DType()) }

func isInt(n graph.Node) bool { return n.DType() == graph.Int64 || n.DType() == graph.Int32 }

func isPixels(n graph.Node) bool { return (isFloat(n) || n.DType() == graph.Uint8) && n.Rank() == 4 }

func takesPixels(f *graph.File, n graph.Node) bool {
	return slices.ContainsFunc(reached(f, n), isPixels)
}

func takesText(f *graph.File, n graph.Node) bool {
	return slices.ContainsFunc(reached(f, n), func(in graph.Node) bool {
		return isInt(in) || isFloat(in) && in.Rank() == 3
	})
}

// staticAxis returns the size of an axis, or 0 if it is symbolic or n is absent.
func staticAxis(n graph.Node, axis int) int {
	if !n.OK() {
		return 0
	}
	if s := n.Shape(); axis >= 0 && axis < len(s) && s[axis].Static() {
		return s[axis].N
	}
	return 0
}

// Limits of the sizes that an export fixes. A tower always processes as many images or texts as its fixed batch, so a
// batch of 1024 images of 224 pixels takes 0.6 GB for the pixels alone.
const (
	maxBatch   = 1 << 10
	maxContext = 1 << 13 // tokens of a text
	maxSide    = 1 << 12 // pixels
	maxInput   = 1 << 28 // numbers of one batch: pixels, or embeddings of tokens
)

// checkBatch returns an error if inputs [batch,sizes...] are too large for memory; batch is 0 if it is symbolic.
func checkBatch(in graph.Node, batch int, sizes ...int) error {
	const hint = "export it with an open batch (dynamic_axes or dynamic_shapes), or a smaller one"
	if batch > maxBatch {
		return fmt.Errorf("input %s: its batch is fixed at %d, and at most %d are supported, since memory always "+
			"holds that many rows: %s", describe(in), batch, maxBatch, hint)
	}

	n := max(1, batch)
	for _, s := range sizes {
		if s > maxInput/n {
			return fmt.Errorf("input %s: a batch of %d times %v numbers is more than the %d that are supported: %s",
				describe(in), max(1, batch), sizes, maxInput, hint)
		}
		n *= max(1, s)
	}

	return nil
}

// maxChunks limits the copies of a tower with a fixed batch in one graph.
const maxChunks = 256

// chunks splits the rows 0 to n-1 into parts of a fixed batch; the last part is padded with its last row. If g would
// have too many parts, it fails and has one.
func chunks(g *graph.Graph, n, batch int) [][]int {
	if n < 1 || (n-1)/batch >= maxChunks {
		g.Fail("its batch is fixed at %d, which would take too many copies of it for %d rows: export it with an open "+
			"batch (dynamic_axes or dynamic_shapes)", batch, n)
		n = 1
	}

	out := make([][]int, (n+batch-1)/batch)
	for i := range out {
		for j := range batch {
			out[i] = append(out[i], min(i*batch+j, n-1))
		}
	}

	return out
}
