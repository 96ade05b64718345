// Package traffic counts the bytes of methods' encoded messages in a round.
package traffic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/engine"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// sized is a backbone of ViT-B/16's sizes whose towers only add up inputs. Messages have their real sizes, and
// computing costs almost nothing.
type sized struct{}

// Sizes for counting bytes: the sizes of FedAPPR's table S6. The number of classes is ours, because the table does not
// state it.
const (
	sizedWidth   = 512 // d, of prompts; p, of features
	sizedClasses = 100 // l
	sizedVision  = 768
	sizedTokens  = 16 // m, the default length of prompts
)

func (sized) Name() string       { return "vit-b16" }
func (sized) WeightsDir() string { return "" }
func (sized) Task() method.ClientSpec {
	return method.ClientSpec{Width: sizedWidth, Dim: sizedWidth, Patches: 4, Scale: 100, ImageSize: 16,
		VisionWidth: sizedVision, VisionLayers: 12, VisionUnits: 4 * sizedVision, TextLayers: 12,
		TextUnits: 4 * sizedWidth, Tokens: sizedTokens}
}

func (sized) Text(g *graph.Graph, classes []string, prompts []method.Prompt) ([]graph.Node, error) {
	var out []graph.Node
	for _, prompt := range prompts {
		n := len(classes)
		if prompt.NoClass {
			n = 1
		}
		x := g.Const(sizedRows(n))
		for _, tokens := range append([]graph.Node{prompt.Ctx}, prompt.Deep...) {
			if tokens.OK() {
				x = x.Add(tokens.MeanKeep(-2))
			}
		}
		out = append(out, x.Add(sumOf(g, prompt.Changes)))
	}

	return out, g.Err()
}

// sumOf returns a node that depends on all parts of the changes.
func sumOf(g *graph.Graph, c method.BlockChanges) graph.Node {
	sum := g.Scalar(0)
	for _, n := range graph.NodesOf(c) {
		sum = sum.Add(n.Sum())
	}
	return sum
}

func (sized) StepBytes([]string, method.Prompt) (int, error) { return 1, nil }

func (sized) Words(text string) (*tensor.Tensor, error) {
	return tensor.New(len(strings.Fields(text)), sizedWidth), nil
}

func (sized) Sentences(g *graph.Graph, texts []string) (graph.Node, error) {
	return g.Const(sizedRows(len(texts))), nil
}

func (sized) Vision(g *graph.Graph, pixels graph.Node, prompts method.VisionPrompts) (graph.Node, error) {
	if prompts.Pixels.OK() {
		pixels = pixels.Add(prompts.Pixels)
	}

	features := pixels.Reshape(-1, 3*16*16)
	if prompts.Embeddings {
		features = features.Unsqueeze(1)
		return graph.Concat(1, features, features, features, features), g.Err()
	}

	for _, tokens := range append([]graph.Node{prompts.Tokens}, prompts.Deep...) {
		switch {
		case !tokens.OK():
		case tokens.Rank() == 3: // one per image
			features = features.Add(tokens.Mean(1))
		default:
			features = features.Add(tokens.MeanKeep(0))
		}
	}

	return features.Slice(1, 0, sizedWidth).Add(sumOf(g, prompts.Changes)), g.Err()
}

// sizedRows returns n different rows.
func sizedRows(n int) *tensor.Tensor { return method.Draw(1, n, "rows", []int{n, sizedWidth}, 1) }

// traffic is the bytes that one client sends and receives in the second of two rounds, and the additional bytes of the
// first round's statistics.
type traffic struct{ up, down, first int }

