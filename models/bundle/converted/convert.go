package converted

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/clip"
	"promptfed/runtime/atomicfile"
)

// Options of Convert. The zero value takes everything from the checkpoint.
type Options struct {
	Name  string // of the bundle; the name of its folder when empty
	Vocab string // a vocabulary file or folder, where the checkpoint has none; see tokenizer.Load

	// Checkpoint settles what a checkpoint does not say.
	Checkpoint checkpoint.Options
	// Context ends the conversion early; nil never does.
	Context context.Context
	// Progress, when set, is told how many of the bytes of the weights are converted, or checked where they stay.
	Progress func(done, total int64)
}

// Convert makes a bundle at out of the checkpoint at src: anything checkpoint.Open reads that is a CLIP with a ViT or
// ResNet image tower. The bundle appears at out when it is complete; a failure leaves out as it was. An existing bundle
// at out is replaced, any other folder with files in it is refused.
func Convert(src, out string, o Options) (*bundle.Bundle, error) {
	c, err := checkpoint.Open(src, o.Checkpoint)
	if err != nil {
		return nil, oneLine(err)
	}
	defer c.Close()
	out, err = filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	if err := apart(c, out); err != nil {
		return nil, err
	}
	w, err := checkpoint.CLIP(c)
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = filepath.Base(out)
	}
	if err := bundle.CheckName(o.Name); err != nil {
		return nil, err
	}
	if o.Context == nil {
		o.Context = context.Background()
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	j := &conversion{Options: o, c: c, w: w}
	if err := j.describe(); err != nil {
		return nil, fmt.Errorf("%s: %w", src, err)
	}
	if err := atomicfile.Folder(out, bundle.ManifestFile, j.write); err != nil {
		return nil, fmt.Errorf("%s: converting %s: %w", out, src, explain(err))
	}
	j.read.Keep(out)
	return newBundle(out, j.m), nil
}

// apart refuses to replace a bundle that the checkpoint lies in.
func apart(c *checkpoint.Checkpoint, out string) error {
	dir, err := filepath.Abs(c.Dir())
	if err != nil {
		return err
	}
	if dir == out || strings.HasPrefix(dir, out+string(filepath.Separator)) {
		return fmt.Errorf("%s: the checkpoint lies in the folder for the bundle, %s: choose another one", c.Path(), out)
	}
	return nil
}

// explain says what to do about a full disk.
func explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w (nothing was left behind: make room, or choose another disk)", err)
	}
	return oneLine(err)
}

// oneLine keeps messages of other packages on one line.
func oneLine(err error) error {
	if !strings.Contains(err.Error(), "\n") {
		return err
	}
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}

// conversion is one run of Convert.
type conversion struct {
	Options
	c *checkpoint.Checkpoint
	w *checkpoint.Weights
	m Manifest

	read bundle.Reading // the files of the bundle
}

// describe fills in all of the manifest that needs no file.
func (j *conversion) describe() error {
	a := j.w.Arch
	j.m = Manifest{
		Version: bundle.Version, Name: j.Name, Architecture: a.Name(), Source: string(j.c.Format()),
		TextWidth: a.Text.Width, EmbedDim: a.EmbedDim, ImageSize: a.ImageSize, Context: a.Context,
		LogitScale: a.LogitScale, LogScale: math.Log(a.LogitScale), LogitBias: a.LogitBias,
		TokenizerFile: tokenizerFile,
		Text: clip.TextArch{Width: a.Text.Width, Layers: a.Text.Layers, Heads: a.Text.Heads, MLP: mlp(a.Text),
			Context: a.Context, EmbedDim: a.EmbedDim, Activation: a.Text.Activation, Eps: a.Text.Epsilon,
			Bidirectional: a.Bidirectional, Masked: a.Masked, PostNorm: a.PostNorm, Pool: a.TextPool,
			Pooler: j.w.Text.Pooler != nil, Hidden: a.TextHidden, ProjectionBias: j.w.Text.Projection.Bias != nil,
			NoProjection: a.NoTextProjection},
		Vision: clip.VisionArch{Width: a.Vision.Width, Layers: a.Vision.Layers, Heads: a.Vision.Heads, Stages: a.Stages,
			MLP: mlp(a.Vision), Patch: a.Patch, Image: a.ImageSize, EmbedDim: a.EmbedDim,
			Activation: a.Vision.Activation, Eps: a.Vision.Epsilon, Pool: a.VisionPool, NoClass: a.NoClass,
			NoPreNorm: a.NoPreNorm, NormPooled: a.NormPooled, NoProjection: a.NoProjection,
			ProjectionBias: j.w.Vision.Projection.Bias != nil},
		Files: map[string]bundle.File{}, Notes: a.Warnings,
	}
	if a.Bidirectional {
		j.note("the text tower has no causal mask: every class and prompt goes through it in full, and nothing is " +
			"shared between classes")
	}
	if err := j.m.checkTowers(); err != nil {
		return err
	}
	return j.preprocessing()
}

// mlp is the width of the feed-forward layers as clip writes it: 0 for the usual one, so that nothing says it twice.
func mlp(t checkpoint.Transformer) int {
	if t.MLP == 4*t.Width {
		return 0
	}
	return t.MLP
}

// write fills the folder of the bundle.
func (j *conversion) write(dir string) error {
	if err := j.vocabulary(dir); err != nil {
		return err
	}
	if err := j.weights(dir); err != nil {
		return err
	}
	image, err := imageModel(j.m.Vision, table(j.m.Weights))
	if err != nil {
		return err
	}
	text, err := textModel(j.m.Text, table(j.m.Weights))
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{ImageFile: image, TextFile: text} {
		if err := writeFile(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	j.read = bundle.Reading{}
	for _, e := range list {
		if j.m.Files[e.Name()], err = j.read.File(j.Context, dir, e.Name()); err != nil {
			return err
		}
	}
	return j.m.write(filepath.Join(dir, bundle.ManifestFile))
}

func (j *conversion) note(format string, a ...any) {
	j.m.Notes = append(j.m.Notes, fmt.Sprintf(format, a...))
}

func writeFile(path string, data []byte) error {
	return atomicfile.Write(path, atomicfile.Bytes(data))
}
