package pretrain

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"promptfed/federation/data"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

const stateName = "training.safetensors"

// fingerprint identifies the trainings that can use each other's checkpoints, by their configurations and by the
// contents of the files that these name.
func (t *trainer) fingerprint() string {
	c := t.cfg
	c.Out, c.Checkpoint = "", 0
	h := sha256.New()
	io.WriteString(h, t.started.SHA256)
	for _, s := range t.data.samplers {
		if l, ok := s.(*lister); ok {
			fmt.Fprintf(h, "%s %v %q %q\n", data.Digest(l.list), data.Labels(l.list), l.set.Classes, l.set.Domains)
		}
	}

	return fmt.Sprintf("%+v images %x", c, h.Sum(nil))
}

func (t *trainer) statePath() string { return filepath.Join(t.cfg.Out, stateName) }

// save writes the weights, the optimizer state and the number of steps.
func (t *trainer) save() error {
	if err := os.MkdirAll(t.cfg.Out, 0o755); err != nil {
		return err
	}

	losses := tensor.New(len(t.losses))
	for i, l := range t.losses {
		losses.Data[i] = float32(l)
	}

	m := tensor.Map{"step": tensor.OfInts([]int64{int64(t.step)}, 1), "losses": losses}
	m.Put("weight", t.weights).Put("moment", t.moments).Put("optimizer", t.opt.State())
	return safetensors.WriteFile(t.statePath(), m, map[string]string{"config": t.fingerprint()})
}

// resume continues from the checkpoint in the output folder, if there is one.
func (t *trainer) resume() error {
	path := t.statePath()
	tensors, meta, err := safetensors.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	if meta["config"] != t.fingerprint() {
		return fmt.Errorf("%s was written with another configuration, other images or other weights of start: "+
			"remove it, or set another out", path)
	}

	weights, moments := tensors.WithoutPrefix("weight"), tensors.WithoutPrefix("moment")
	for _, part := range []struct{ got, want tensor.Map }{{weights, t.weights}, {moments, t.moments}} {
		for name, w := range part.want {
			if got := part.got[name]; got == nil || !got.SameShape(w) {
				return fmt.Errorf("%s: weight %s is %v, want %v: remove the file", path, name, got, w)
			}
		}
	}

	step := tensors["step"]
	if step == nil || len(step.Ints) != 1 || step.Ints[0] < 0 || step.Ints[0] > int64(t.cfg.Train.Steps) {
		return fmt.Errorf("%s: no valid step: remove the file", path)
	}

	if err := t.opt.Load(tensors.WithoutPrefix("optimizer")); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	t.weights, t.moments, t.step = weights, moments, int(step.Ints[0])
	if l := tensors["losses"]; l != nil {
		for _, v := range l.Data {
			t.losses = append(t.losses, float64(v))
		}
	}

	return nil
}
