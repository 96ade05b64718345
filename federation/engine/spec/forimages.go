package spec

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// DefaultMemory bounds the memory where Training.Memory is 0.
const DefaultMemory = 4 << 30

// perImage is the memory that a graph takes for each image, because of a text prompt for each image or of the image
// tower.
type perImage struct {
	what  string
	bytes int // of one image in a step
	fixed int // of class-specific prompts in a step
	bound int
}

// classPrompts names the cause of fixed.
const classPrompts = "a text prompt for each class"

// forImages returns the memory of a graph in which towers are placeholders; bound is Training.Memory.
func forImages(b Backbone, classes []string, bound int, roots ...graph.Node) (f perImage, err error) {
	if f.bound = bound; bound == 0 {
		f.bound = DefaultMemory
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
			case p.PerClass: // each class costs as much as one class with a prompt for one image
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

// visionBytes returns the memory of the image tower for one image of a step; it is less if nothing in the tower is
// learned.
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

// MaxRows returns how many rows of a batch a graph may run on at a time; 0 is any number.
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

// MicrobatchSize returns the size of the parts in which rows are computed, at most so many rows at a time, 0 for no
// bound. There are as few parts as possible, of about equal size, since each other number of rows takes memory of its
// own.
func MicrobatchSize(rows, most int) int {
	if most == 0 || most >= rows {
		return rows
	}
	parts := (rows + most - 1) / most
	return (rows + parts - 1) / parts
}

// fits refuses a graph that is too large for any batch.
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

// ForImages returns, before a run, how many images a training step computes at a time and the memory of the step, or
// the memory of class-specific prompts; empty for a method that has neither.
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
