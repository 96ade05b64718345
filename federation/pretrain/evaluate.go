package pretrain

import (
	"context"
	"fmt"
	"strings"

	"promptfed/federation/data"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Accuracy is the zero-shot accuracy on one domain of a source's held-out images, none of which was trained on.
type Accuracy struct {
	Set, Domain string
	Images      int
	Classes     int
	Correct     float64 // share
}

// zeroShot is the hand-written prompt of the evaluation.
const zeroShot = "a photo of {a}."

// evalBatch is how many images go through the tower at once.
const evalBatch = 100

// evaluate measures zero-shot accuracy on the test split of every set that the sources name, once each.
func (t *trainer) evaluate(ctx context.Context) ([]Accuracy, error) {
	image, err := t.tower(true)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	text, err := t.tower(false)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	var out []Accuracy
	seen := map[string]bool{}
	for i, s := range t.cfg.Sources {
		key := s.Data.Set + s.Data.Root
		if s.drawn() { // all sources of drawn images are parts of one set
			key = "drawn"
			s.Data = data.Defaults()
			s.Data.Drawn.Train = 1
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		set, err := data.Open(s.Data)
		if err != nil {
			return nil, fmt.Errorf("sources[%d]: %w", i, err)
		}
		acc, err := t.accuracy(ctx, image, text, set)
		if err != nil {
			return nil, err
		}
		out = append(out, acc...)
	}
	return out, nil
}

// tower compiles the forward pass of one tower with the weights as inputs.
func (t *trainer) tower(image bool) (*ort.Session, error) {
	g := graph.New()
	var out graph.Node
	if image {
		size := t.cfg.Size
		pixels := g.Input(inPixels, graph.Float, graph.Static(evalBatch, 3, size, size))
		out = imageFeatures(g, t.cfg.image(), clip.Inputs(t.inputs(true)), pixels)
	} else {
		tokens := g.Input(inTokens, graph.Int64, graph.Static(1, t.cfg.Caption))
		out = textFeatures(g, t.cfg.text(), clip.Inputs(t.inputs(false)), tokens, g.Input(inEnd, graph.Int64, graph.Static(1)))
	}
	model, err := graph.Bytes(graph.Output{Name: "features", Node: out})
	if err != nil {
		return nil, err
	}
	return ort.NewSession(model, ort.Options{IntraThreads: t.cfg.Threads})
}

// inputs are the weights of one tower.
func (t *trainer) inputs(image bool) tensor.Map {
	out := tensor.Map{}
	for name, w := range t.weights {
		if strings.HasPrefix(name, "visual.") == image && name != logScale {
			out[name] = w
		}
	}
	return out
}

func (t *trainer) accuracy(ctx context.Context, image, text *ort.Session, set *data.Set) ([]Accuracy, error) {
	prompts, err := t.prompts(ctx, text, set.Classes)
	if err != nil {
		return nil, err
	}
	domains := set.Domains
	if len(domains) == 0 {
		domains = []string{""}
	}
	right, total := make([]int, len(domains)), make([]int, len(domains))
	prep := preprocess.CLIP(t.cfg.Size)
	for at := 0; at < len(set.Test); at += evalBatch {
		part := set.Test[at:min(at+evalBatch, len(set.Test))]
		in := t.inputs(true)
		pixels := tensor.New(evalBatch, 3, t.cfg.Size, t.cfg.Size)
		for i, e := range part {
			img, err := e.Image(preprocess.Decode)
			if err != nil {
				return nil, err
			}
			copy(pixels.Data[i*len(pixels.Data)/evalBatch:], prep.Pixels(img))
		}
		in[inPixels] = pixels
		f, err := image.Run(ctx, in)
		if err != nil {
			return nil, err
		}
		for i, e := range part {
			total[e.Domain]++
			if nearest(f["features"].Row(i).Data, prompts) == e.Label {
				right[e.Domain]++
			}
		}
	}
	var out []Accuracy
	for i, d := range domains {
		if total[i] > 0 {
			out = append(out, Accuracy{set.Name, d, total[i], len(set.Classes), float64(right[i]) / float64(total[i])})
		}
	}
	return out, nil
}

// prompts are the unit text features of the classes.
func (t *trainer) prompts(ctx context.Context, text *ort.Session, classes []string) ([][]float32, error) {
	var out [][]float32
	for _, c := range classes {
		in := t.inputs(false)
		ids, end, err := sequences(t.data.tok, []string{word(zeroShot, c)}, t.cfg.Caption)
		if err != nil {
			return nil, err
		}
		in[inTokens], in[inEnd] = ids, end
		f, err := text.Run(ctx, in)
		if err != nil {
			return nil, err
		}
		out = append(out, f["features"].Data)
	}
	return out, nil
}

// nearest is the index of the row with the largest inner product with x, the first of equals.
func nearest(x []float32, rows [][]float32) int {
	best, most := 0, float32(-2)
	for i, r := range rows {
		dot := float32(0)
		for k, v := range r {
			dot += v * x[k]
		}
		if dot > most {
			best, most = i, dot
		}
	}
	return best
}
