package exported

import (
	"path"
	"path/filepath"
	"slices"

	"promptfed/models/bundle"
	"promptfed/runtime/graph"
)

// proveBoxes compares the features of gradient files with those of the towers' files.
func (m *model) proveBoxes(run bundle.Runner) error {
	i, t := *m.image, *m.text
	i.box, i.batch = nil, staticAxis(i.input, 0)
	t.box, t.batch = nil, staticAxis(t.inputs()[0], 0)
	if b := m.image.box; b != nil && run != nil {
		f, err := i.bothForms(m.image, max(2, i.batch))
		if err == nil {
			err = b.Prove(m.b.Dir, run, f, bundle.PixelsInput)
		}
		if err != nil {
			return err
		}
	}
	if b := m.text.box; b != nil && run != nil {
		f, err := t.bothForms(m.text, max(2, t.batch))
		if err == nil {
			err = b.Prove(m.b.Dir, run, f, bundle.EmbeddingsInput)
		}
		return err
	}
	return nil
}

// writeGradients writes the gradient files that the towers lack, beside the files of the towers in dir, and returns
// their names. They refer to the weights in these files. A tower whose input has no gradient, or an image tower that
// rounds, gets none.
func (m *model) writeGradients(dir string) (names []string, err error) {
	write := func(tower, name, output string, features graph.Node, input string) error {
		name = path.Join(path.Dir(tower), name)
		names = append(names, name)
		return bundle.WriteGradient(filepath.Join(dir, filepath.FromSlash(name)), path.Dir(tower),
			graph.Output{Name: output, Node: features.Cast(graph.Float)}, input)
	}
	if i := m.image; i.box == nil && isFloat(i.input) {
		if _, rounded := rounds(i.output); !rounded {
			g := graph.New()
			feed := map[graph.Node]graph.Node{i.input: again(g, i.input, i.open)}
			out := i.open.inline(g, []graph.Node{i.output}, feed, 0)
			err = write(i.name, bundle.ImageGradientFile, nameIn(i.file, i.output), out[0], i.input.Name())
		}
	}
	if t := *m.text; t.box == nil && err == nil {
		if t.batch = staticAxis(t.inputs()[0], 0); t.batch > 0 && t.open == nil { // it is recognised
			t.open, _ = searchOpening(t.batch, m.b.Dir, m.run, t.opened)
		}
		g, feed := graph.New(), map[graph.Node]graph.Node{}
		for _, in := range t.inputs() {
			feed[in] = again(g, in, t.open)
		}
		for _, c := range t.cut {
			shape := append(feed[t.ids].Shape()[:2:2], graph.StaticDim(t.table.width))
			x := g.Input(t.prompted(), graph.Float, shape)
			if c.Rank() == 2 {
				x = x.Reshape(-1, t.table.width)
			}
			feed[c] = wide(x, c)
		}
		out := t.open.inline(g, []graph.Node{t.output}, feed, 0)
		err = write(t.name, bundle.TextGradientFile, nameIn(t.file, t.output), out[0], t.prompted())
	}
	return names, err
}

// again declares an input of a file in g, in float32 for half precision, and with the batch that was opened.
func again(g *graph.Graph, in graph.Node, open *opening) graph.Node {
	t := in.DType()
	if graph.IsHalf(t) {
		t = graph.Float
	}
	shape := slices.Clone(in.Shape())
	if open != nil && len(shape) > 0 && shape[0].Is(open.n) {
		shape[0] = graph.Sym("batch")
	}
	return g.Input(in.Name(), t, shape)
}
