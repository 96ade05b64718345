package prompts

import (
	"context"
	"slices"
	"testing"

	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// A frame of 1 of an image of 4 by 4 pixels has 12 pixels in each colour. Wider frames, and none, have all.
func TestFrameOfPixels(t *testing.T) {
	ones := tensor.New(3, 4, 4)
	for i := range ones.Data {
		ones.Data[i] = 1
	}
	edge := []float32{1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1}
	for border, want := range map[int][]float32{0: ones.Data, 1: slices.Concat(edge, edge, edge), 2: ones.Data,
		9: ones.Data} {
		g := graph.New()
		out := Visual{Border: border}.framed(g.Input("prompt", graph.Float, graph.Static(3, 4, 4)), 4)
		model, err := graph.Model(graph.Output{Name: "framed", Node: out.MulScalar(1)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := ort.RunOnce(context.Background(), model, ort.Options{}, tensor.Map{"prompt": ones})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got["framed"].Data, want) {
			t.Errorf("border %d leaves %v", border, got["framed"].Data)
		}
	}
}
