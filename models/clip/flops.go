package clip

import (
	"slices"
	"strings"

	"promptfed/runtime/graph"
)

// StepFLOPs counts the floating point operations, two per multiply-add, that a training step of the text tower needs:
// the forward pass, and the backward pass to the prompts. It counts products with weights and attention, but not
// element-wise operations. The count is that of the cheap form without its padding: prefix rows once per prompt; suffix
// rows up to the read position; no constant projections of the first block; in the last block, keys and values of all
// rows and everything else only for the read rows.
func (t Text) StepFLOPs(s *Suffixes, prompts []Prompt) float64 {
	classes := float64(len(s.IDs))
	width := float64(t.Width)
	rest := t.rest()
	var macs float64
	for _, p := range prompts {
		prefix := float64(1 + p.length())
		var rows, own, last float64 // suffix rows; scores among tokens of one class; scores of the read rows
		for _, ids := range s.IDs {
			n := float64(len(ids) + p.ReadOffset)
			rows, own, last = rows+n, own+n*(n+1)/2, last+n
		}

		all := prefix + rows
		scores := prefix*(prefix+1)/2 + rows*prefix + own
		for i := range t.Layers {
			first, end := i == 0, i == t.Layers-1
			switch {
			case end:
				dynamic, queries := all, classes
				if first {
					dynamic, queries = prefix, 0
				}
				attention := 2 * width * (classes*prefix + last)
				macs += 2 * (2*width*width*dynamic + width*width*queries + rest*classes)
				macs += 3 * attention // once forward, and backward to both factors
			case first:
				macs += 2 * (3*width*width*prefix + rest*all)
				macs += 3 * 2 * width * scores
			default:
				macs += 2 * (3*width*width + rest) * all
				macs += 3 * 2 * width * scores
			}
		}

		macs += 2 * classes * width * float64(t.EmbedDim)
	}

	return 2 * macs
}

// rest returns the multiply-adds per row in a block's products with weights after the attention: the output projection
// and the feed-forward layers.
func (t Text) rest() float64 {
	return float64(t.Width*t.Width + 2*t.Width*t.Units())
}

// FLOPs counts, as StepFLOPs does, the operations for the features of an image, without patch features, with the given
// number of prompt tokens; step includes those of a gradient with respect to tokens of the first block.
func (v Vision) FLOPs(tokens int, step bool) float64 {
	width, rows := float64(v.Width), float64(1+v.Patches()+tokens)
	last := 2*rows*width*width + width*width +
		2*rows*width // last block or attention pooling: keys and values of all, one query
	if v.ResNet() {
		return 2 * (v.convolutions() + last + width*float64(v.EmbedDim))
	}

	passes, attention, embedding := 1.0, 2*rows*rows*width, float64(v.Patches()*3*v.Patch*v.Patch*v.Width)
	if step { // products with weights count twice, those in attention three times
		passes, attention = 2, 3*attention
	}

	weights := width*width + 2*width*float64(v.Units())
	full := passes*rows*(3*width*width+weights) + attention
	return 2 * (embedding + float64(v.Layers-1)*full + passes*(last+weights+width*float64(v.EmbedDim)))
}

// convolutions returns the multiply-adds of a ResNet's convolutions.
func (a VisionArch) convolutions() (macs float64) {
	side := a.Image / 2
	for i, c := range a.Convolutions() {
		stage, name, _ := strings.Cut(strings.TrimPrefix(c.Name, "visual."), ".")
		if i == 3 || name == "0.conv3" && stage != "layer1" { // after an average pooling
			side /= 2
		}
		macs += float64(c.Out*c.In*c.Kernel*c.Kernel) * float64(side*side)
	}

	return macs
}

// BlocksStepBytes returns about how much memory a training step through the given number of blocks takes for so many
// rows, such as those of an image. Each row keeps what the gradient needs of every block: the residual sums before and
// after attention, a norm, query, key and value, the output of attention, and the feed-forward layers before their
// activation; changed blocks also keep their norms and activations. The working memory of one block is added.
func BlocksStepBytes(rows, width, units, layers int, changed bool) int {
	kept := 7*width + units
	if changed {
		kept += 3*width + units
	}
	return 4 * rows * (layers*kept + 2*width + 2*units)
}

// FeatureBytes returns about how much memory the features of an image take at a time: the working memory of a block and
// the scores of its heads twice, or of a ResNet four times the output of its stem. It is 0 if the architecture is
// unknown.
func (a VisionArch) FeatureBytes() int {
	switch {
	case a.Width == 0 || a.Patch == 0:
		return 0
	case a.ResNet():
		return 4 * 4 * a.stem() * (a.Image / 2) * (a.Image / 2)
	}

	rows := a.Tokens()
	return BlocksStepBytes(rows, a.Width, a.Units(), 1, false) + 2*4*a.Heads*rows*rows
}

// StepBytes returns about how much memory a training step takes for a prompt of all classes, or where each image has
// its own prompt for one image. With promptfed's kernels a row keeps as much as in BlocksStepBytes, and where attention
// is no single operator also keys and values by head and the weights twice. Without them it keeps all values, and as
// much again is working memory: two norms, queries, keys and values as rows and by head, the attention output twice,
// two sums, the feed-forward layers before and after their activation, and three times the scores of each head.
func (t Text) StepBytes(s *Suffixes, prompt Prompt) int {
	own := prompt.suffixes(s)
	at := own.packing(prompt.ReadOffset)
	prefix := 1 + prompt.length()
	rows := prefix + at.rows()
	keys := prefix + at.size
	kernels, several := prompt.Ctx.Graph().HasKernels(graph.DeviceKernels), graph.StaticDim(1)
	if prompt.PerImage() {
		several = prompt.Ctx.Shape()[0]
	}

	switch {
	case prompt.PerClass || prompt.Class == Middle || prompt.Class == Front || t.plainOnly(own):
		keys = t.length(slices.Max(own.Lengths(prompt)))
		rows = len(own.IDs) * keys
	case kernels && !prompt.PerImage():
		keys = 0
	case rows <= denseRows(prompt.Ctx.Graph(), several):
		keys = rows
	}

	if kernels {
		bytes := BlocksStepBytes(rows, t.Width, t.Units(), t.Layers, !prompt.Changes.None())
		if keys > 0 {
			bytes += 2 * 4 * rows * t.Layers * (t.Width + t.Heads*keys)
		}
		return bytes
	}

	return 2 * 4 * rows * (t.Layers*(12*t.Width+2*t.Units()+3*t.Heads*keys) + t.Width)
}
