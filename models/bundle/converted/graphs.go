package converted

import (
	"fmt"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// imageModel returns the content of image.onnx.
func imageModel(v clip.VisionArch, w clip.Weights) ([]byte, error) {
	g := graph.New()
	image, patches := clip.Vision{VisionArch: v}.Features(g, w, bundle.AddPixelsInput(g, 0, v.Image))
	b, err := graph.Marshal(graph.Output{Name: bundle.ImageOutput, Node: image},
		graph.Output{Name: bundle.PatchesOutput, Node: patches})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ImageFile, err)
	}
	return b, nil
}

// textModel returns the content of text.onnx: the plain form over the whole context.
func textModel(t clip.TextArch, w clip.Weights) ([]byte, error) {
	g := graph.New()
	emb := g.Input(bundle.EmbeddingsInput, graph.Float, graph.Shape{graph.Sym("C"), graph.StaticDim(t.Context),
		graph.StaticDim(t.Width)})
	eot := g.Input(bundle.EOTInput, graph.Int64, graph.Shape{graph.Sym("C")})
	b, err := graph.Marshal(graph.Output{Name: bundle.TextOutput, Node: clip.Text{TextArch: t}.Plain(w, emb, eot)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", TextFile, err)
	}
	return b, nil
}
