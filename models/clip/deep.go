package clip

import (
	"fmt"

	"promptfed/runtime/graph"
)

// checkDeep returns an error if the deep prompts do not fit a prompt of the given number of tokens.
func (t Text) checkDeep(p Prompt, tokens int) error {
	switch {
	case len(p.Deep) > max(t.Layers-1, 0):
		return fmt.Errorf("text tower: %d deep prompts for %d blocks after the first", len(p.Deep), t.Layers-1)
	case len(p.Deep) > 0 && p.Class != "" && p.Class != End:
		return fmt.Errorf("text tower: deep prompts precede the class name; its position is %s", p.Class)
	}
	for i, d := range p.Deep {
		if d.OK() && (!matrix(d, -1, t.Width) || d.Dim(0) < 1 || d.Dim(0) > tokens) {
			return fmt.Errorf("text tower: the deep prompt of block %d is %v, must be [1 to %d,%d]", i+1, d.Shape(),
				tokens, t.Width)
		}
	}
	return nil
}

// deepened replaces the first prompt rows of x, the rows of all prompts, by the deep prompts of block i. They are the
// same for every class, like [SOS, prompt], so all classes still share one prefix.
func deepened(x graph.Node, rs []*promptRows, i int) graph.Node {
	var parts []graph.Node
	from, at, changed := 0, 0, false
	for _, r := range rs {
		if i > 0 && i <= len(r.deep) && r.deep[i-1].OK() {
			parts = append(parts, x.Slice(0, from, at+1), r.deep[i-1])
			from, changed = at+1+r.deep[i-1].Dim(0), true
		}
		at += r.all()
	}
	if !changed {
		return x
	}
	return graph.Concat(0, append(parts, x.Slice(0, from, at))...)
}
