package report

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/runtime/convert"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
)

// mostMaps is the largest number of panels in figures of embeddings.
const mostMaps = 12

// mapped returns the runs in a figure of prompts or features: the first finished run of each label of an axis.
func (v *view) mapped(f configs.Figure) []facetRun {
	var out []facetRun
	for _, p := range facets(v.groups, cmp.Or(f.Panel, v.axis)) {
		for _, g := range p.groups {
			if done := g.Done(); len(done) > 0 && len(out) < mostMaps {
				out = append(out, facetRun{p.title, done[0]})
				break
			}
		}
	}

	return out
}

type facetRun struct {
	label string
	run   *results.Run
}

// tensors reads a file of tensors of a run, and its clients; nil without an error if the file does not exist.
func (r facetRun) tensors(name string) (tensor.Map, *experiment.Clients, error) {
	path := filepath.Join(r.run.Dir, name)
	t, _, err := safetensors.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}

	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}

	info, err := r.run.Clients()
	return t, info, err
}

// tsne maps the learned parameters of each client, coloured by backbone.
func (v *view) tsne(f configs.Figure, _ results.Metric) (figures.Drawer, error) {
	out := figures.TSNE{Title: f.Title}
	by := cmp.Or(f.Group, "backbone")
	for _, facetRun := range v.mapped(f) {
		prompts, info, err := facetRun.tensors(record.PromptsFile)
		if err != nil {
			return nil, err
		}

		rows, clients := promptRows(prompts)
		if len(rows) < 4 || !whole(rows) {
			continue // no private parameters, or too few clients for a map
		}

		panel := figures.TSNEPanel{Title: facetRun.label, Rows: rows}
		if info != nil && slices.Max(clients) < len(info.Clients) {
			for _, k := range clients {
				panel.Groups = append(panel.Groups, kindOf(info.Clients[k], by))
			}
		}

		out.Panels = append(out.Panels, panel)
	}

	return out, nil
}

// promptRows returns the learned numbers of each client as a row, and the clients. A row has all private numbers, then
// the trained shared numbers, tensor by tensor. If the lengths differ, as with prompts of several lengths, tensors of
// [tokens, width] are averaged over tokens.
func promptRows(prompts tensor.Map) (rows [][]float64, clients []int) {
	names := map[int][]string{}
	for _, name := range results.SortedKeys(prompts) {
		part := strings.SplitN(name, "/", 4)
		if len(part) < 4 || part[0] != "client" || part[2] != "private" && part[2] != "own" || prompts[name].IsInt() {
			continue
		}
		if k, err := strconv.Atoi(part[1]); err == nil && k >= 0 {
			names[k] = append(names[k], name)
		}
	}

	for k := range names {
		clients = append(clients, k)
	}

	slices.Sort(clients)
	for _, mean := range []bool{false, true} {
		rows = nil
		for _, k := range clients {
			var row []float64
			for _, name := range names[k] {
				row = append(row, numbersOf(prompts[name], mean)...)
			}
			rows = append(rows, row)
		}
		if !slices.ContainsFunc(rows, func(r []float64) bool { return len(r) != len(rows[0]) }) {
			return rows, clients
		}
	}

	return nil, nil
}

// numbersOf returns the numbers of a tensor, or with mean, the mean over the rows of a matrix.
func numbersOf(t *tensor.Tensor, mean bool) []float64 {
	rows := matrix(t)
	if !mean || len(rows) == 0 {
		return convert.Slice(t.Data, func(x float32) float64 { return float64(x) })
	}

	out := make([]float64, t.Shape[1])
	for _, row := range rows {
		for j, x := range row {
			out[j] += x / float64(len(rows))
		}
	}

	return out
}

// pca maps image features with the class features before and after training, for runs that recorded them
// (eval.embeddings).
func (v *view) pca(f configs.Figure, _ results.Metric) (figures.Drawer, error) {
	out := figures.PCA{Title: f.Title, PerClass: f.Panel == configs.ClassPanel}
	if out.PerClass {
		f.Panel = ""
	}

	for _, facetRun := range v.mapped(f) {
		tensors, info, err := facetRun.tensors(record.EmbeddingsFile)
		if err != nil {
			return nil, err
		}

		if tensors != nil && info != nil && out.Classes == nil {
			out.Classes = info.Classes
		}

		for _, name := range results.SortedKeys(tensors) {
			backbone, ok := strings.CutSuffix(name, "/image")
			if !ok || len(out.Panels) == mostMaps {
				continue
			}

			image, label, start, end := tensors[name], tensors[backbone+"/label"], tensors[backbone+"/text/start"],
				tensors[backbone+"/text/end"]
			if label == nil || start == nil || end == nil || len(image.Shape) != 2 ||
				len(label.Ints) != image.Shape[0] {
				return nil, fmt.Errorf("%s: %s has no labels or texts beside it",
					filepath.Join(facetRun.run.Dir, record.EmbeddingsFile), name)
			}

			panel := figures.PCAPanel{Title: joined(", ", facetRun.label, backbone), Images: matrix(image),
				Before: matrix(start), After: matrix(end)}
			for _, c := range label.Ints {
				panel.Labels = append(panel.Labels, int(c))
			}

			out.Panels = append(out.Panels, panel)
		}
	}

	return out, nil
}

// matrix returns the rows of a matrix, or nil for other tensors.
func matrix(t *tensor.Tensor) [][]float64 {
	if len(t.Shape) != 2 || t.IsInt() {
		return nil
	}

	var out [][]float64
	w := t.Shape[1]
	for i := range t.Shape[0] {
		row := make([]float64, w)
		for j := range w {
			row[j] = float64(t.Data[i*w+j])
		}
		out = append(out, row)
	}

	return out
}
