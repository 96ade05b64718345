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
	"promptfed/runtime/graph"
	"promptfed/runtime/oneline"
)

// Options are the options of Convert. With the zero value, everything comes from the checkpoint.
type Options struct {
	Vocab string // a vocabulary file or folder, if the checkpoint has none; see tokenizer.Load

	// Checkpoint states what a checkpoint does not state itself.
	Checkpoint checkpoint.Options
	Gradients  bool // whether to write gradient files, by which the towers then train
	// Origin is recorded in the bundle.
	Origin bundle.Origin
	// Context cancels the conversion; it may be nil.
	Context context.Context
	// Progress, which may be nil, is called with the number of weight bytes that are converted, or checked in place.
	Progress func(done, total int64)
}

// Convert makes a bundle at out from the checkpoint at src, which may be anything that checkpoint.Open reads, if it is
// a CLIP with a ViT or ResNet image tower. The bundle has the name of its folder, and appears there when it is
// complete; after a failure, out is unchanged. An existing bundle at out is replaced; any other folder with files in it
// is refused.
func Convert(src, out string, options Options) (*bundle.Bundle, error) {
	ckpt, err := checkpoint.Open(src, options.Checkpoint)
	if err != nil {
		return nil, oneline.Error(err)
	}
	defer ckpt.Close()

	out, err = filepath.Abs(out)
	if err != nil {
		return nil, err
	}

	if err := apart(ckpt, out); err != nil {
		return nil, err
	}

	weights, err := checkpoint.CLIP(ckpt)
	if err != nil {
		return nil, err
	}

	if err := bundle.CheckName(filepath.Base(out)); err != nil {
		return nil, err
	}

	if options.Context == nil {
		options.Context = context.Background()
	}

	if options.Progress == nil {
		options.Progress = func(int64, int64) {}
	}

	conversion := &conversion{Options: options, ckpt: ckpt, weights: weights}
	if err := conversion.describe(); err != nil {
		return nil, fmt.Errorf("%s: %w", src, err)
	}

	conversion.manifest.Name = filepath.Base(out)
	if err := atomicfile.Folder(out, bundle.ManifestFile, conversion.write); err != nil {
		return nil, fmt.Errorf("%s: converting %s: %w", out, src, explain(err))
	}

	conversion.read.Save(out)
	return newBundle(out, conversion.manifest)
}

// apart returns an error if the checkpoint lies in the bundle that would be replaced.
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

// explain adds the next step to the error of a full disk.
func explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w (no partial bundle remains: free space, or choose another disk)", err)
	}
	return oneline.Error(err)
}

// conversion is one run of Convert.
type conversion struct {
	Options
	ckpt     *checkpoint.Checkpoint
	weights  *checkpoint.Weights
	manifest Manifest

	read bundle.Hashes // the files of the bundle
}

// describe fills in the part of the manifest that needs no file, except for the name.
func (j *conversion) describe() error {
	a := j.weights.Arch
	j.manifest = Manifest{
		Architecture: a.Name(), Source: string(j.ckpt.Format()),
		TextWidth: a.Text.Width, EmbedDim: a.Text.EmbedDim, ImageSize: a.Vision.Image, Context: a.Text.Context,
		LogitScale: a.LogitScale, LogScale: math.Log(a.LogitScale), LogitBias: a.LogitBias,
		TokenizerFile: tokenizerFile, Text: a.Text, Vision: a.Vision,
		Files: map[string]bundle.File{}, Notes: a.Warnings, Origin: j.Origin,
	}

	if a.Text.Bidirectional {
		j.note("the text tower has no causal mask: every class and prompt passes through it completely, and classes " +
			"share no computation")
	}

	if err := j.manifest.checkTowers(); err != nil {
		return err
	}

	return j.preprocessing()
}

// write fills the folder of the bundle.
func (j *conversion) write(dir string) error {
	if err := j.vocabulary(dir); err != nil {
		return err
	}

	if err := j.writeWeights(dir); err != nil {
		return err
	}

	image, text := imageModel(j.manifest.Vision, table(j.manifest.Weights)), textModel(j.manifest.Text,
		table(j.manifest.Weights))
	if err := bundle.WriteGraph(filepath.Join(dir, ImageFile), ".", image); err != nil {
		return fmt.Errorf("%s: %w", ImageFile, err)
	}

	if err := bundle.WriteGraph(filepath.Join(dir, TextFile), ".", text); err != nil {
		return fmt.Errorf("%s: %w", TextFile, err)
	}

	if j.Gradients {
		if err := bundle.WriteGradient(filepath.Join(dir, bundle.ImageGradientFile), ".", image[0],
			bundle.PixelsInput); err != nil {
			return err
		}
		if err := bundle.WriteGradient(filepath.Join(dir, bundle.TextGradientFile), ".", text[0],
			bundle.EmbeddingsInput); err != nil {
			return err
		}
	}

	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}

	j.read = bundle.Hashes{}
	for _, e := range list {
		if j.manifest.Files[e.Name()], err = j.read.File(j.Context, dir, e.Name()); err != nil {
			return err
		}
	}

	j.manifest.Version = bundle.VersionOf(j.manifest.Files)
	return j.manifest.write(filepath.Join(dir, bundle.ManifestFile))
}

func (j *conversion) note(format string, a ...any) {
	j.manifest.Notes = append(j.manifest.Notes, fmt.Sprintf(format, a...))
}

// imageModel returns the outputs of image.onnx.
func imageModel(v clip.VisionArch, w clip.Weights) []graph.Output {
	g := graph.New()
	image, patches := clip.Vision{VisionArch: v}.Features(g, w, bundle.AddPixelsInput(g, 0, v.Image))
	return []graph.Output{{Name: bundle.ImageOutput, Node: image}, {Name: bundle.PatchesOutput, Node: patches}}
}

// textModel returns the output of text.onnx: the plain form over the whole context.
func textModel(t clip.TextArch, w clip.Weights) []graph.Output {
	g := graph.New()
	emb := g.Input(bundle.EmbeddingsInput, graph.Float, graph.Rows("C", t.Context, t.Width))
	eot := g.Input(bundle.EOTInput, graph.Int64, graph.Rows("C"))
	return []graph.Output{{Name: bundle.TextOutput, Node: clip.Text{TextArch: t}.Plain(w, emb, eot)}}
}
