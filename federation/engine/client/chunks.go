package client

import (
	"slices"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
)

// classChunks divides the classes of a pass of the text tower where the values that its backward pass needs take more
// memory than bound. The backward pass of a chunk computes its forward pass again, as in Chen et al. 2016 (Training
// Deep Nets with Sublinear Memory Cost). Gradients equal those of one pass up to rounding.
type classChunks struct {
	bound int // bytes
	rows  int // of a batch at a time, for prompts of each image
	list  []chunk
}

// chunk is a pass of the text tower over some classes.
type chunk struct {
	features []graph.Node // [c,D] or [B,c,D] of each prompt, detached
	// again returns the features, not detached, from a pass that starts after a scalar is known.
	again func(after graph.Node) ([]graph.Node, error)
}

// text is Backbone.Text in chunks of the classes; nil makes no chunks. Prompts from the words of a template and without
// a class are not divided.
func (c *classChunks) text(g *graph.Graph, backbone spec.Backbone, classes []string,
	prompts []method.Prompt) ([]graph.Node, error) {
	if c == nil {
		return backbone.Text(g, classes, prompts)
	}

	var split, whole []method.Prompt
	var at, rest []int // their places
	bytes := 0
	for i, prompt := range prompts {
		if !prompt.Ctx.OK() || prompt.NoClass {
			whole, rest = append(whole, prompt), append(rest, i)
			continue
		}
		n, err := spec.TextBytes(backbone, classes, prompt)
		if err != nil {
			return nil, err
		}
		if prompt.PerImage() {
			n *= c.rows
		}
		split, at, bytes = append(split, prompt), append(at, i), bytes+n
	}

	size := spec.ClassesAtOnce(len(classes), bytes, c.bound)
	if size == len(classes) {
		return backbone.Text(g, classes, prompts)
	}

	out, parts := make([]graph.Node, len(prompts)), make([][]graph.Node, len(split))
	for from := 0; from < len(classes); from += size {
		some := classes[from:min(from+size, len(classes))]
		now := slices.Clone(split)
		for i, p := range now {
			if p.PerClass {
				now[i].Ctx = p.Ctx.Slice(0, from, from+len(some))
			}
		}

		features, err := backbone.Text(g, some, now)
		if err != nil {
			return nil, err
		}

		for i, f := range features {
			features[i] = f.Detach()
			parts[i] = append(parts[i], features[i])
		}

		c.list = append(c.list, chunk{features, func(after graph.Node) ([]graph.Node, error) {
			later := slices.Clone(now)
			for i, p := range later {
				later[i].Ctx = p.Ctx.Add(after.MulScalar(0).Detach())
			}
			return backbone.Text(g, some, later)
		}})
	}

	for i, p := range parts {
		out[at[i]] = graph.Concat(p[0].Rank()-2, p...)
	}

	if len(whole) > 0 {
		features, err := backbone.Text(g, classes, whole)
		if err != nil {
			return nil, err
		}
		for i, f := range features {
			out[rest[i]] = f
		}
	}

	return out, nil
}

// gradients is grad.Of for a loss over the features of chunks.
func (c *classChunks) gradients(loss graph.Node, wrt []graph.Node) ([]graph.Node, error) {
	reached := graph.Reachable(loss)
	chunks := slices.DeleteFunc(slices.Clone(c.list), func(k chunk) bool {
		return !slices.ContainsFunc(k.features, func(f graph.Node) bool { return slices.Contains(reached, f.Op()) })
	})
	all := slices.Clone(wrt)
	for _, k := range chunks {
		all = append(all, k.features...)
	}

	grads, err := grad.Of(loss, all...)
	for _, chunk := range slices.Backward(chunks) { // a prompt may depend on the features of an earlier chunk
		if err != nil {
			return nil, err
		}

		all = all[:len(all)-len(chunk.features)]
		cotangents := grads[len(all):]
		grads = grads[:len(all)]
		sum := cotangents[0].Sum()
		for _, d := range cotangents[1:] {
			sum = sum.Add(d.Sum())
		}

		features, err := chunk.again(sum)
		if err != nil {
			return nil, err
		}

		more, err := grad.VJP(features, cotangents, all...)
		if err != nil {
			return nil, err
		}

		for i, d := range more {
			grads[i] = grads[i].Add(d)
		}
	}

	return grads, err
}
