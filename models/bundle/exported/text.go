package exported

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"promptfed/models/bundle"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// textTower is the text tower of an exported model: its inputs are embeddings, or token ids whose look-up is removed.
type textTower struct {
	file   *graph.File
	name   string
	output graph.Node

	embeddings, ids, eot, mask, positions graph.Node // inputs; some may be absent
	cut                                   []graph.Node
	table                                 embeddingTable

	batch, length      int // fixed by the export, else 0
	open               *opening
	shared             *recognised // replaces the graph if it is CLIP's
	box                *bundle.Box // replaces the graph if there is a gradient file
	context, embedDim  int
	short              bool  // sequences need not be padded to the context length, which the export leaves open
	causal             *bool // whether tokens after the end token have no influence; nil if it is not known
	sos, eotID, filler int   // sos is -1 if no token starts a text
	pad                int
}

func newTextTower(dir string, file *graph.File, name string, config textConfig) (*textTower, error) {
	tower := &textTower{file: file, name: name, causal: config.Causal}
	var err error
	if tower.output, _, _, err = pick(dir, file, config.Output, textRole); err != nil {
		return nil, err
	}

	if err := tower.roles(config); err != nil {
		return nil, err
	}

	var others []string
	for _, in := range tower.inputs() {
		if in != tower.embeddings {
			others = append(others, in.Name())
		}
	}

	tower.box, err = bundle.OpenBox(dir, path.Join(path.Dir(name), bundle.TextGradientFile), nameIn(file, tower.output),
		tower.prompted(), others...)
	if err == nil && tower.box == nil {
		err = tower.checkRounding()
	}

	if err != nil {
		return nil, err
	}

	if !tower.embeddings.OK() {
		if err := tower.cutOff(); err != nil {
			return nil, err
		}
	}

	for _, in := range tower.inputs() {
		if n := staticAxis(in, 0); n > 0 && in != tower.positions {
			tower.batch = n
			if err := checkBatch(in, n); err != nil {
				return nil, err
			}
		}
		if n := staticAxis(in, 1); n > 1 && in != tower.eot {
			tower.length = n
		}
	}

	if tower.box != nil { // it runs in place of the file
		x, _ := tower.box.File.Graph.InputNamed(tower.prompted())
		tower.batch, tower.length = staticAxis(x, 0), cmp.Or(staticAxis(x, 1), tower.length)
	}

	return tower, nil
}

// inputs returns the inputs of the tower; one with an axis of texts comes first.
func (t *textTower) inputs() []graph.Node {
	return slices.DeleteFunc([]graph.Node{t.embeddings, t.ids, t.mask, t.positions, t.eot},
		func(n graph.Node) bool { return !n.OK() })
}

// roles determines the role of each input that the features depend on.
func (t *textTower) roles(p textConfig) error {
	list := reached(t.file, t.output)
	if err := checkSizes(list...); err != nil {
		return err
	}

	for _, given := range []struct {
		key, name string
		to        *graph.Node
	}{{"text.embeddings", p.Embeddings, &t.embeddings}, {"text.ids", p.IDs, &t.ids}, {"text.eot", p.EOT, &t.eot},
		{"text.attention_mask", p.Mask, &t.mask}, {"text.position_ids", p.Positions, &t.positions}} {
		if given.name == "" {
			continue
		}
		n, err := namedInput(t.file, given.key, given.name)
		if err != nil {
			return err
		}
		*given.to = n
		list = slices.DeleteFunc(list, func(in graph.Node) bool { return in == n })
	}

	var unclear []graph.Node
	take := func(to *graph.Node, in graph.Node) {
		if to.OK() {
			unclear = append(unclear, in)
			return
		}
		*to = in
	}

	for _, in := range list {
		name := strings.ToLower(in.Name())
		switch rank := in.Rank(); {
		case isFloat(in) && rank == 3:
			take(&t.embeddings, in)
		case rank == 2 && strings.Contains(name, "mask"):
			take(&t.mask, in)
		case isInt(in) && rank == 2 && strings.Contains(name, "position"):
			take(&t.positions, in)
		case isInt(in) && rank == 1, isInt(in) && rank == 2 && staticAxis(in, 1) == 1:
			take(&t.eot, in)
		case isInt(in) && rank == 2:
			take(&t.ids, in)
		default:
			unclear = append(unclear, in)
		}
	}

	const hint = `write "text": {"embeddings" or "ids", "eot", "attention_mask", "position_ids": NAME} in ` +
		bundle.ManifestFile
	switch all := describe(reached(t.file, t.output)...); {
	case len(unclear) > 0:
		return fmt.Errorf("the role of its input %s is not clear among %s: %s, or export the tower without it, as it "+
			"takes %s", describe(unclear[0]), all, hint, textRole.takes)
	case !t.embeddings.OK() && !t.ids.OK():
		return fmt.Errorf("it takes %s; the text tower must take %s: export it so", all, textRole.takes)
	case t.embeddings.OK() && !t.eot.OK() && !t.ids.OK() && !t.mask.OK():
		return fmt.Errorf("it has %s, but none marks the end of a text: export it with the index of the end token "+
			"[classes] or with the token ids beside the embeddings", all)
	}

	return nil
}

// cutOff finds the look-ups of token ids in a constant table; prompts replace their results.
func (t *textTower) cutOff() error {
	is := map[graph.Node]bool{t.ids: true}
	for _, op := range graph.Reachable(t.output) {
		if op.Domain != graph.Standard || len(op.In) == 0 {
			continue
		}

		switch op.Kind {
		case "Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten":
			if is[op.In[0]] {
				is[op.Out[0]] = true
			}
		case "Gather":
			if rows := tableBehind(op.In[0]); is[op.In[1]] && rows.OK() && op.In[0].Rank() == 2 &&
				op.Attrs.Int("axis", 0) == 0 {
				if t.table.source.OK() && t.table.source != rows {
					return fmt.Errorf("token ids look up two tables, %s", describe(t.table.source, rows))
				}
				t.table.source = rows
				t.cut = append(t.cut, op.Out[0])
			}
		}
	}

	if len(t.cut) == 0 {
		return fmt.Errorf("no look-up (Gather) of a constant table by %s was found that could be cut off: export the "+
			"tower with embeddings [classes,length,width] as input", describe(t.ids))
	}

	return nil
}

