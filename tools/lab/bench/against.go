package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"promptfed/models/clip"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// ComparePyTorch measures the step and the PyTorch step of tools/golden/step_torch.py in turns, on the same random
// weights, prompts and images. The PyTorch step runs in the given Python interpreter. The working folder must be a
// checkout of the source.
func ComparePyTorch(ctx context.Context, o Options, python string) (r Report, err error) {
	o, lists, err := o.complete()
	if err != nil {
		return r, err
	}
	if o.Backbone != nil {
		return r, errors.New("--against measures random weights: leave --backbone out")
	}
	t, remove, err := openTower(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	results := Table{Columns: []string{"classes", "threads", "step ms (min-max)", "PyTorch", "ms (min-max)",
		"ours faster", "gradients differ"},
		Notes: []string{"times are medians; \"faster\" is the median of ratios within a turn"}}
	version := ""
	for _, set := range lists {
		for _, threads := range o.Threads {
			if version, err = o.against(ctx, t, set, threads, python, &results); err != nil {
				return r, fmt.Errorf("%s, %d threads: %w", set.name, threads, err)
			}
		}
	}
	r.Title = fmt.Sprintf("the step against one written by hand in PyTorch %s: shared prefix, no padding; %d cores, %s",
		version, runtime.NumCPU(), platform())
	r.Tables = []Table{results}
	return r, nil
}

func (o Options) against(ctx context.Context, t *tower, set classSet, threads int, python string,
	results *Table) (version string, err error) {
	var open opened
	defer open.close(&err)
	session, classes := o.session(threads), set.classes.Names()
	s := open.step(promptFL(t, classes, session, nil))
	if open.err != nil {
		return "", open.err
	}
	if err := s.export(t); err != nil {
		return "", err
	}
	torch, err := startOpponent(ctx, opponents["pytorch"], python, t.dir, threads)
	if err != nil {
		return "", err
	}
	open.add(torch.close, nil)
	want, err := gradient(ctx, t, classes, session)
	if err != nil {
		return "", err
	}
	got, err := torch.tensor("gradient", filepath.Join(t.dir, "gradient"), want.Shape)
	if err != nil {
		return "", err
	}
	differ := distance(got, want)
	if differ > 1e-3 {
		return "", fmt.Errorf("the gradients of the two steps differ by %.1g: they are not the same step", differ)
	}
	all := []*contestant{&s.contestant}
	for _, mode := range slices.Sorted(slices.Values(torch.Modes)) {
		all = append(all, &contestant{what: mode, run: func(context.Context) error { return torch.ask(mode) }})
	}
	if err := o.steps(ctx, fmt.Sprintf("%s, threads %d", set.name, threads), all...); err != nil {
		return "", err
	}
	for _, c := range all[1:] {
		results.add(set.name, threads, s.timing(), c.what, c.timing(), factor(ratio(c, all[0])), scientific(differ))
	}
	return torch.Version, nil
}

// export writes the inputs of a step, except the tower's weights, for step_torch.py.
func (s *step) export(t *tower) error {
	m, err := s.client.Train.Batch(tensor.Indices(s.client.Train.Len()), nil)
	if err != nil {
		return err
	}
	m["ctx"] = s.order.Shared["ctx"]
	return export(t, s.set, m)
}

// export adds to ctx [T,w], image [B,D] and label [B] what else the text tower of a step in step_torch.py needs, and
// writes all of it beside the tower's weights.
func export(t *tower, set *clip.Suffixes, m tensor.Map) error {
	lengths, ids := []int64{}, []int{t.sos}
	for _, class := range set.IDs {
		ids = append(ids, class...)
		lengths = append(lengths, int64(len(class)))
	}
	tokens, err := t.Embed(ids)
	if err != nil {
		return err
	}
	w := t.text().Width
	m["start"], m["suffix"] = tensor.Of(tokens[:w], 1, w), tensor.Of(tokens[w:], len(ids)-1, w)
	m["lengths"] = tensor.OfInts(lengths, len(lengths))
	m["scale"] = tensor.Of([]float32{float32(t.LogitScale)}, 1)
	m["heads"] = tensor.OfInts([]int64{int64(t.text().Heads)}, 1)
	return safetensors.WriteFile(filepath.Join(t.dir, "step.safetensors"), m, nil)
}
