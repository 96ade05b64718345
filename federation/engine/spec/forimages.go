package spec

import (
	"fmt"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// defaultMemory bounds Training.Memory where nothing is said.
const defaultMemory = 4 << 30

// ForImages tells how many rows of a batch a graph with text prompts for each image may run on at a time, within a
// bound on memory, and what one takes; 0 and 0 for a graph without.
func ForImages(b Backbone, classes []string, bound int, roots ...graph.Node) (rows, bytes int, err error) {
	for _, op := range graph.Reachable(roots...) {
		if what, _ := op.Placeholder(); what != method.PlaceholderText {
			continue
		}
		if p := method.PromptOf(op); p.Ctx.OK() && p.Ctx.Rank() == 3 {
			n, err := b.StepBytesForImage(classes, p.Ctx.Dim(1))
			if err != nil {
				return 0, 0, err
			}
			bytes += n
		}
	}
	if bytes == 0 {
		return 0, 0, nil
	}
	if bound == 0 {
		bound = defaultMemory
	}
	if rows = bound / bytes; rows == 0 {
		return 0, 0, fmt.Errorf("a text prompt for each image: %d classes take about %.1f GiB for one image, "+
			"train.memory_gb allows %.1f; raise it, or use fewer classes", len(classes), gib(bytes), gib(bound))
	}
	return rows, bytes, nil
}

func gib(bytes int) float64 { return float64(bytes) / (1 << 30) }

// ForImages says, before anything runs, how many images with text prompts of their own a training step computes at a
// time and what memory that takes; empty for a method without.
func (e *Experiment) ForImages(b Backbone) (string, error) {
	logits, loss := e.onePass(b)
	rows, bytes, err := ForImages(b, e.Classes, e.Training.Memory, logits, loss)
	if rows == 0 || err != nil {
		return "", err
	}
	return fmt.Sprintf("a text prompt for each image: %d at a time of a batch of %d, about %.2f GiB in each worker "+
		"(train.memory_gb)", min(rows, e.Training.Batch), e.Training.Batch, gib(bytes*min(rows, e.Training.Batch))), nil
}
