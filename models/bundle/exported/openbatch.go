package exported

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"promptfed/models/bundle"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// opening converts a tower that was exported for a fixed batch to one for any batch. While the tower is inlined,
// opening follows which axis of every value is the batch or contains it, and changes constants that contain the batch
// size: targets of Reshape and Expand, constants with one row for each element of the batch, and the range 0 to n-1.
//
// Sizes of 1 may leave several candidates for the axis of the batch. Then both forms are run on the same rows, and the
// first choices with equal features are used (searchOpening).
type opening struct {
	n      int            // the batch that the export fixed
	choice map[string]int // index of the candidate for a Reshape, or whether a range counts the batch, by form
	feed   graph.Node     // of the current build: a value whose first axis is the batch
	search bool
	met    []alternatives // of the last build of a search, in order of occurrence
}

type alternatives struct {
	form  string
	count int
}

// spot is the position of the batch in a value of the export: in an axis of outer times n times inner elements.
type spot struct{ axis, outer int }

var errLost = errors.New("the batch is not an axis of its own any more")

// inlined is graph.Inline whose error becomes that of g.
func inlined(g *graph.Graph, roots []graph.Node, replace map[graph.Node]graph.Node,
	transform graph.OpTransform) []graph.Node {
	out, err := graph.InlineWith(g, roots, replace, transform)
	if err != nil {
		return slices.Repeat([]graph.Node{g.Fail("%w", err)}, len(roots))
	}
	return out
}

// inline inlines nodes, with an open batch unless o is nil; the batch is the first axis of the inputs, and batch is its
// size in g if it is static, and else 0.
func (o *opening) inline(g *graph.Graph, roots []graph.Node, replace map[graph.Node]graph.Node,
	batch int) []graph.Node {
	if o == nil || batch == o.n {
		return inlined(g, roots, replace, nil)
	}

	current, spots := &opening{n: o.n, choice: o.choice}, map[graph.Node]spot{}
	for old, now := range replace {
		if size := staticAxis(old, 0); size > 0 && size%o.n == 0 && now.Rank() > 0 && !now.Shape()[0].Is(size) {
			spots[old] = spot{0, 1}
			if size == o.n {
				current.feed = now
			}
		}
	}

	out := inlined(g, roots, replace, func(op *graph.Op, in []graph.Node,
		apply func([]graph.Node) ([]graph.Node, error)) ([]graph.Node, error) {
		return current.transform(g, spots, op, slices.Clone(in), apply)
	})

	if o.search {
		o.met = current.met
	}

	return out
}

// take returns the chosen candidate for a form.
func (o *opening) take(form string, count int) int {
	if !slices.ContainsFunc(o.met, func(a alternatives) bool { return a.form == form }) {
		o.met = append(o.met, alternatives{form, count})
	}
	return min(o.choice[form], count-1)
}

// next advances to the next combination of choices; it returns false if there is none.
func (o *opening) next() bool {
	for i := len(o.met) - 1; i >= 0; i-- {
		if a := o.met[i]; o.choice[a.form]+1 < a.count {
			o.choice[a.form]++
			for _, later := range o.met[i+1:] {
				delete(o.choice, later.form)
			}
			return true
		}
	}

	return false
}

func (o *opening) transform(g *graph.Graph, spots map[graph.Node]spot, op *graph.Op, in []graph.Node,
	apply func([]graph.Node) ([]graph.Node, error)) ([]graph.Node, error) {
	standard := op.Domain == graph.Standard
	if standard && slices.Contains([]string{"Mul", "Add", "Unsqueeze", "Concat", "Reshape"}, op.Kind) {
		for i, n := range op.In {
			if i > 0 && (op.Kind == "Unsqueeze" || op.Kind == "Reshape") {
				break
			}
			if _, carries := spots[n]; !carries && o.numbers(n) &&
				o.take(fmt.Sprint(op.Kind, i, n.Shape(), "numbers"), 2) == 0 {
				zero, one := g.Ints(0).Squeeze(0), g.Ints(1).Squeeze(0)
				count := o.feed.ShapeOf().Gather(0, zero)
				in[i] = g.Apply(graph.Standard, "Range", nil, zero, count, one).Cast(n.DType())
			}
		}
	}

	var carrier graph.Node // the first input that carries the batch
	var at spot
	for _, n := range op.In {
		if s, ok := spots[n]; ok {
			carrier, at = n, s
			break
		}
	}

	if carrier.OK() && standard {
		if err := o.adapt(g, spots, op, in, carrier, at); err != nil {
			return nil, err
		}
	}

	out, err := apply(in)
	if err != nil {
		return nil, err
	}

	for i, n := range out {
		s, err := changed(op.Out[i], n, carrier, at, op)
		if err != nil {
			return nil, err
		}
		if s != nil {
			spots[op.Out[i]] = *s
		}
	}

	return out, nil
}

