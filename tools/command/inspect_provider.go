package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
)

// libraryRows tell which ONNX Runtime is in use, and of the provider cuda which libraries it needs and where it runs.
func libraryRows(o ort.Options) (rows [][]string, err error) {
	_, why, err := ort.ChooseProvider(o)
	path, version, failed := ort.Library()
	if failed != nil {
		return nil, failed
	}
	rows = [][]string{{"what", "value"}, {"ONNX Runtime", version + ", " + path}}
	if o.Provider != ort.CPU {
		needed, failed := ort.CUDALibraries()
		if failed != nil {
			return nil, failed
		}
		for _, n := range needed {
			rows = append(rows, []string{n.Name, map[bool]string{true: "found", false: "missing"}[n.Found]})
		}
	}
	switch {
	case err != nil:
		return rows, err
	case why != nil:
		return append(rows, []string{"provider " + o.Provider, "cpu: " + why.Error()}), nil
	}
	return append(rows, []string{"provider " + o.Provider, "runs"}), nil
}

// placementRows tell which provider runs how many operators of the graphs of a bundle or an ONNX file: those that a
// provider other than the CPU leaves to the CPU are named.
func placementRows(r bundle.Report, o ort.Options) (rows [][]string, err error) {
	o.Placement = true
	add := func(what string, s *ort.Session, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		defer s.Close()
		nodes, err := s.Placement()
		if err != nil {
			return err
		}
		by := map[string]map[string]int{}
		for _, n := range nodes {
			if by[n.Provider] == nil {
				by[n.Provider] = map[string]int{}
			}
			by[n.Provider][n.Operator]++
		}
		for _, provider := range slices.Sorted(maps.Keys(by)) {
			total, ops := 0, []string(nil)
			for _, op := range slices.Sorted(maps.Keys(by[provider])) {
				total += by[provider][op]
				ops = append(ops, fmt.Sprintf("%s %d", op, by[provider][op]))
			}
			value := fmt.Sprintf("%d operators", total)
			if provider == ort.CPU && s.Provider() != ort.CPU {
				value += ", which " + s.Provider() + " leaves to it: " + strings.Join(ops, ", ")
			}
			rows = append(rows, []string{what + " on " + provider, value})
		}
		return nil
	}
	b := r.Bundle
	switch {
	case b == nil && r.Kind == bundle.KindONNX:
		s, err := ort.Open(r.Path, o)
		return rows, add("graph", s, err)
	case b == nil:
		return nil, usageError{fmt.Errorf("%s is a %s: --provider is for bundles and ONNX files", r.Path, r.Kind)}
	}
	o.WeightsDir = b.WeightsDir()
	image, err := b.ImageModel()
	if err != nil {
		return nil, err
	}
	step, err := stepModel(b, o.Provider)
	if err != nil {
		return nil, err
	}
	s, err := ort.NewSession(image, o)
	if err := add("image tower", s, err); err != nil {
		return nil, err
	}
	s, err = ort.NewSession(step, o)
	return rows, add("training step", s, err)
}

// stepModel is the text tower over two classes, with the gradient of a prompt of 16 tokens, as training builds it.
func stepModel(b *bundle.Bundle, provider string) (*onnx.ModelProto, error) {
	g := graph.New()
	if provider == ort.CPU {
		g.UseKernels()
	}
	ctx := g.Input("ctx", graph.Float, graph.Static(16, b.Text.Width))
	features, err := b.Prompts(g, []string{"cat", "dog"}, []clip.Prompt{{Ctx: ctx}})
	if err != nil {
		return nil, err
	}
	loss := features[0].Mul(features[0]).Sum()
	gradient, err := grad.Of(loss, ctx)
	if err != nil {
		return nil, err
	}
	return graph.Model(graph.Output{Name: "loss", Node: loss}, graph.Output{Name: "grad/ctx", Node: gradient[0]})
}
