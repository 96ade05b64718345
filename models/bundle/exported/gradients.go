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
	image, text := *m.image, *m.text // as exported
	image.box, image.batch = nil, staticAxis(image.input, 0)
	text.box, text.batch = nil, staticAxis(text.inputs()[0], 0)
	for _, tower := range []struct {
		box       *bundle.Box
		input     string
		bothForms func() (bundle.TwoForms, error)
	}{
		{m.image.box, bundle.PixelsInput, func() (bundle.TwoForms, error) {
			return image.bothForms(m.image, max(2, image.batch))
		}},
		{m.text.box, bundle.EmbeddingsInput, func() (bundle.TwoForms, error) {
			return text.bothForms(m.text, max(2, text.batch))
		}},
	} {
		if tower.box == nil {
			continue
		}

		forms, err := tower.bothForms()
		if err == nil {
			err = tower.box.Prove(m.bundle.Dir, run, forms, tower.input)
		}

		if err != nil {
			return err
		}
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

	if i := m.image; i.box == nil && isFloat(i.input) && rounds(i.output) == nil {
		g := graph.New()
		feed := map[graph.Node]graph.Node{i.input: again(g, i.input, i.open)}
		out := i.open.inline(g, []graph.Node{i.output}, feed, 0)
		err = write(i.name, bundle.ImageGradientFile, nameIn(i.file, i.output), out[0], i.input.Name())
	}

	if textTower := *m.text; textTower.box == nil && err == nil {
		// it is recognised
		if textTower.batch = staticAxis(textTower.inputs()[0], 0); textTower.batch > 0 && textTower.open == nil {
			textTower.open, _ = searchOpening(textTower.batch, m.bundle.Dir, m.run, textTower.opened)
		}

		g, feed := graph.New(), map[graph.Node]graph.Node{}
		for _, in := range textTower.inputs() {
			feed[in] = again(g, in, textTower.open)
		}

		for _, c := range textTower.cut {
			shape := append(feed[textTower.ids].Shape()[:2:2], graph.StaticDim(textTower.table.width))
			x := g.Input(textTower.prompted(), graph.Float, shape)
			if c.Rank() == 2 {
				x = x.Reshape(-1, textTower.table.width)
			}
			feed[c] = wide(x, c)
		}

		out := textTower.open.inline(g, []graph.Node{textTower.output}, feed, 0)
		err = write(textTower.name, bundle.TextGradientFile, nameIn(textTower.file, textTower.output), out[0],
			textTower.prompted())
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
