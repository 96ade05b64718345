package spec

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// defaultMemory bounds Training.Memory where nothing is said.
const defaultMemory = 4 << 30

// perImage is what a graph computes for each image: with a text prompt of its own, or in the image tower.
type perImage struct {
	what  string
	bytes int // that a step takes for one
	fixed int // that it takes for class-specific prompts, whatever the images
	bound int
}

// classPrompts says what takes the bytes that are fixed.
const classPrompts = "a text prompt for each class"

// forImages reads it from a graph in which towers are placeholders; bound is Training.Memory.
func forImages(b Backbone, classes []string, bound int, roots ...graph.Node) (f perImage, err error) {
	if f.bound = bound; bound == 0 {
		f.bound = defaultMemory
	}
	for _, op := range graph.Reachable(roots...) {
		switch p := op.Placeholder().(type) {
		case method.Prompt:
			switch {
			case p.PerImage():
				n, err := b.StepBytesForImage(classes, p.Ctx.Dim(1))
				if err != nil {
					return f, err
				}
				f.what, f.bytes = "a text prompt for each image", f.bytes+n
			case p.PerClass: // which shares nothing with other classes, as that of one class for one image
				for i := range classes {
					n, err := b.StepBytesForImage(classes[i:i+1], p.Ctx.Dim(1))
					if err != nil {
						return f, err
					}
					f.fixed += n
				}
			}
		case method.PromptedImages:
			if f.bytes += visionBytes(b.Task(), p); f.what == "" {
				f.what = "the image tower in every step"
			}
		}
	}
	return f, nil
}

// visionBytes is what the image tower takes for one image of a step: less where nothing in it is learned.
func visionBytes(t method.ClientSpec, of method.PromptedImages) int {
	rows, p := 1+t.Patches, of.Prompts
	for _, tokens := range append([]graph.Node{p.Tokens}, p.Deep...) {
		if tokens.OK() {
			rows = max(rows, 1+t.Patches+tokens.Dim(-2))
		}
	}
	learned := slices.ContainsFunc(graph.Inputs(graph.NodesOf(of)...), func(n graph.Node) bool {
		return strings.HasPrefix(n.Name(), method.ParamInput+"/")
	})
	layers := t.VisionLayers
	if !learned {
		layers = 0
	}
	return clip.BlocksStepBytes(rows, t.VisionWidth, t.VisionUnits, layers, !p.Changes.None())
}

// MaxRows tells how many rows of a batch a graph may run on at a time; 0 is any number.
func MaxRows(b Backbone, classes []string, bound int, roots ...graph.Node) (int, error) {
	f, err := forImages(b, classes, bound, roots...)
	if err == nil {
		err = f.fits()
	}
	if f.bytes == 0 || err != nil {
		return 0, err
	}
	return (f.bound - f.fixed) / f.bytes, nil
}

// MicrobatchSize is the size of the parts in which rows are computed, at most so many at a time, 0 for no bound: as few
// parts as may be and about alike, since runs on another number of rows take memory of their own.
func MicrobatchSize(rows, most int) int {
	if most == 0 || most >= rows {
		return rows
	}
	parts := (rows + most - 1) / most
	return (rows + parts - 1) / parts
}

// fits refuses what is too large for any batch.
func (f perImage) fits() error {
	if f.bytes == 0 && f.fixed > f.bound {
		return perImage{what: classPrompts, bound: f.bound}.tooLarge("all classes", f.fixed)
	}
	if f.fixed+f.bytes > f.bound {
		return f.tooLarge("one image", f.fixed+f.bytes)
	}
	return nil
}

func (f perImage) tooLarge(what string, bytes int) error {
	return fmt.Errorf("%s: a step needs about %.1f GiB for %s, but train.memory_gb allows %.1f; raise it, or use "+
		"smaller batches, fewer classes or fewer tokens", f.what, gib(bytes), what, gib(f.bound))
}

func gib(bytes int) float64 { return float64(bytes) / (1 << 30) }

// ForImages says, before anything runs, how many images a training step computes at a time and what memory that takes,
// or what class-specific prompts take; empty for a method that has neither.
func (e *Experiment) ForImages(b Backbone) (string, error) {
	logits, loss := e.onePass(b)
	f, err := forImages(b, e.Classes, e.Training.Memory, logits, loss)
	if err == nil {
		err = f.fits()
	}
	switch {
	case err != nil:
		return "", err
	case f.bytes == 0 && f.fixed > 0:
		return fmt.Sprintf("%s: about %.2f GiB in each worker (train.memory_gb)", classPrompts, gib(f.fixed)), nil
	case f.bytes == 0:
		return "", nil
	}
	rows := (f.bound - f.fixed) / f.bytes
	if rows < e.Training.Batch && !MeanOverRows(loss) {
		return "", f.tooLarge(fmt.Sprintf("a batch of %d, whose images the loss compares", e.Training.Batch),
			f.fixed+f.bytes*e.Training.Batch)
	}
	rows = MicrobatchSize(e.Training.Batch, rows)
	return fmt.Sprintf("%s: %d at a time of a batch of %d, about %.2f GiB in each worker "+
		"(train.memory_gb)", f.what, rows, e.Training.Batch, gib(f.fixed+f.bytes*rows)), nil
}
