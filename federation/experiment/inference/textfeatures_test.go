package inference_test

import (
	"context"
	"math"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/experiment/inference"
	"promptfed/federation/methodtest"
	"promptfed/runtime/tensor"
)

// TestTextFeatures: class scores are scale times image times text features, which training changes.
func TestTextFeatures(t *testing.T) {
	e := toy(t)
	r := mustRun(t, e, engine.Settings{})
	w := client.NewWorker(e, client.Settings{})
	defer w.Close()
	for _, c := range e.Clients[:2] {
		rows := methodtest.Rows(77, 6, c.Backbone.Task().Dim, len(e.Classes))
		batch, err := rows.Batch([]int{0, 1, 2, 3, 4, 5}, nil)
		if err != nil {
			t.Fatal(err)
		}
		start, err := engine.InitialParams(e, c)
		if err != nil {
			t.Fatal(err)
		}
		var before *tensor.Tensor
		for i, prompts := range []tensor.Map{start, r.Prompts} {
			text, err := inference.TextFeatures(context.Background(), w, c, len(e.Clients), prompts)
			if err != nil {
				t.Fatal(err)
			}
			want, err := inference.Predict(context.Background(), w, c, len(e.Clients), prompts, rows)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 6 {
				for k := range e.Classes {
					sum := 0.0
					for d, v := range batch["image"].Row(n).Data {
						sum += float64(v) * float64(text.Row(k).Data[d])
					}
					if got := sum * c.Backbone.Task().Scale; math.Abs(got-float64(want.Row(n).Data[k])) > 1e-4 {
						t.Errorf("client %d, row %d, class %d: %g, scored %g", c.ID, n, k, got, want.Row(n).Data[k])
					}
				}
			}
			if i == 0 {
				before = text
			} else if before.Data[0] == text.Data[0] {
				t.Error("training changed nothing")
			}
		}
	}
}
