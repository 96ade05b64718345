package exported

import (
	"promptfed/models/bundle"
	"promptfed/runtime/graph"
)

// StreamOnly opens the image tower of a bundle as one that is not recognised as CLIP's.
func StreamOnly(b *bundle.Bundle, run bundle.Runner) (blocks int, err error) {
	m := b.Towers.(*model)
	m.image.vit = nil
	if m.image.stream, err = m.image.findStream(b.Dir, run); err != nil {
		return 0, err
	}
	return len(m.image.stream.values), m.image.stream.proof()
}

// MatchForTest looks for a text tower and for an image tower before each output, and builds those that it finds.
func MatchForTest(f *graph.File) (found int) {
	for _, o := range f.Outputs {
		for _, n := range append(f.Inputs(), Gathers(f)...) {
			for _, prefix := range []string{"", "visual."} {
				m := newMatcher(".", prefix, o.Node, n)
				err := m.match(o.Node, "ln_final", "text_projection", "text_projection.weight",
					func(x graph.Node) (err error) {
						if prefix == "" {
							return m.textStart(x, 2)
						}
						_, _, err = m.visionStart(x)
						return err
					})
				if err != nil {
					continue
				}
				found++
				g := graph.New()
				for name := range m.weights {
					named{prefix, m.weights}.Node(g, prefix+name, 1)
				}
			}
		}
	}
	return found
}

// Gathers returns values that prompts could replace.
func Gathers(f *graph.File) (out []graph.Node) {
	for _, o := range f.Outputs {
		for _, op := range graph.Reachable(o.Node) {
			if op.Kind == "Gather" && op.Out[0].Rank() == 3 {
				out = append(out, op.Out[0])
			}
		}
	}
	return out
}
