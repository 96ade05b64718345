package exported

import (
	"cmp"
	"fmt"
	"slices"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// try returns the shape of the features of sequences with a given length, or the error if the tower does not accept
// them.
func (t *textTower) try(length int) (graph.Shape, error) {
	g, n := graph.New(), max(t.batch, 2)
	tokens, read := make([][]int, n), make([]int, n)
	for i := range tokens {
		tokens[i], read[i] = make([]int, length), length-1
	}

	emb := g.Input(bundle.EmbeddingsInput, graph.Float, graph.Static(n, length, t.table.width))
	features := t.build(g, emb, tokens, read)
	if err := g.Err(); err != nil {
		return nil, err
	}

	if s, ok := features.Shape().Ints(); !ok || len(s) != 2 || s[0] != n {
		return nil, fmt.Errorf("output %s has shape %v for %d texts of %d tokens; features must be [texts,size]: "+
			"write another value as \"text\": {\"output\": NAME} in %s, or export one row for each text",
			t.output.Name(), features.Shape(), n, length, bundle.ManifestFile)
	}

	return features.Shape(), nil
}

// measure determines the context length, the size of the features, and whether shorter sequences are possible. hint is
// the context length if the graph does not determine it; said reports whether bundle.json contains it.
func (t *textTower) measure(hint int, said bool) error {
	t.context = t.length
	if t.context == 0 && said {
		t.context = hint
	}

	if t.context == 0 {
		if err := t.findContext(); err != nil && hint == 0 {
			return err
		}
		t.context = cmp.Or(t.context, hint)
	}

	if t.context > maxContext {
		return fmt.Errorf("texts of %d tokens; at most %d are supported", t.context, maxContext)
	}

	if err := checkBatch(t.inputs()[0], t.batch, t.context, t.table.width); err != nil {
		return err
	}

	shape, err := t.try(t.context)
	if err != nil {
		return fmt.Errorf("with %d tokens: %w", t.context, err)
	}

	if t.embedDim = shape[1].N; t.embedDim < 1 || t.embedDim > bundle.MaxExtent {
		return fmt.Errorf("features of size %d", t.embedDim)
	}

	if t.length == 0 && t.causal && t.context > 3 {
		_, err1 := t.try(t.context - 1)
		_, err2 := t.try(3)
		t.short = err1 == nil && err2 == nil
	}

	return nil
}

// maxTries limits the sizes that findContext tries; towers have some ten.
const maxTries = 64

// findContext finds the longest sequence that the tower has positions for: a size of one of its constants, so that one
// more token does not fit.
func (t *textTower) findContext() error {
	var sizes, fit []int
	for _, op := range graph.Reachable(t.output) {
		if op.Literal() == nil {
			continue
		}
		for _, d := range op.Out[0].Shape() {
			if d.N > 2 && d.N <= 1<<13 && !slices.Contains(sizes, d.N) {
				sizes = append(sizes, d.N)
			}
		}
	}

	slices.Sort(sizes)
	for _, n := range sizes[:min(len(sizes), maxTries)] {
		if _, err := t.try(n); err != nil {
			continue
		}
		if _, err := t.try(n + 1); err != nil {
			fit = append(fit, n)
		}
	}

	if len(fit) == 1 {
		t.context = fit[0]
		return nil
	}

	could := ""
	if len(fit) > 0 {
		could = fmt.Sprintf(" (it could be %v)", fit)
	}

	return fmt.Errorf("its graph does not determine the context length%s: write \"context_length\" "+
		"in %s", could, bundle.ManifestFile)
}

// extent returns the length of sequences if the longest needs the given number of positions.
func (t *textTower) extent(longest int) int {
	if t.short {
		return longest
	}
	return t.context
}

// prompts implements model.ClassFeatures with whole sequences, all prompts in one pass.
func (t *textTower) prompts(g *graph.Graph, suffixes *clip.Suffixes, list []clip.Prompt) []graph.Node {
	longest := 0
	for _, p := range list {
		text := clip.Text{TextArch: clip.TextArch{Width: t.table.width, Context: t.context}}
		if err := text.CheckPrompt(suffixes, p); err != nil {
			return slices.Repeat([]graph.Node{g.Fail("%w", err)}, len(list))
		}
		longest = max(longest, slices.Max(suffixes.Lengths(p)))
	}

	var parts []graph.Node
	var tokens [][]int
	var read, counts []int
	for _, p := range list {
		emb, ids, at := suffixes.Sequences(p, t.extent(longest))
		parts, tokens, read, counts = append(parts, emb), append(tokens, ids...), append(read, at...),
			append(counts, len(ids))
	}

	if len(parts) == 1 {
		return []graph.Node{t.build(g, parts[0], tokens, read)}
	}

	return t.build(g, graph.Concat(0, parts...), tokens, read).Split(0, counts...)
}
