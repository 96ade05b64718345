package clip

import (
	"fmt"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// resnet is CLIP's modified ResNet (Radford et al. 2021, section 2.4): a stem of three convolutions, an average pooling
// before every convolution that would have a stride, and attention pooling at the end.
type resnet struct {
	tower
	vision Vision
}

// Sizes of all of CLIP's ResNets.
const (
	expansion = 4  // of a bottleneck: output channels over inner channels
	headWidth = 64 // of the attention pooling
	cell      = 32 // pixels on a side of the area of one cell of the last feature map
)

func (a VisionArch) checkResNet() error {
	switch {
	case len(a.Stages) != 4:
		return fmt.Errorf("vision tower: a ResNet of %d stages, must be 4", len(a.Stages))
	case a.Patch != cell:
		return fmt.Errorf("vision tower: patch %d of a ResNet, must be %d", a.Patch, cell)
	case a.Width < 1 || a.Width%headWidth != 0 || a.Heads != a.Width/headWidth || a.EmbedDim < 1:
		return fmt.Errorf("vision tower: a ResNet of width %d with %d heads and embed_dim %d: the width must be a "+
			"multiple of %d, and the heads %d wide", a.Width, a.Heads, a.EmbedDim, headWidth, headWidth)
	}

	for i, n := range a.Stages {
		if n < 1 || n > 1000 {
			return fmt.Errorf("vision tower: stage %d of the ResNet has %d blocks, must be 1 to 1000", i+1, n)
		}
	}

	return checkEps("vision tower", a.Eps)
}

// stem returns the number of channels after the stem.
func (a VisionArch) stem() int { return a.Width / cell }

// Convolution is a convolution of a ResNet, followed by a batch normalisation.
type Convolution struct {
	Name, Norm      string // of the tensors, without .weight
	Out, In, Kernel int
}

// Convolutions returns the convolutions of a ResNet in order of execution; nil for a transformer.
func (a VisionArch) Convolutions() []Convolution {
	if !a.ResNet() {
		return nil
	}

	s := a.stem()
	out := []Convolution{
		{"visual.conv1", "visual.bn1", s / 2, 3, 3},
		{"visual.conv2", "visual.bn2", s / 2, s / 2, 3},
		{"visual.conv3", "visual.bn3", s, s / 2, 3},
	}

	in := s
	for stage, blocks := range a.Stages {
		mid := s << stage
		for b := range blocks {
			p := fmt.Sprintf("visual.layer%d.%d.", stage+1, b)
			out = append(out, Convolution{p + "conv1", p + "bn1", mid, in, 1},
				Convolution{p + "conv2", p + "bn2", mid, mid, 3},
				Convolution{p + "conv3", p + "bn3", mid * expansion, mid, 1})
			if b == 0 {
				out = append(out, Convolution{p + "downsample.0", p + "downsample.1", mid * expansion, in, 1})
			}
			in = mid * expansion
		}
	}

	return out
}

// features pools the last feature map: image [B,EmbedDim] with its mean as the query, patches [B,Patches,EmbedDim] with
// each of its cells.
func (r resnet) features(pixels, tokens graph.Node) (image, patches graph.Node) {
	list := r.vision.Convolutions()
	next := func() Convolution {
		c := list[0]
		list = list[1:]
		return c
	}

	maps := r.conv(pixels, next(), 2).ReLU()
	maps = r.conv(maps, next(), 1).ReLU()
	maps = halve(r.conv(maps, next(), 1).ReLU())
	for stage, blocks := range r.vision.Stages {
		for b := range blocks {
			stride := b == 0 && stage > 0
			branch := r.conv(maps, next(), 1).ReLU()
			branch = r.conv(branch, next(), 1).ReLU()
			if stride {
				branch = halve(branch)
			}

			branch = r.conv(branch, next(), 1)
			if b == 0 {
				if stride {
					maps = halve(maps)
				}
				maps = r.conv(maps, next(), 1)
			}

			maps = branch.Add(maps).ReLU()
		}
	}

	return r.pool(maps, tokens)
}

// halve returns average pooling over 2x2 pixels.
func halve(x graph.Node) graph.Node {
	two := graph.Attr([]int{2, 2})
	return x.Graph().Apply(graph.Standard, "AveragePool", graph.Attrs{"kernel_shape": two, "strides": two}, x)
}

// conv returns a convolution that keeps the size (before its stride), and its batch normalisation.
func (r resnet) conv(x graph.Node, c Convolution, stride int) graph.Node {
	pad := c.Kernel / 2
	at := graph.Attrs{"kernel_shape": graph.Attr([]int{c.Kernel, c.Kernel}),
		"pads": graph.Attr([]int{pad, pad, pad, pad}), "strides": graph.Attr([]int{stride, stride})}
	w := r.weights.Node(r.graph, c.Name+".weight", c.Out, c.In, c.Kernel, c.Kernel)
	if r.weights.Has(c.Name + ".bias") {
		return r.graph.Apply(graph.Standard, "Conv", at, x, w, r.weights.Node(r.graph, c.Name+".bias", c.Out))
	}

	return r.batchNorm(r.graph.Apply(graph.Standard, "Conv", at, x, w), c.Norm, c.Out)
}

// batchNorm returns gain·(x-mean)/sqrt(variance+eps) + bias for each channel (Ioffe and Szegedy 2015), with running
// statistics or with those of the batch.
func (r resnet) batchNorm(x graph.Node, name string, channels int) graph.Node {
	gain, bias := r.weights.Node(r.graph, name+".weight", channels), r.weights.Node(r.graph, name+".bias", channels)
	if r.vision.BatchStats == nil {
		at := graph.Attrs{"epsilon": graph.Attr(float32(r.eps))}
		return r.graph.Apply(graph.Standard, "BatchNormalization", at, x, gain, bias,
			r.weights.Node(r.graph, name+".running_mean", channels), r.weights.Node(r.graph, name+".running_var",
				channels))
	}

	mean := x.MeanKeep(0, 2, 3)
	d := x.Sub(mean)
	variance := d.Square().MeanKeep(0, 2, 3)
	r.vision.BatchStats(name, mean.Reshape(channels), variance.Reshape(channels))
	scale := gain.Reshape(1, channels, 1, 1).Div(variance.AddScalar(r.eps).Sqrt())
	return d.Mul(scale).Add(bias.Reshape(1, channels, 1, 1))
}

// pool returns attention among the mean of the feature map [B,width,side,side] and its cells, with positions. tokens,
// if any, are additional keys and values.
func (r resnet) pool(maps, tokens graph.Node) (image, patches graph.Node) {
	n := r.vision.Patches()
	maps = maps.Reshape(-1, r.width, n).Transpose(0, 2, 1)
	maps = graph.Concat(1, maps.MeanKeep(1), maps).Add(r.weights.Node(r.graph, "visual.attnpool.positional_embedding",
		n+1, r.width))
	rows := maps.Reshape(-1, r.width)
	seen, m := r.behind(rows, n+1, n+1, tokens)
	k := r.split(seen, "k_proj", m)
	v := r.split(seen, "v_proj", m)
	query := func(rows graph.Node, count int) graph.Node {
		q := r.split(rows, "q_proj", count)
		return r.linear(nn.MergeHeads(nn.Attend(q, k, v, graph.Node{})), "c_proj", r.vision.EmbedDim)
	}

	image = query(firstRows(rows, n+1, r.width), 1)
	patches = query(maps.Slice(1, 1, n+1).Reshape(-1, r.width), n).Reshape(-1, n, r.vision.EmbedDim)
	return image, patches
}

// split projects rows [B·n,width] to heads [B,heads,n,64].
func (r resnet) split(rows graph.Node, name string, n int) graph.Node {
	return nn.SplitHeads(r.linear(rows, name, r.width), 1, -1, n, r.heads)[0]
}

func (r resnet) linear(x graph.Node, name string, out int) graph.Node {
	p := "visual.attnpool." + name
	return nn.Linear(x, r.weights.Node(r.graph, p+".weight", out, r.width), r.weights.Node(r.graph, p+".bias", out), 1,
		1)
}