// tableBehind returns the constant of a value, or the float values of a table that is stored as integers.
func tableBehind(n graph.Node) graph.Node {
	if !n.OK() {
		return n
	}
	if op := n.Op(); op.Domain == graph.Standard && op.Kind == "DequantizeLinear" && constantBehind(op.In[0]).OK() {
		return n
	}
	return constantBehind(n)
}

// rounding lists the operators that round activations; their gradients are zero wherever they exist.
var rounding = []string{"DynamicQuantizeLinear", "QuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul",
	"QLinearConv", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeLSTM", "QAttention", "QGemm"}

// rounds returns the first operator before a value that rounds activations, or nil.
func rounds(output graph.Node) *graph.Op {
	for _, op := range graph.Reachable(output) {
		if slices.Contains(rounding, op.Kind) {
			return op
		}
	}
	return nil
}

// checkRounding returns an error if prompts have no gradients through the text tower.
func (t *textTower) checkRounding() error {
	op := rounds(t.output)
	if op == nil {
		return nil
	}
	return fmt.Errorf("it is quantised (%s), and prompts need gradients through it: take the float32 or float16 "+
		"export of the text tower, such as text_model.onnx or text_model_fp16.onnx, or one whose weights alone are "+
		"quantised (q4); the image tower may stay quantised", op.Label())
}

// constantBehind returns the constant that a value is or is cast from, or no node.
func constantBehind(n graph.Node) graph.Node {
	for n.OK() {
		op := n.Op()
		switch {
		case op.Literal() != nil:
			return n
		case op.Domain == graph.Standard && (op.Kind == "Cast" || op.Kind == "Identity"):
			n = op.In[0]
		default:
			return graph.Node{}
		}
	}

	return graph.Node{}
}

// build adds the tower to g and returns the features [N,embedDim] of sequences with embeddings [N,L,w], their tokens,
// and the position at which each is read.
func (t *textTower) build(g *graph.Graph, emb graph.Node, tokens [][]int, read []int) graph.Node {
	if t.batch == 0 {
		return t.once(g, emb, tokens, read)
	}

	var out []graph.Node
	for _, rows := range chunks(g, len(tokens), t.batch) {
		var some [][]int
		var at []int
		for _, r := range rows {
			some, at = append(some, tokens[r]), append(at, read[r])
		}
		out = append(out, t.once(g, emb.Rows(g.Ints(rows...)), some, at))
	}

	return graph.Concat(0, out...).Slice(0, 0, len(tokens))
}

func (t *textTower) once(g *graph.Graph, emb graph.Node, tokens [][]int, read []int) graph.Node {
	n, length := len(tokens), emb.Dim(1)
	integers := func(like graph.Node, f func(c, i int) int) graph.Node {
		var v []int64
		for c := range n {
			for i := range length {
				v = append(v, int64(f(c, i)))
			}
		}
		return g.Const(tensor.OfInts(v, n, length)).Cast(like.DType())
	}

	feed := map[graph.Node]graph.Node{}
	if t.embeddings.OK() {
		feed[t.embeddings] = wide(emb, t.embeddings)
	}

	for _, c := range t.cut {
		x := emb
		if c.Rank() == 2 {
			x = emb.Reshape(-1, emb.Dim(2))
		}
		feed[c] = wide(x, c)
	}

	if t.ids.OK() { // the graph uses ids only to find the end token, which is put where features are read
		feed[t.ids] = integers(t.ids, func(c, i int) int {
			switch id := tokens[c][i]; {
			case i == read[c]:
				return t.eotID
			case i > read[c]:
				return t.pad
			case i == 0 && t.sos >= 0:
				return t.sos
			case id < 0 || id == t.eotID:
				return t.filler
			default:
				return id
			}
		})
	}

	if t.mask.OK() {
		feed[t.mask] = wide(integers(t.mask, func(c, i int) int {
			if i <= read[c] {
				return 1
			}
			return 0
		}), t.mask)
	}

	if t.positions.OK() {
		feed[t.positions] = integers(t.positions, func(_, i int) int { return i })
		if staticAxis(t.positions, 0) == 1 {
			feed[t.positions] = feed[t.positions].Slice(0, 0, 1)
		}
	}

	if t.eot.OK() {
		feed[t.eot] = g.Ints(read...).Cast(t.eot.DType())
		if t.eot.Rank() == 2 {
			feed[t.eot] = feed[t.eot].Unsqueeze(1)
		}
	}

	if t.box != nil {
		values := map[string]graph.Node{t.prompted(): emb}
		for _, in := range t.inputs() {
			if in != t.embeddings {
				values[in.Name()] = feed[in]
			}
		}
		return t.box.Features(values)
	}

	return t.open.inline(g, []graph.Node{t.output}, feed, n)[0].Cast(graph.Float)
}

// prompted returns the name of the embeddings in a gradient file.
func (t *textTower) prompted() string {
	if t.embeddings.OK() {
		return t.embeddings.Name()
	}
	return bundle.EmbeddingsInput
}

// wide returns x in the element type that represents the type of an input: float32 for half precision.
func wide(x, like graph.Node) graph.Node {
	if like.DType() == graph.Double {
		return x.Cast(graph.Double)
	}
	return x
}
