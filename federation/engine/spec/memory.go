package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// DefaultMemory bounds the memory where Training.Memory is 0.
const DefaultMemory = 4 << 30

// textShare is the share of the bound, one part in so many, that the text tower may take at least. Where it needs more
// than is left, its classes are computed in chunks: this costs less than the tower of all classes for more parts of a
// batch.
const textShare = 4

// StepMemory is the memory that a training step needs, in bytes.
type StepMemory struct {
	what  string
	image int // the image tower, for an image
	each  int // text prompts of an image, which has its own
	text  int // other text prompts
	bound int
}

// MemoryOf returns the memory of a graph in which towers are placeholders; bound is Training.Memory. It refuses a graph
// that is too large for one image.
func MemoryOf(backbone Backbone, classes []string, bound int, roots ...graph.Node) (stepMemory StepMemory, err error) {
	stepMemory.bound = cmp.Or(bound, DefaultMemory)
	for _, op := range graph.Reachable(roots...) {
		switch placeholder := op.Placeholder().(type) {
		case method.Prompt:
			n, err := TextBytes(backbone, classes, placeholder)
			switch {
			case err != nil:
				return stepMemory, err
			case placeholder.PerImage():
				stepMemory.what, stepMemory.each = "a text prompt for each image", stepMemory.each+n
			case placeholder.PerClass:
				stepMemory.what, stepMemory.text = cmp.Or(stepMemory.what,
					"a text prompt for each class"), stepMemory.text+n
			default:
				stepMemory.text += n
			}
		case method.PromptedImages:
			stepMemory.image += visionBytes(backbone.Task(), placeholder)
		}
	}

	if stepMemory.image > 0 && stepMemory.each == 0 {
		stepMemory.what = "the image tower in every step"
	}

	if stepMemory.image > stepMemory.bound-stepMemory.textLeast() {
		return stepMemory, stepMemory.tooLarge("one image", stepMemory.image+stepMemory.textLeast())
	}

	return stepMemory, nil
}

// TextBytes returns the memory of a training step for a text prompt; of a prompt for each image, for one image.
// Hand-written texts need none.
func TextBytes(b Backbone, classes []string, p method.Prompt) (int, error) {
	if !p.Ctx.OK() {
		return 0, nil
	}
	if p.NoClass {
		classes = classes[:1]
	}
	return b.StepBytes(classes, p)
}

// textLeast is what the text tower needs for one image, in chunks of its classes if necessary.
func (m StepMemory) textLeast() int { return min(m.text+m.each, m.bound/textShare) }

// Rows returns how many rows of a batch the graph may run on at a time; 0 is any number.
func (m StepMemory) Rows() int {
	if m.image+m.each == 0 {
		return 0
	}
	return max(1, (m.bound-min(m.text, m.bound/textShare))/(m.image+m.each))
}

// Text returns the memory that so many rows at a time leave to the text tower.
func (m StepMemory) Text(rows int) int { return max(m.bound-rows*m.image, m.bound/textShare) }

// Bytes returns the memory of a step on so many rows at a time.
func (m StepMemory) Bytes(rows int) int { return rows*m.image + min(m.text+rows*m.each, m.Text(rows)) }

// ClassesAtOnce returns how many classes the text tower computes at a time, in chunks of about equal size, where they
// need so many bytes together.
func ClassesAtOnce(classes, bytes, bound int) int {
	if bytes <= bound {
		return classes
	}
	return MicrobatchSize(classes, max(1, int(float64(classes)*float64(bound)/float64(bytes))))
}

