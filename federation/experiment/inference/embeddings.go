package inference

import (
	"context"
	"path/filepath"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/state"
	"promptfed/federation/experiment"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// WriteEmbeddings writes record.EmbeddingsFile into the folder of a finished run; class features are those that the
// first client of each backbone is tested with. eval.embeddings bounds the images of a backbone, spread evenly over the
// classes.
func WriteEmbeddings(ctx context.Context, federation *experiment.Federation, dir string,
	progress experiment.Progress) error {
	exp := federation.Experiment
	set := federation.Settings().Client
	set.Programs = nil // none has the features of classes
	worker := client.NewWorker(exp, set)
	defer worker.Close()
	out := tensor.Map{}
	for _, model := range federation.Task.Backbones.Distinct {
		rows, err := federation.TestFeatures(ctx, model, progress)
		if err != nil {
			return err
		}

		some := rows.Pick(spread(rows.Class, len(exp.Classes), federation.Task.Protocol.Config.Eval.Embeddings))
		image, err := some.Views[0].Read(some.At)
		if err != nil {
			return err
		}

		out[model.Name+"/image"], out[model.Name+"/label"] = image, tensor.OfInts(some.Class, some.Len())
		i := slices.Index(federation.Task.Backbones.Assigned, model)
		if i < 0 {
			continue
		}

		site := exp.Clients[i]
		untrained, err := engine.InitialParams(exp, site)
		if err != nil {
			return err
		}

		learned, _, err := state.ReadPrompts(dir, i)
		if err != nil {
			return err
		}

		for name, prompts := range map[string]tensor.Map{"start": untrained, "end": learned} {
			t, err := TextFeatures(ctx, worker, site, len(exp.Clients), prompts)
			if err != nil {
				return configtags.KeyErrorf("eval.embeddings", "%w; set it to 0 for this method", err)
			}
			out[model.Name+"/text/"+name] = t
		}
	}

	return safetensors.WriteFile(filepath.Join(dir, record.EmbeddingsFile), out, nil)
}

// spread picks up to n examples, the same number of every class as far as there are any, the first ones of each;
// ascending.
func spread(labels []int64, classes, n int) []int {
	rows := make([][]int, classes)
	for i, y := range labels {
		rows[y] = append(rows[y], i)
	}

	var out []int
	for turn := 0; len(out) < n; turn++ {
		before := len(out)
		for _, list := range rows {
			if turn < len(list) && len(out) < n {
				out = append(out, list[turn])
			}
		}
		if len(out) == before {
			break
		}
	}

	slices.Sort(out)
	return out
}
