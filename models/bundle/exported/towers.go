package exported

import (
	"fmt"
	"slices"

	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

func (m *model) Image(g *graph.Graph, pixels graph.Node, p clip.VisionPrompts) (image, patches graph.Node, err error) {
	return m.image.prompted(g, pixels, p)
}

func (m *model) ImageModel() (*onnx.ModelProto, error) { return m.image.model() }

func (m *model) Batch() int { return m.image.batch }

func (m *model) Patches() int { return m.image.count }

func (m *model) Tokens() int {
	if m.image.vit == nil {
		return 0
	}
	return m.image.vit.Tokens()
}

func (m *model) TakesPromptTokens() bool { return m.image.vit != nil || m.image.stream != nil }

func (m *model) ClassFeatures(g *graph.Graph, suffixes *clip.Suffixes, prompts []clip.Prompt) ([]graph.Node, error) {
	if r := m.text.shared; r != nil {
		return r.Prompts(g, r, suffixes, prompts), g.Err()
	}

	if len(prompts) == 0 {
		return nil, nil
	}

	if slices.ContainsFunc(prompts, func(p clip.Prompt) bool {
		return !p.Ctx.OK() || p.PerImage() || p.NoPositions || len(p.Deep) > 0 || !p.Changes.None() || p.Own != nil
	}) {
		why := "its graph was not recognised as CLIP's (promptfed inspect says why)"
		if m.text.box != nil {
			why = "it trains by " + m.text.box.Name()
		}
		return nil, fmt.Errorf("an exported text tower supports no deep prompts, low-rank changes, adapters, prompts "+
			"for each image, prompts without a class or without positions, or templates, as %s; convert a checkpoint "+
			"of the model (promptfed convert)", why)
	}

	return m.text.prompts(g, suffixes, prompts), g.Err()
}

func (m *model) TextFeatures(g *graph.Graph, ids [][]int) (graph.Node, error) {
	if r := m.text.shared; r != nil {
		return r.Sequences(g, r, ids, m.Embed), g.Err()
	}

	longest := 0
	for i, s := range ids {
		if len(s) == 0 || len(s) > m.text.context {
			return graph.Node{}, fmt.Errorf("text tower: sequence %d has %d tokens, must have 1 to %d", i, len(s),
				m.text.context)
		}
		longest = max(longest, len(s))
	}

	length := m.text.extent(longest)
	var flat, read []int
	tokens := make([][]int, len(ids))
	for i, s := range ids {
		tokens[i] = append(slices.Clone(s), slices.Repeat([]int{m.text.pad}, length-len(s))...)
		flat, read = append(flat, tokens[i]...), append(read, len(s)-1)
	}

	rows, err := m.Embed(flat)
	if err != nil {
		return graph.Node{}, err
	}

	emb := g.Const(tensor.Of(rows, len(ids), length, m.text.table.width))
	return m.text.build(g, emb, tokens, read), g.Err()
}

func (m *model) Embed(ids []int) ([]float32, error) { return m.text.table.lookUp(m.bundle.Dir, ids) }

func (m *model) Digest() string { return m.digest() }