// count runs two rounds of two clients and encodes every message.
func count(name string, with []string) (traffic, error) {
	base, err := methods.Build(name, with, nil)
	if err != nil {
		return traffic{}, err
	}

	data := &spec.Features{Views: []spec.RowReader{spec.InMemory{Tensor: sizedRows(2 * sizedClasses)}}}
	for i := range 2 * sizedClasses {
		data.Class = append(data.Class, int64(i/2))
	}

	for kind, shape := range map[string][]int{method.PatchesInput: {4, sizedWidth},
		method.TokensInput: {sizedTokens, sizedVision}, method.PixelsInput: {3, 16, 16}} {
		rows := method.Draw(1, 0, kind, append([]int{2 * sizedClasses}, shape...), 1)
		data.Add(kind, []spec.RowReader{spec.InMemory{Tensor: rows}})
	}

	experiment := &spec.Experiment{Name: name, MethodName: name, Method: base, Template: "{}",
		Plan: spec.Plan{Rounds: 2,
			TestEvery: 2},
		Training: spec.Training{Epochs: 1, Batch: 4 * sizedClasses, Optim: optim.Config{Name: "sgd", LR: 1e-3}}}

	for c := range sizedClasses {
		experiment.Classes = append(experiment.Classes, fmt.Sprint("class ", c))
	}

	const clients = 2
	for i := range clients {
		experiment.Clients = append(experiment.Clients, &spec.Client{ID: i, Backbone: sized{}, Train: data,
			Test: data.Pick([]int{0, 1})})
	}

	r, err := engine.Run(context.Background(), experiment, engine.Settings{Workers: 1, Encode: true})
	if err != nil {
		return traffic{}, err
	}

	a, b := r.Records[0], r.Records[1]
	return traffic{b.BytesUp / clients, b.BytesDown / clients,
		(a.BytesUp + a.BytesDown - b.BytesUp - b.BytesDown) / clients}, nil
}

// Row is what a client of a method sends and receives in a round.
type Row struct {
	Name          string `json:"name"` // METHOD, or METHOD+WRAPPER
	BytesUp       int    `json:"bytes_up"`
	BytesDown     int    `json:"bytes_down"`
	MoreInRound1  int    `json:"more_bytes_in_round_1"`
	Numbers       int    `json:"numbers"`       // of 4 bytes, both ways
	Formula       string `json:"formula"`       // of a paper, for Numbers; empty without one
	BytesExpected *int   `json:"formula_bytes"` // of the formula
}

// Rows counts the bytes of every method and wrapper, or of those that are named.
func Rows(names ...string) ([]Row, error) {
	var rows []Row
	for _, def := range methods.Table() {
		if len(names) > 0 && !slices.Contains(names, def.Name) {
			continue
		}

		name, with, title := def.Name, []string(nil), def.Name
		if def.Wrapper() {
			name, with = cmp.Or(def.Traffic.Over, "promptfl"), []string{def.Name}
			title = name + "+" + def.Name
		}

		t, err := count(name, with)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", title, err)
		}

		row := Row{title, t.up, t.down, t.first, (t.up + t.down) / 4, def.Traffic.Formula, nil}
		if numbers := def.Traffic.Numbers; numbers != nil {
			bytes := 4 * numbers(layer.Sizes{Tokens: sizedTokens, Width: sizedWidth, Classes: sizedClasses,
				Dim: sizedWidth, Hidden: 8})
			row.BytesExpected = &bytes
		}

		rows = append(rows, row)
	}

	return rows, nil
}

// Text returns a table of rows, with a header row.
func Text(list []Row) [][]string {
	rows := [][]string{{"method", "up, bytes", "down, bytes", "more in round 1", "numbers, both ways", "formula",
		"of it, bytes"}}
	for _, r := range list {
		expected := ""
		if r.BytesExpected != nil {
			expected = fmt.Sprint(*r.BytesExpected)
		}
		rows = append(rows, []string{r.Name, fmt.Sprint(r.BytesUp), fmt.Sprint(r.BytesDown), fmt.Sprint(r.MoreInRound1),
			fmt.Sprint(r.Numbers), r.Formula, expected})
	}

	return rows
}

// Note states the sizes behind Rows.
const Note = `One client and one round at d = p = 512, l = 100 classes and default options. Messages are counted as they
are encoded, names and shapes included, in the second round; formulas are those of FedAPPR's table S6, in numbers
of 4 bytes, both ways together, with d1 = 512, d2 = 8 and m = 16 tokens, also where a default is less.
`
