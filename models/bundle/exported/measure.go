package exported

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// try returns the shape of the features of sequences with a given length, or the error if the tower does not accept
// them.
func (t *textTower) try(length int) (graph.Shape, error) {
	n := max(t.batch, 2)
	texts := t.texts(n, length)
	features := t.features(texts, slices.Repeat([]int{length - 1}, n))
	if err := texts.Graph().Err(); err != nil {
		return nil, err
	}

	if s, ok := features.Shape().Ints(); !ok || len(s) != 2 || s[0] != n {
		return nil, fmt.Errorf("output %s has shape %v for %d texts of %d tokens; features must be [texts,size]: "+
			"write another value as \"text\": {\"output\": NAME} in %s, or export one row for each text",
			t.output.Name(), features.Shape(), n, length, bundle.ManifestFile)
	}

	return features.Shape(), nil
}

// measure determines the context length and the size of the features. hint is the context length if the graph does not
// determine it; said reports whether bundle.json contains it.
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

	return nil
}

// texts adds the input EmbeddingsInput to a new graph: the embeddings of n texts of some length.
func (t *textTower) texts(n, length int) graph.Node {
	return graph.New().Input(bundle.EmbeddingsInput, graph.Float, graph.Static(n, length, t.table.width))
}

// features adds the tower to the graph of texts, which end at the positions in read, and returns their features.
func (t *textTower) features(texts graph.Node, read []int) graph.Node {
	tokens := make([][]int, len(read))
	for i := range tokens {
		tokens[i] = make([]int, texts.Dim(1))
	}
	return t.build(texts.Graph(), texts, tokens, read)
}

// maxNoise limits the length of the texts of noise: more tokens say no more, and their attention may take gigabytes.
const maxNoise = 64

// findExtent determines whether texts may be cut off after the end token of the longest one. It runs a tower that is
// not recognised as CLIP's on texts of noise, and on the same texts without what follows their last end token.
func (m *model) findExtent(run bundle.Runner) error {
	tower, said := m.text, m.text.causal
	if tower.length > 0 || tower.context <= 3 || said != nil && !*said {
		return nil
	}

	longest := min(tower.context, maxNoise)
	texts := tower.texts(2, longest)
	var whole, cut []graph.Node
	for _, length := range []int{3, longest - 1} {
		read := []int{length - 1, length - 2}
		whole = append(whole, tower.features(texts, read))
		cut = append(cut, tower.features(texts.Slice(1, 0, length), read))
	}

	forms := bundle.TwoForms{Got: graph.Concat(0, cut...), Want: graph.Concat(0, whole...),
		In: tensor.Map{bundle.EmbeddingsInput: bundle.Noise(2, longest, tower.table.width)}}
	if texts.Graph().Err() != nil {
		return nil // it accepts no shorter texts
	}

	var err error
	if tower.shared == nil {
		_, err = forms.Compare(m.bundle.Dir, run)
	}

	_, unknown := errors.AsType[bundle.RunError](err)
	note := tower.name + " computes every text at the full context, because "
	switch {
	case err == nil || unknown && said != nil:
		tower.causal, tower.short = new(true), true
	case said != nil:
		return fmt.Errorf("%s: what follows the end token of a text changes its features (%w): remove \"causal\": "+
			"true from \"text\" in %s", tower.name, err, bundle.ManifestFile)
	case unknown:
		m.unmeasured = fmt.Sprintf("%sit could not be measured whether what follows the end token changes the "+
			"features (%v): write \"text\": {\"causal\": true} in %s if it does not", note, err, bundle.ManifestFile)
		m.bundle.Notes = append(m.bundle.Notes, m.unmeasured)
	default:
		tower.causal = new(false)
		m.bundle.Notes = append(m.bundle.Notes, fmt.Sprintf("%swhat follows the end token changes the features (%v)",
			note, err))
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
