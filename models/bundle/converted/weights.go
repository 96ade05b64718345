package converted

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/models/bundle"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// alternatives lists the tensors that clip.Weights accepts in another form: as the parts [rows,...] of a fused
// projection, or as the transpose.
var alternatives = []struct {
	name  string
	parts []string
}{
	{"text_projection", []string{"text_projection.weight"}},
	{"visual.proj", []string{"visual_projection.weight"}},
	{"attn.in_proj_weight", []string{"attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"}},
	{"attn.in_proj_bias", []string{"attn.q_proj.bias", "attn.k_proj.bias", "attn.v_proj.bias"}},
}

// forms returns the names and shapes of the alternative form of name [shape], or nil.
func forms(name string, shape []int) map[string][]int {
	for _, a := range alternatives {
		stem, ok := strings.CutSuffix(name, a.name)
		if !ok {
			continue
		}
		out := map[string][]int{}
		for _, p := range a.parts {
			if len(a.parts) == 1 {
				out[stem+p] = []int{shape[1], shape[0]}
			} else {
				out[stem+p] = append([]int{shape[0] / len(a.parts)}, shape[1:]...)
			}
		}
		return out
	}

	return nil
}

// checkWeights returns an error if a tensor of the architecture is missing or has another shape.
func (m Manifest) checkWeights() error {
	if n := 12*(m.Text.Layers+m.Vision.Layers) + 2*len(m.Vision.Convolutions()); len(m.Weights) < n {
		return fmt.Errorf("weights: %d tensors, the towers have more than %d", len(m.Weights), n)
	}

	for _, need := range []map[string][]int{m.Text.Shapes(), m.Vision.Shapes()} {
		for name, shape := range need {
			want := map[string][]int{name: shape}
			if other := forms(name, shape); other != nil {
				if _, plain := m.Weights[name]; !plain {
					want = other
				}
			}

			for name, shape := range want {
				p, ok := m.Weights[name]
				if !ok {
					return fmt.Errorf("weights: %s is missing", name)
				}
				if !slices.Equal(p.Shape, shape) {
					return fmt.Errorf("weights: %s is %v, the architecture needs %v", name, p.Shape, shape)
				}
			}
		}
	}

	for name, p := range m.Weights {
		if err := m.checkPlace(name, p); err != nil {
			return err
		}
	}

	if s := m.Tokens.Shape; len(s) != 2 || s[0] < 3 || s[0] > bundle.MaxRows || s[1] != m.TextWidth {
		return fmt.Errorf("token_embedding is %v, must be [vocabulary,%d]", s, m.TextWidth)
	}

	return m.checkPlace("token_embedding", m.Tokens)
}

func (m Manifest) checkPlace(name string, location TensorLocation) error {
	file, ok := m.Files[location.File]
	if !ok {
		return fmt.Errorf("%s lies in %q, which is not among the files", name, location.File)
	}

	n := int64(4)
	for _, d := range location.Shape {
		if d < 1 || n > (1<<50)/int64(d) {
			return fmt.Errorf("%s has shape %v", name, location.Shape)
		}
		n *= int64(d)
	}

	switch {
	case location.DType != "F32":
		return fmt.Errorf("%s is stored as %q, must be F32", name, location.DType)
	case location.Length != n:
		return fmt.Errorf("%s%v takes %d bytes, not %d", name, location.Shape, n, location.Length)
	case location.Offset < 0 || location.Offset > file.Size || location.Length > file.Size-location.Offset:
		return fmt.Errorf("%s is said to lie at %d to %d of %s, which has %d bytes", name, location.Offset,
			location.Offset+location.Length, location.File, file.Size)
	}

	return nil
}

// table serves tensors as constants that stay in their files, with paths relative to the folder.
type table map[string]TensorLocation

func (t table) Has(name string) bool { _, ok := t[name]; return ok }

func (t table) Node(g *graph.Graph, name string, shape ...int) graph.Node {
	p, ok := t[name]
	switch {
	case !ok:
		return g.Fail("weight %s is missing from the bundle", name)
	case tensor.Size(p.Shape) != tensor.Size(shape):
		return g.Fail("weight %s is %v in the bundle, the architecture needs %v", name, p.Shape, shape)
	}

	return g.Weight(name, graph.Float, graph.External{File: p.File, Offset: p.Offset, Length: p.Length}, shape...)
}
