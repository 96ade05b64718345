package pretrain

import (
	"context"
	"fmt"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/sets"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/models/tokenizer"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Accuracy is the zero-shot accuracy on one domain of a source's test images, which are not trained on.
type Accuracy struct {
	Set, Domain string
	Images      int
	Classes     int
	Correct     float64 // as a share
}

// zeroShot is the prompt template of the evaluation.
const zeroShot = "a photo of {a}."

// evalBatch is the number of images per run of the image tower.
const evalBatch = 100

// evaluator computes zero-shot accuracies of a backbone.
type evaluator struct {
	cfg         Config
	weights     tensor.Map
	tok         *tokenizer.Tokenizer
	image, text *ort.Session
}

func newEvaluator(cfg Config, weights tensor.Map, tok *tokenizer.Tokenizer) (*evaluator, error) {
	e := &evaluator{cfg: cfg, weights: weights, tok: tok}
	var err error
	if e.image, err = e.tower(true); err != nil {
		return nil, err
	}
	if e.text, err = e.tower(false); err != nil {
		e.image.Close()
		return nil, err
	}
	return e, nil
}

func (e *evaluator) close() {
	e.image.Close()
	e.text.Close()
}

// sources measures the zero-shot accuracy on the test split of each set that the sources name.
func (e *evaluator) sources(ctx context.Context) ([]Accuracy, error) {
	var out []Accuracy
	seen := map[string]bool{}
	for i, s := range e.cfg.Sources {
		key := s.Data.Set + s.Data.Root
		if s.synthetic() { // all sources of synthetic images belong to one set
			key = "synthetic"
			s.Data = sets.Defaults()
			s.Data.Set, s.Data.Generator.Train = key, 1
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		set, err := sets.Open(s.Data)
		if err != nil {
			return nil, fmt.Errorf("sources[%d]: %w", i, err)
		}
		acc, err := e.set(ctx, set)
		if err != nil {
			return nil, err
		}
		out = append(out, acc...)
	}
	return out, nil
}

// tower compiles the forward pass of one tower with the weights as inputs.
func (e *evaluator) tower(image bool) (*ort.Session, error) {
	g := graph.New()
	var out graph.Node
	if image {
		size := e.cfg.Size
		pixels := g.Input(inPixels, graph.Float, graph.Static(evalBatch, 3, size, size))
		out, _ = clip.Vision{VisionArch: e.cfg.image()}.Features(g, clip.InputWeights(e.inputs(true)), pixels)
		out = out.L2Normalize()
	} else {
		tokens := g.Input(inTokens, graph.Int64, graph.Static(1, e.cfg.Caption))
		out = textFeatures(g, e.cfg.text(), clip.InputWeights(e.inputs(false)), tokens, g.Input(inEnd, graph.Int64,
			graph.Static(1)))
	}
	model, err := graph.Model(graph.Output{Name: "features", Node: out})
	if err != nil {
		return nil, err
	}
	return ort.NewSession(model, ort.Options{IntraThreads: e.cfg.Threads})
}

// inputs returns the weights of one tower.
func (e *evaluator) inputs(image bool) tensor.Map {
	out := tensor.Map{}
	for name, w := range e.weights {
		if strings.HasPrefix(name, "visual.") == image && name != logScale {
			out[name] = w
		}
	}
	return out
}

// set measures the accuracy on the test split of a set, domain by domain.
func (e *evaluator) set(ctx context.Context, set *data.Set) ([]Accuracy, error) {
	prompts, err := e.prompts(ctx, set.Classes)
	if err != nil {
		return nil, err
	}
	domains := set.Domains
	if len(domains) == 0 {
		domains = []string{""}
	}
	right, total := make([]int, len(domains)), make([]int, len(domains))
	prep := preprocess.CLIP(e.cfg.Size)
	for at := 0; at < len(set.Test); at += evalBatch {
		part := set.Test[at:min(at+evalBatch, len(set.Test))]
		in := e.inputs(true)
		pixels := tensor.New(evalBatch, 3, e.cfg.Size, e.cfg.Size)
		for i, x := range part {
			img, err := x.Image(preprocess.Decode)
			if err != nil {
				return nil, err
			}
			copy(pixels.Data[i*len(pixels.Data)/evalBatch:], prep.Pixels(img))
		}
		in[inPixels] = pixels
		f, err := e.image.Run(ctx, in)
		if err != nil {
			return nil, err
		}
		for i, x := range part {
			total[x.Domain]++
			if nearest(f["features"].Row(i).Data, prompts) == x.Label {
				right[x.Domain]++
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

// prompts returns the unit text features of the classes.
func (e *evaluator) prompts(ctx context.Context, classes []string) ([][]float32, error) {
	var out [][]float32
	for _, c := range classes {
		in := e.inputs(false)
		ids, end, err := sequences(e.tok, []string{word(zeroShot, c)}, e.cfg.Caption)
		if err != nil {
			return nil, err
		}
		in[inTokens], in[inEnd] = ids, end
		f, err := e.text.Run(ctx, in)
		if err != nil {
			return nil, err
		}
		out = append(out, f["features"].Data)
	}
	return out, nil
}

// nearest returns the index of the row with the largest inner product with x, the first among equals.
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
