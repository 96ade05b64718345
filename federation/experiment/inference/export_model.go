package inference

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ops"
)

// towerOutputs lists the outputs of the image tower by the inputs of a method that they are (see method.Scope).
var towerOutputs = map[string]string{"image": bundle.ImageOutput, "patches": bundle.PatchesOutput}

// ready is the preprocessing's output.
const ready = "normalised"

// model joins preprocessing, image tower and class scores. It has only the parts of the tower that the scores need. For
// a method with prompts in the tower, the prompted tower is part of the scores.
func (f *Classifier) model(ctx context.Context, pixels string) (*onnx.ModelProto, error) {
	scores, err := ClassifierGraph(ctx, f.worker, f.client, f.clients, f.prompts)
	if err != nil {
		return nil, err
	}

	imageTower, err := openTower(f.bundle)
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", f.bundle.Name, err)
	}

	head, feeds, err := imageTower.head(scores)
	if err != nil {
		return nil, err
	}

	pre, err := f.preprocessing(pixels, imageTower.pixels)
	if err != nil {
		return nil, err
	}

	parts := []onnx.Part{{Name: "preprocess", Model: pre}}
	if len(imageTower.asked) > 0 {
		tower, err := imageTower.model()
		if err != nil {
			return nil, fmt.Errorf("bundle %s: %w", f.bundle.Name, err)
		}
		parts = append(parts, onnx.Part{Name: "image", Model: tower,
			Feeds: map[string]string{bundle.PixelsInput: "preprocess/" + ready}})
	}

	m := onnx.Merge(append(parts, onnx.Part{Name: "head", Model: head, Feeds: feeds})...)
	m.Graph.Input[0].DocString = inputLayouts[pixels]
	m.Graph.Output[0].DocString = "probabilities [B,C] of the classes in the order of the metadata's " + MetaClasses
	return m, onnx.Embed(m, f.bundle.WeightsDir())
}

// preprocessing returns the graph from an image's pixels to the input of a tower.
func (f *Classifier) preprocessing(pixels string, into graph.Node) (*onnx.ModelProto, error) {
	batch := graph.Sym("B")
	if d := into.Shape(); len(d) > 0 && d[0].Static() { // exported for batches of one size
		batch = d[0]
	}

	g := graph.New()
	var in graph.Node
	switch pixels {
	case PixelsUint8:
		in = g.Input(ClassifierInput, graph.Uint8, graph.Shape{batch, graph.Sym("H"), graph.Sym("W"),
			graph.StaticDim(3)})
	case PixelsFloat:
		in = g.Input(ClassifierInput, graph.Float, graph.Shape{batch, graph.StaticDim(3), graph.Sym("H"),
			graph.Sym("W")})
	default:
		return nil, fmt.Errorf("pixels %q is not known: use %s or %s", pixels, PixelsUint8, PixelsFloat)
	}

	return graph.Model(graph.Output{Name: ready, Node: f.bundle.Preprocess.Graph(in).Cast(into.DType())})
}

// imageTower is a bundle's image tower with the outputs that a method reads.
type imageTower struct {
	bundle *bundle.Bundle
	file   *graph.File
	pixels graph.Node
	asked  []graph.Output
}

func openTower(b *bundle.Bundle) (*imageTower, error) {
	model, err := b.ImageModel()
	if err != nil {
		return nil, err
	}

	t := &imageTower{bundle: b}
	if t.file, err = graph.ReadModel(model); err != nil {
		return nil, err
	}

	var ok bool
	if t.pixels, ok = t.file.Graph.InputNamed(bundle.PixelsInput); !ok {
		return nil, fmt.Errorf("the image tower has no input %s", bundle.PixelsInput)
	}

	return t, nil
}

// head returns the graph from the tower's outputs, not normalised, or from its pixels, to probabilities; the last
// tokens are computed in it. feeds is the source of each input.
func (t *imageTower) head(scores graph.Node) (model *onnx.ModelProto, feeds map[string]string, err error) {
	g := scores.Graph()
	feeds = map[string]string{}
	inside := map[graph.Node]graph.Node{}
	for _, in := range graph.Inputs(scores) {
		raw := "raw " + in.Name()
		if what := in.Name(); what == method.PixelsInput || what == method.TokensInput {
			raw, size := "raw "+method.PixelsInput, graph.StaticDim(t.bundle.Preprocess.Size)
			x := g.Input(raw, t.pixels.DType(), graph.Shape{graph.Sym("B"), graph.StaticDim(3), size,
				size}).Cast(graph.Float)
			if feeds[raw] = "preprocess/" + ready; what == method.TokensInput {
				if x, _, err = t.bundle.Image(g, x, method.VisionPrompts{LastTokens: true}); err != nil {
					return nil, nil, err
				}
			}
			inside[in] = x
			continue
		}

		name := towerOutputs[in.Name()]
		out, ok := t.file.Output(name)
		if !ok {
			return nil, nil, fmt.Errorf("the method reads %q of an image, which the image tower does not provide",
				in.Name())
		}

		inside[in] = g.Input(raw, out.DType(), in.Shape()).Cast(graph.Float).L2Normalize()
		feeds[raw] = "image/" + name
		t.asked = append(t.asked, graph.Output{Name: name, Node: out})
	}

	roots := graph.Transform([]graph.Node{scores}, func(op *graph.Op, _ []graph.Node) []graph.Node {
		if n, ok := inside[op.Out[0]]; ok {
			return []graph.Node{n}
		}
		return nil
	})

	model, err = graph.Model(graph.Output{Name: ClassifierOutput, Node: ops.Standard(roots)[0].Softmax(-1)})
	return model, feeds, err
}

// model returns the part of the tower that computes the asked outputs.
func (t *imageTower) model() (*onnx.ModelProto, error) {
	roots := make([]graph.Node, len(t.asked))
	for i, o := range t.asked {
		roots[i] = o.Node
	}

	for _, in := range graph.Inputs(roots...) {
		if in != t.pixels {
			return nil, fmt.Errorf("the image tower has an unexpected input %s beside %s", in.Name(),
				bundle.PixelsInput)
		}
	}

	m, err := t.file.Model(ops.StandardOutputs(t.asked)...)
	if err != nil {
		return nil, err
	}

	return proto.Clone(m).(*onnx.ModelProto), nil // Merge changes it
}
