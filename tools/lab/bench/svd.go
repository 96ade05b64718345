package bench

import (
	"context"
	"fmt"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/projection"
	"promptfed/runtime/tensor"
)

// svdUploads is the number of clients whose prompts SVD averages, as in the tables that it is compared with.
const svdUploads = 10

// SVD measures what FedPHA's Table 3 and SDFed's Table 5 time, for every projector and for shared prompts of 16 and of
// 8 tokens of width 512: the decomposition of the shared prompt with the choice of directions, its gradient, the
// projection of a private prompt of the same length, and the server's mean over ten clients.
func SVD(ctx context.Context, m *Measurement) error {
	const width = 512
	table := m.table([]string{"tokens", "projector", "ms decomposition", "ms gradient", "ms projection",
		"ms aggregation"}, fmt.Sprintf("in Go, on one core; prompts of width %d are random, "+
		"the ratio is %g, the aggregation of %d clients; medians", width, removed, svdUploads))
	rounds := 30
	if m.Quick {
		rounds = 5
	}

	for _, tokens := range []int{16, 8} {
		draw := func(client int) *tensor.Tensor { return method.Draw(seed, client, "ctx", []int{tokens, width}, 0.02) }
		var uploads []method.Upload
		for client := range svdUploads {
			uploads = append(uploads, method.Upload{Client: client, N: 1 + client,
				Shared: tensor.Map{"ctx": draw(client)}})
		}

		shared := uploads[0].Shared["ctx"]
		for _, kind := range projection.Kinds() {
			by := projection.OfPrompt{Projector: kind, Ratio: removed, Gradient: "through"}
			factors, vjp, err := by.Factors(shared)
			if err != nil {
				return err
			}

			projector, err := projection.Project(shared, kind, removed)
			if err != nil {
				return err
			}

			timed := func(what string, run func() error) *contestant {
				return &contestant{what: what, run: func(context.Context) error { return run() }}
			}
			all := []*contestant{timed("decomposition", func() error {
				_, _, err := by.Factors(shared)
				return err
			}), timed("gradient", func() error {
				_, err := vjp(factors)
				return err
			}), timed("projection", func() error {
				_, err := projector.Apply(uploads[1].Shared["ctx"])
				return err
			}), timed("aggregation", func() error {
				method.Mean(uploads, func(u method.Upload) tensor.Map { return u.Shared })
				return nil
			})}

			if err := m.interleave(ctx, fmt.Sprintf("%s, %d tokens", kind, tokens), rounds, 1, all...); err != nil {
				return err
			}

			row := []any{tokens, kind}
			for _, c := range all {
				row = append(row, Number{1e3 * median(c.seconds), "%.3f"})
			}

			table.add(row...)
		}
	}

	m.Title = "SVD, projector and aggregation of FedPHA and SDFed; " + platform()
	return nil
}
