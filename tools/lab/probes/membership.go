package main

import (
	"cmp"
	"context"
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// seeds of the tables.
var seeds = []uint64{1, 2, 3}

// membership prints how well the server distinguishes a client's training images from other images of the same classes.
// The score is the decrease of an image's loss through the upload (a threshold on the loss, Yeom et al., CSF 2018, with
// the received prompt as reference). Each client has two images of each class; twelve other images of each class belong
// to nobody.
func (p *probe) membership(ctx context.Context) error {
	const rounds = 10
	fmt.Printf("Membership: area under the ROC curve, 0.5 is chance; %d clients with 2 images of each of %d "+
		"classes.\n\n", clients, len(p.source.Experiment.Classes))
	fmt.Printf("| protection | round 1 | round %d |\n|:--- | ---:| ---:|\n", rounds)
	for _, s := range protections {
		var first, last []float64
		for _, seed := range seeds {
			area, err := p.members(ctx, s, seed, rounds)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			first, last = append(first, area[0]), append(last, area[1])
		}
		fmt.Printf("| %s | %s | %s |\n", s.name, meanStd(first), meanStd(last))
	}

	fmt.Println()
	return nil
}

func meanStd(v []float64) string {
	mean, std := stat.MeanStdDev(v, nil)
	return fmt.Sprintf("%.3f ± %.3f", mean, std)
}

// members runs a federation and returns the areas in its first and last round, means over clients.
func (p *probe) members(ctx context.Context, protection protection, seed uint64, rounds int) (area [2]float64,
	err error) {
	dealt, left := p.deal(seed, len(p.source.Experiment.Classes), 2)
	experiment, err := p.experiment(protection, seed, dealt, sgd(2, 0.05), rounds)
	if err != nil {
		return area, err
	}

	rec := trace.NewRecorder()
	set := p.source.Settings()
	set.Client.Tracer = rec
	if _, err := engine.Run(ctx, experiment, set); err != nil {
		return area, err
	}

	worker := client.NewWorker(experiment, p.source.Settings().Client)
	defer worker.Close()
	others := p.pool.Pick(left)
	for at, round := range []int{0, rounds - 1} {
		received := rec.Tensors.WithoutPrefix("init")
		if round > 0 {
			received = rec.Tensors.WithoutPrefix(fmt.Sprintf("r%d/merged", round-1))
		}

		for k, site := range experiment.Clients {
			seen := rec.Tensors.WithoutPrefix(fmt.Sprintf("r%d/c%d/upload", round, k))
			if protection.summed {
				seen = rec.Tensors.WithoutPrefix(fmt.Sprintf("r%d/merged", round))
			}

			var drops [2][]float64 // for members and for others
			for i, rows := range []method.Data{site.Train, others} {
				before, err := losses(ctx, worker, site, received, rows)
				if err != nil {
					return area, err
				}
				after, err := losses(ctx, worker, site, seen, rows)
				if err != nil {
					return area, err
				}
				for j := range before {
					drops[i] = append(drops[i], before[j]-after[j])
				}
			}

			area[at] += auc(drops[0], drops[1]) / clients
		}
	}

	return area, nil
}

// losses returns the cross entropies of rows with the shared parameters.
func losses(ctx context.Context, w *client.Worker, site *spec.Client, shared tensor.Map,
	rows method.Data) ([]float64, error) {
	instruction := message.Instruction{Kind: message.Test, Total: clients, Shared: shared}
	local, state := w.Begin(ctx, site, instruction, message.ClientState{})
	scores, err := w.ScoreRows(ctx, site, local, state, rows)
	if err != nil {
		return nil, err
	}

	out := make([]float64, rows.Len())
	for i, y := range rows.Labels() {
		z := float64s(scores.Row(i).Data)
		out[i] = floats.LogSumExp(z) - z[y]
	}

	return out, nil
}

// auc returns the area under the ROC curve: the probability that a value of yes exceeds a value of no, ties counted
// half.
func auc(yes, no []float64) float64 {
	pairs := 0.0
	for _, a := range yes {
		for _, b := range no {
			pairs += float64(cmp.Compare(a, b)+1) / 2
		}
	}
	return pairs / float64(len(yes)*len(no))
}
