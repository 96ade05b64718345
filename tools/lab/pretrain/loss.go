package pretrain

import (
	"promptfed/models/clip"
	"promptfed/runtime/convert"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// Names of the inputs of a step besides the weights, and of its outputs.
const (
	inPixels  = "batch/pixels"  // [B,3,S,S], normalised
	inTokens  = "batch/tokens"  // [B,L] token ids, zeros after the end of text
	inEnd     = "batch/end"     // [B] end position of each sequence
	inTargets = "batch/targets" // [B,B], see Targets
	outLoss   = "loss"
	outGrad   = "grad/" // + the name of the weight
)

const (
	tokenTable = "token_embedding.weight"
	logScale   = "logit_scale"
)

// stepGraph returns one training step as a graph: the loss and its gradient with respect to every weight. The weights
// are inputs.
//
// With unit features f and t of images and captions and s = exp(logit_scale), the loss is the symmetric contrastive
// loss of CLIP (Radford et al. 2021, figure 3) with several positives per row as in UniCL (Yang et al. 2022, Eq. 2-4),
//
//	L = -1/(2B) Σ_ij Y_ij [log softmax_j(s f tᵀ) + log softmax_j(s t fᵀ)]
//
// where Y are the targets, so that no image is pushed away from a text that describes it.
func stepGraph(text clip.TextArch, image clip.VisionArch, weights tensor.Map, batch, length int) (*onnx.ModelProto,
	error) {
	g := graph.New()
	in := clip.InputWeights(weights)
	pixels := g.Input(inPixels, graph.Float, graph.Static(batch, 3, image.Image, image.Image))
	tokens := g.Input(inTokens, graph.Int64, graph.Static(batch, length))
	end := g.Input(inEnd, graph.Int64, graph.Static(batch))
	targets := g.Input(inTargets, graph.Float, graph.Static(batch, batch))

	var moments []graph.Output
	f, _ := clip.Vision{VisionArch: image, BatchStats: func(norm string, mean, variance graph.Node) {
		moments = append(moments, graph.Output{Name: norm + runningMean, Node: mean},
			graph.Output{Name: norm + runningVar, Node: variance})
	}}.Features(g, in, pixels)

	f = f.L2Normalize()
	t := textFeatures(g, text, in, tokens, end)
	s := in.Node(g, logScale).Exp()
	logits := f.MatMulT(t).Mul(s)
	rows := logits.LogSoftmax(-1).Add(logits.T().LogSoftmax(-1))
	loss := targets.Mul(rows).Sum().MulScalar(-0.5 / float64(batch))

	names := weights.Names()
	wrt := convert.Slice(names, func(n string) graph.Node { return in.Node(g, n, weights[n].Shape...) })
	dw, err := grad.Of(loss, wrt...)
	if err != nil {
		return nil, err
	}

	outputs := append(moments, graph.Output{Name: outLoss, Node: loss.Reshape(1)})
	for i, n := range names {
		outputs = append(outputs, graph.Output{Name: outGrad + n, Node: dw[i]})
	}

	return graph.Model(outputs...)
}

func textFeatures(g *graph.Graph, arch clip.TextArch, w clip.InputWeights, tokens, end graph.Node) graph.Node {
	table := w[tokenTable].Shape
	emb := w.Node(g, tokenTable, table...).Rows(tokens)
	return clip.Text{TextArch: arch}.Plain(w, emb, end).L2Normalize()
}

// Targets returns the positives of each row of a batch: pairs with the same caption share the part 1-byClass of the
// row's mass equally, and pairs of the same class share the rest,
//
//	Y_ij = (1-byClass) [captions equal] / n_i + byClass [classes equal] / m_i,
//
// where n_i and m_i are the numbers of such pairs. Rows and columns sum to 1. With byClass 0, texts must distinguish
// images of one class by all words of their captions; with 1, only the class counts, and texts ignore the other words.
func Targets(captions, classes []string, byClass float64) *tensor.Tensor {
	n := len(captions)
	labels := tensor.New(n, n)
	for _, part := range []struct {
		keys  []string
		share float64
	}{{captions, 1 - byClass}, {classes, byClass}} {
		count := map[string]int{}
		for _, k := range part.keys {
			count[k]++
		}
		for i, a := range part.keys {
			for j, b := range part.keys {
				if a == b {
					labels.Data[i*n+j] += float32(part.share / float64(count[a]))
				}
			}
		}
	}

	return labels
}
