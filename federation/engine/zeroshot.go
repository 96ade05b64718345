package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"promptfed/runtime/tensor"
)

// ZeroShot is how well the hand-written prompts of an experiment classify the test images of all clients of one
// backbone, before anything is trained.
type ZeroShot struct {
	Backbone string  `json:"backbone"`
	Accuracy float64 `json:"accuracy"` // right answers over test examples
	Classes  int     `json:"classes"`
	// the larger of 1/classes and the share of the most frequent class among these images
	Chance float64 `json:"chance"`
	// Failed says why there is no accuracy, as where a class name is too long for the texts.
	Failed string `json:"failed,omitempty"`
}

// ZeroShotWarnings are the lines of those that have one.
func ZeroShotWarnings(list []ZeroShot) []string {
	var out []string
	for _, z := range list {
		if line := z.warning(); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// warning says in a line what to check where hand-written prompts are no better than chance; empty where they are.
func (z ZeroShot) warning() string {
	switch {
	case z.Failed != "":
		return fmt.Sprintf("zero-shot accuracy of %s could not be computed: %s", z.Backbone, z.Failed)
	case z.Accuracy > z.Chance, z.Chance == 1: // nothing is above the chance of test images of one class
		return ""
	}
	return fmt.Sprintf("zero-shot accuracy of %s is %.1f %%, not above chance (%.1f %%: the larger of 1/%d and the "+
		"most frequent class): "+
		"check the order and spelling of class names, the labels, data.template, and that images are preprocessed as "+
		"the backbone expects",
		z.Backbone, 100*z.Accuracy, 100*z.Chance, z.Classes)
}

// ZeroShot compares hand-written prompts with chance on the test data of some clients, for each backbone: class scores
// are the products of the image features, unit rows, with those of the texts.
func (w *Worker) ZeroShot(ctx context.Context, clients []*Client) ([]ZeroShot, error) {
	type sum struct {
		right, n int
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
		texts, err := w.c.handText(client.Backbone, "")
		if err != nil {
			s.failed = err.Error()
			continue
		}
		for rows := range slices.Chunk(all(client.Test.Len()), zeroShotRows) {
			batch, err := client.Test.Batch(rows, nil)
			if err != nil {
				return nil, fmt.Errorf("zero-shot accuracy, client %d: %w", client.ID, err)
			}
			scores := products(batch["image"], texts)
			for i, y := range batch["label"].Ints {
				s.class[y]++
				s.n++
				if argmax(scores.Row(i).Data) == y {
					s.right++
				}
			}
		}
	}
	var out []ZeroShot
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		if s.failed != "" {
			out = append(out, ZeroShot{Backbone: name, Failed: s.failed})
			continue
		}
		most := slices.Max(slices.Collect(maps.Values(s.class)))
		classes := len(w.c.classes)
		out = append(out, ZeroShot{Backbone: name, Accuracy: float64(s.right) / float64(s.n), Classes: classes,
			Chance: max(1/float64(classes), float64(most)/float64(s.n))})
	}
	return out, nil
}

// zeroShotRows is how many images are scored at a time.
const zeroShotRows = 1024

// products are those of the rows of a [N,D] and b [C,D].
func products(a, b *tensor.Tensor) *tensor.Tensor {
	out := tensor.New(a.Shape[0], b.Shape[0])
	of := func(t *tensor.Tensor) blas32.General {
		return blas32.General{Rows: t.Shape[0], Cols: t.Shape[1], Stride: t.Shape[1], Data: t.Data}
	}
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, of(a), of(b), 0, of(out))
	return out
}
