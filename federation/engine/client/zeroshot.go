package client

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// ZeroShot compares hand-written prompts with chance on the test data of some clients, for each backbone. Class scores
// are the products of the image features, unit rows, with the text features.
func (w *Worker) ZeroShot(ctx context.Context, clients []*spec.Client) ([]record.ZeroShot, error) {
	type sum struct {
		right, n int
		mean     []float64 // accuracy of each client
		class    map[int64]int
		failed   string
	}
	sums := map[string]*sum{}
	for _, client := range clients {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := sums[client.Backbone.Name()]
		if s == nil {
			s = &sum{class: map[int64]int{}}
			sums[client.Backbone.Name()] = s
		}
		if s.failed != "" {
			continue
		}
		texts, err := w.c.handText(client.Backbone, method.HandTexts{})
		if err != nil {
			s.failed = err.Error()
			continue
		}
		before := *s
		for rows := range slices.Chunk(message.Indices(client.Test.Len()), zeroShotRows) {
			batch, err := client.Test.Batch(rows, nil)
			if err != nil {
				return nil, fmt.Errorf("zero-shot accuracy, client %d: %w", client.ID, err)
			}
			scores := products(batch["image"], texts)
			for i, y := range batch["label"].Ints {
				s.class[y]++
				s.n++
				if metrics.Argmax(scores.Row(i).Data) == y {
					s.right++
				}
			}
		}
		if n := s.n - before.n; n > 0 {
			s.mean = append(s.mean, float64(s.right-before.right)/float64(n))
		}
	}
	var out []record.ZeroShot
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		if s.failed != "" {
			out = append(out, record.ZeroShot{Backbone: name, Failed: s.failed})
			continue
		}
		if s.n == 0 {
			continue
		}
		most := slices.Max(slices.Collect(maps.Values(s.class)))
		classes := len(w.Classes)
		mean, _ := metrics.MeanStd(s.mean)
		out = append(out, record.ZeroShot{Backbone: name, Accuracy: float64(s.right) / float64(s.n),
			Clients: len(s.mean), Mean: mean, Classes: classes,
			Chance: max(1/float64(classes), float64(most)/float64(s.n))})
	}
	return out, nil
}

const zeroShotRows = 1024

// products returns the products of the rows of a [N,D] and b [C,D].
func products(a, b *tensor.Tensor) *tensor.Tensor {
	out := tensor.New(a.Shape[0], b.Shape[0])
	of := func(t *tensor.Tensor) blas32.General {
		return blas32.General{Rows: t.Shape[0], Cols: t.Shape[1], Stride: t.Shape[1], Data: t.Data}
	}
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, of(a), of(b), 0, of(out))
	return out
}