// visionBytes returns the memory of the image tower for one image of a step; it is less if nothing in the tower is
// learned.
func visionBytes(client method.ClientSpec, images method.PromptedImages) int {
	rows, prompts := 1+client.Patches, images.Prompts
	for _, tokens := range append([]graph.Node{prompts.Tokens}, prompts.Deep...) {
		if tokens.OK() {
			rows = max(rows, 1+client.Patches+tokens.Dim(-2))
		}
	}

	learned := slices.ContainsFunc(method.Inputs(graph.NodesOf(images)...), func(in method.Input) bool {
		return in.Kind == method.ParamInput
	})
	layers := client.VisionLayers
	if !learned {
		layers = 0
	}

	return clip.BlocksStepBytes(rows, client.VisionWidth, client.VisionUnits, layers, !prompts.Changes.None())
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

func (m StepMemory) tooLarge(what string, bytes int) error {
	return fmt.Errorf("%s: a step needs about %.1f GiB for %s, but train.memory_gb allows %.1f; raise it, or use "+
		"smaller batches, fewer classes or fewer tokens", m.what, gib(bytes), what, gib(m.bound))
}

func gib(bytes int) float64 { return float64(bytes) / (1 << 30) }

// StepRows returns how many rows of a batch a step computes at a time.
func (m StepMemory) StepRows(t Training, losses ...graph.Node) int {
	if !MeanOverRows(losses...) {
		return t.LargestBatch()
	}
	return MicrobatchSize(t.LargestBatch(), m.Rows())
}

// MemoryNote returns, before a run, how many images and classes a training step computes at a time and the memory of
// the step; empty for a method that computes all at once and has a text prompt neither for each image nor for each
// class. Steps use a set of kernels.
func (e *Experiment) MemoryNote(b Backbone, kernels graph.KernelSet) (string, error) {
	stepMemory, rows, err := e.stepMemory(b, kernels)
	if err != nil {
		return "", err
	}

	most, need := stepMemory.Rows(), stepMemory.Bytes(rows)
	classes := ClassesAtOnce(len(e.Classes), stepMemory.text+rows*stepMemory.each, stepMemory.Text(rows))
	var parts []string
	if most > 0 {
		if stepMemory.image > 0 && rows > most {
			return "", stepMemory.tooLarge(fmt.Sprintf("a batch of %d, whose images the loss compares", rows), need)
		}
		parts = append(parts, fmt.Sprintf("%d at a time of a batch of %d", rows, e.Training.Batch))
	}

	if classes < len(e.Classes) {
		parts = append(parts, fmt.Sprintf("%d of %d classes at a time", classes, len(e.Classes)))
	}

	if len(parts) == 0 && stepMemory.what == "" {
		return "", nil
	}

	return fmt.Sprintf("%s: %s", cmp.Or(stepMemory.what, "the text tower"), strings.Join(append(parts,
		fmt.Sprintf("about %.2f GiB in each worker (train.memory_gb)", gib(need))), ", ")), nil
}

// stepMemory returns the memory of a training step and how many rows of a batch it computes at a time.
func (e *Experiment) stepMemory(b Backbone, kernels graph.KernelSet) (m StepMemory, rows int, err error) {
	scope := e.scope(b)
	scope.Graph().UseKernels(kernels)

	logits, loss := e.onePass(scope)
	if err = scope.Graph().Err(); err != nil {
		return m, 0, err
	}

	m, err = MemoryOf(b, e.Classes, e.Training.Memory, logits, loss)
	return m, m.StepRows(e.Training, loss), err
}

// mostClients bounds ClientsAtOnce. Each client has a loss and gradients of its own, whose operators become as many as
// those of the tower.
const mostClients = 32

// ClientsAtOnce returns how many clients on a backbone a device trains in one run, unless the configuration says: as
// many as have room for a step in Training.Memory together, and 1 if they train separately.
func (e Experiment) ClientsAtOnce(b Backbone) (int, error) {
	if e.BatchClients = mostClients; e.NotBatchable(b) != "" {
		return 1, nil
	}

	m, rows, err := e.stepMemory(b, graph.DeviceKernels)
	if err != nil {
		return 0, err
	}

	return max(1, min(mostClients, m.bound/max(1, m.Bytes(rows)))), nil
}