// numbers reports whether a value of the export is the constant 0, 1, ..., n-1.
func (o *opening) numbers(value graph.Node) bool {
	if !value.OK() || !isInt(value) || value.Op().Literal() == nil || value.Rank() != 1 || value.Dim(0) != o.n {
		return false
	}

	for i, d := range value.ConstantInts() {
		if !d.Is(i) {
			return false
		}
	}

	return len(value.ConstantInts()) == o.n
}

// adapt changes the inputs of an operator that contain the batch size.
func (o *opening) adapt(g *graph.Graph, spots map[graph.Node]spot, op *graph.Op, in []graph.Node, carrier graph.Node,
	at spot) error {
	switch op.Kind {
	case "Reshape":
		old, ok := op.Out[0].Shape().Ints()
		from, known := op.In[0].Shape().Ints()
		if _, carries := spots[op.In[0]]; !carries || !ok || !known || !baked(op.In[1], in[1]) {
			return nil
		}
		fit := o.targets(from, at, old)
		if len(fit) == 0 {
			return errLost
		}
		s := fit[o.take(fmt.Sprint(from, at, old), len(fit))]
		target := slices.Clone(old)
		target[s.axis] = -1
		in[1] = g.Ints(target...)
	case "Expand":
		old, ok := op.Out[0].Shape().Ints()
		if _, carries := spots[op.In[0]]; carries && ok && baked(op.In[1], in[1]) {
			old[len(old)-op.In[0].Rank()+at.axis] = 1
			in[1] = g.Ints(old...)
		}
	case "Concat":
		position := slices.Index(op.In, carrier)
		along := op.Attrs.Int("axis", 0)
		if along < 0 {
			along += carrier.Rank()
		}
		for i, n := range op.In {
			if _, carries := spots[n]; carries || staticAxis(n, at.axis) != o.n || along == at.axis ||
				in[i].Rank() < 0 || in[i].Dim(at.axis) != o.n {
				continue
			}
			// One row for each element of the batch: use the first row for all of them.
			row := in[position].Slice(along, 0, 1)
			in[i] = in[i].Slice(at.axis, 0, 1).Add(row.Sub(row))
		}
	case "Add", "Sub", "Mul", "Div", "Pow", "Where", "Max", "Min", "Equal", "Less", "Greater", "And", "Or":
		for i, n := range op.In {
			if _, carries := spots[n]; carries || o.n == 1 || in[i] == (graph.Node{}) {
				continue
			}
			if axis := n.Rank() - carrier.Rank() + at.axis; axis >= 0 && staticAxis(n, axis) == o.n &&
				in[i].Rank() == n.Rank() && in[i].Shape()[axis].Is(o.n) {
				in[i] = in[i].Slice(axis, 0, 1)
			}
		}
	}

	return nil
}

// baked reports whether sizes do not depend on the batch.
func baked(old, now graph.Node) bool {
	return constantBehind(old).OK() || old.ConstantInts() != nil && slices.Equal(old.ConstantInts(), now.ConstantInts())
}

// targets returns the possible positions of the batch after a value [from] is reshaped to [to]: first an axis of its
// own, then positions that keep the last axis.
func (o *opening) targets(from []int, at spot, to []int) []spot {
	before := at.outer * tensor.Size(from[:at.axis])
	var own, rest []spot
	for j, size := range to {
		lead := tensor.Size(to[:j])
		if lead == 0 || before == 0 || before%lead != 0 {
			continue
		}

		outer := before / lead
		if size%(outer*o.n) != 0 {
			continue
		}

		switch s := (spot{j, outer}); {
		case size == o.n && outer == 1:
			own = append(own, s)
		case len(to) < len(from) && j < len(to)-1:
			rest = append([]spot{s}, rest...)
		default:
			rest = append(rest, s)
		}
	}

	return append(own, rest...)
}

