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
func WriteEmbeddings(ctx context.Context, f *experiment.Federation, dir string, progress experiment.Progress) error {
	e := f.Experiment
	set := f.Settings().Client
	set.Programs = nil // none has the features of classes
	w := client.NewWorker(e, set)
	defer w.Close()
	out := tensor.Map{}
	for _, b := range f.Task.Backbones.Distinct {
		rows, err := f.TestFeatures(ctx, b, progress)
		if err != nil {
			return err
		}
		some := rows.Pick(spread(rows.Class, len(e.Classes), f.Task.Protocol.Config.Eval.Embeddings))
		image, err := some.Views[0].Read(some.At)
		if err != nil {
			return err
		}
		out[b.Name+"/image"], out[b.Name+"/label"] = image, tensor.OfInts(some.Class, some.Len())
		i := slices.Index(f.Task.Backbones.Assigned, b)
		if i < 0 {
			continue
		}
		c := e.Clients[i]
		untrained, err := engine.InitialParams(e, c)
		if err != nil {
			return err
		}
		learned, _, err := state.ReadPrompts(dir, i)
		if err != nil {
			return err
		}
		for name, prompts := range map[string]tensor.Map{"start": untrained, "end": learned} {
			t, err := TextFeatures(w, ctx, c, len(e.Clients), prompts)
			if err != nil {
				return configtags.KeyErrorf("eval.embeddings", "%w; set it to 0 for this method", err)
			}
			out[b.Name+"/text/"+name] = t
		}
	}
	return safetensors.WriteFile(filepath.Join(dir, record.EmbeddingsFile), out, nil)
}

// spread picks up to n examples, the same number of every class as far as there are any, the first ones of each;
// ascending.
func spread(labels []int64, classes, n int) []int {
	of := make([][]int, classes)
	for i, y := range labels {
		of[y] = append(of[y], i)
	}
	var out []int
	for turn := 0; len(out) < n; turn++ {
		before := len(out)
		for _, list := range of {
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