// changed finds the axis whose size differs from the export.
func changed(old, now, carrier graph.Node, at spot, op *graph.Op) (*spot, error) {
	was, ok := old.Shape().Ints()
	if !ok || now.Rank() != len(was) {
		if carrier.OK() && ok && now.Rank() >= 0 {
			return nil, errLost
		}
		return nil, nil
	}

	axis := -1
	for i, d := range now.Shape() {
		if d.Is(was[i]) {
			continue
		}
		if axis >= 0 {
			return nil, errLost
		}
		axis = i
	}

	switch {
	case axis < 0 && carrier.OK() && op.Kind != "Shape" && op.Kind != "Size":
		return nil, errLost
	case axis < 0:
		return nil, nil
	case !carrier.OK():
		return &spot{axis, 1}, nil
	}

	if op.Kind == "Softmax" || op.Kind == "LogSoftmax" {
		along := op.Attrs.Int("axis", -1)
		if along < 0 {
			along += len(was)
		}
		if along == axis {
			return nil, errLost
		}
	}

	outer := at.outer
	if slices.Contains([]string{"Reshape", "Flatten", "Squeeze", "Unsqueeze"}, op.Kind) {
		from, known := carrier.Shape().Ints()
		lead := tensor.Size(was[:axis])
		if known && lead > 0 && at.outer*tensor.Size(from[:at.axis])%lead == 0 {
			outer = at.outer * tensor.Size(from[:at.axis]) / lead
		}
	}

	return &spot{axis, outer}, nil
}

// Limits of a search: the size of the batch, and the numbers of combinations that are built and run.
const (
	maxOpened = 64
	maxBuilt  = 64
	maxProven = 8
)

// searchOpening looks for choices with which a tower of a fixed batch has the same features with an open batch. build
// returns the features of both.
func searchOpening(n int, dir string, run bundle.Runner,
	build func(*opening) (bundle.TwoForms, error)) (*opening, error) {
	if n > maxOpened {
		return nil, errors.New("it was not tried")
	}

	opening := &opening{n: n, choice: map[string]int{}, search: true}
	var last error
	for built, proven := 0, 0; built < maxBuilt && proven < maxProven; built++ {
		forms, err := build(opening)
		if err == nil {
			proven++
			if _, err = forms.Compare(dir, run); err == nil {
				opening.search = false
				return opening, nil
			}
		}
		last = err
		if !opening.next() {
			break
		}
	}

	return nil, last
}

// openBatches opens the batches that the export fixed, if features stay the same.
func (m *model) openBatches(run bundle.Runner) {
	for _, tower := range []struct {
		what      string
		box       *bundle.Box
		batch     *int
		open      **opening
		bothForms func(*opening) (bundle.TwoForms, error)
	}{{"images", m.image.box, &m.image.batch, &m.image.open, m.image.opened},
		{"texts", m.text.box, &m.text.batch, &m.text.open, m.text.opened}} {
		batch := *tower.batch
		if batch == 0 || tower.box != nil {
			continue
		}
		o, err := searchOpening(batch, m.bundle.Dir, run, tower.bothForms)
		if err != nil {
			m.decided("batch of "+tower.what, "remains %d, as exported (%v): the tower always processes that many, "+
				"even if there are fewer", batch, err)
			continue
		}
		*tower.open, *tower.batch = o, 0
		m.decided("batch of "+tower.what, "fixed at %d by the export, and opened: %d rows have the same features in "+
			"both forms", batch, batch+2)
	}
}

// opened returns the features of the tower with an open batch and with the exported one.
func (t *imageTower) opened(o *opening) (f bundle.TwoForms, err error) {
	other := *t
	other.batch, other.open = 0, o
	if f, err = t.bothForms(&other, t.batch+2); err == nil {
		_, err = other.model()
	}
	return f, err
}

// bothForms returns the features that the tower and another form of it have of some images.
func (t *imageTower) bothForms(other *imageTower, rows int) (f bundle.TwoForms, err error) {
	g := graph.New()
	pixels := bundle.AddPixelsInput(g, rows, t.size)
	f.Want, _ = t.build(g, pixels)
	f.Got, _ = other.build(g, pixels)
	f.In = tensor.Map{bundle.PixelsInput: t.example(rows)}
	return f, g.Err()
}

// example returns images of noise, as levels if the graph normalises them.
func (t *imageTower) example(rows int) *tensor.Tensor {
	in := bundle.Noise(rows, 3, t.size, t.size)
	if t.levels > 0 {
		for i, v := range in.Data {
			in.Data[i] = float32(math.Round(float64((v + 1) / 2 * t.levels)))
		}
	}
	return in
}

func (t *textTower) opened(o *opening) (bundle.TwoForms, error) {
	other := *t
	other.batch, other.open = 0, o
	return t.bothForms(&other, t.batch+2)
}

func (t *textTower) bothForms(other *textTower, rows int) (forms bundle.TwoForms, err error) {
	texts, read := t.texts(rows, t.context), make([]int, rows)
	for i := range read {
		read[i] = min(t.context-1, 2+i%max(1, t.context-2))
	}

	forms.Want, forms.Got = t.features(texts, read), other.features(texts, read)
	forms.In = tensor.Map{bundle.EmbeddingsInput: bundle.Noise(rows, t.context, t.table.width)}
	return forms, texts.Graph().Err()
}
