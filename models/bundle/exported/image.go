package exported

import (
	"cmp"
	"fmt"
	"path"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// imageTower is the image tower of an exported model.
type imageTower struct {
	file                   *graph.File
	name                   string
	input, output, patches graph.Node // patches may be absent
	size, embedDim, count  int        // of images, features and patches
	batch                  int        // fixed by the export, else 0

	box     *bundle.Box    // replaces the graph if there is a gradient file
	vit     *recognisedViT // set if the graph is CLIP's vision transformer
	stream  *stream        // set if it is another transformer
	open    *opening       // opens a batch that the export fixed, if that is possible
	last    bool           // channels are the last axis of the input
	rounded bool           // pixels are rounded to uint8 and have no gradients
	levels  float32        // the graph normalises pixels from 0 to this value; 0 if it does not
	scale   float64        // factor of the file's similarities; 0 if unknown
	bias    float64        // term that is added to them
}

func newImageTower(dir string, file *graph.File, name string, config imageConfig) (*imageTower, error) {
	tower := &imageTower{file: file, name: name}
	var err error
	tower.output, tower.scale, tower.bias, err = pick(dir, file, config.Output, imageRole)
	if err != nil {
		return nil, err
	}

	if config.Input != "" {
		if tower.input, err = namedInput(file, "image.input", config.Input); err != nil {
			return nil, err
		}
	} else {
		in := reached(file, tower.output)
		if len(in) != 1 {
			return nil, fmt.Errorf("output %s depends on %s; the image tower must take %s, and nothing else: export "+
				"it so, with constants for the rest", tower.output.Name(), describe(in...), imageRole.takes)
		}
		tower.input = in[0]
	}

	if err := checkSizes(tower.input); err != nil {
		return nil, err
	}

	c := []int{staticAxis(tower.input, 1), staticAxis(tower.input, 3)}
	if tower.last = c[1] == 3 && c[0] != 3; !isPixels(tower.input) || !tower.last && c[0] != 3 && c[0] != 0 {
		return nil, fmt.Errorf("its input is %s; the image tower must take %s: export it so", describe(tower.input),
			imageRole.takes)
	}

	tower.levels = normalised(dir, tower.input, tower.output)
	tower.batch = staticAxis(tower.input, 0)
	if err := checkBatch(tower.input, tower.batch); err != nil {
		return nil, err
	}

	if config.Patches != "" {
		o, ok := file.Output(config.Patches)
		if !ok {
			return nil, fmt.Errorf("image.patches %q in %s is none of its outputs %s", config.Patches,
				bundle.ManifestFile, describe(outputs(file.Outputs)...))
		}
		tower.patches = o
	} else if o, ok := file.Output(bundle.PatchesOutput); ok && o.Rank() == 3 {
		tower.patches = o
	}

	tower.box, err = bundle.OpenBox(dir, path.Join(path.Dir(name), bundle.ImageGradientFile),
		nameIn(file, tower.output), tower.input.Name())
	if err == nil && tower.box != nil {
		x, _ := tower.box.File.Graph.InputNamed(tower.input.Name())
		tower.batch = staticAxis(x, 0)
		if !isFloat(tower.input) {
			err = fmt.Errorf("%s: pixels are %s, which have no gradient: remove it", tower.box.Name(),
				describe(tower.input))
		} else if tower.patches.OK() {
			tower.batch = cmp.Or(staticAxis(tower.input, 0), tower.batch)
		}
	}

	return tower, err
}

// axes returns the height and the width that the export fixes, 0 for symbolic ones.
func (t *imageTower) axes() (h, w int) {
	if t.last {
		return staticAxis(t.input, 1), staticAxis(t.input, 2)
	}
	return staticAxis(t.input, 2), staticAxis(t.input, 3)
}

func (t *imageTower) fixedSize() int {
	h, w := t.axes()
	return max(h, w)
}

// measure determines the sizes with a batch of 2. hint is the image size if the graph leaves it open; said means that
// bundle.json names it.
func (t *imageTower) measure(hint int, said bool) error {
	height, width := t.axes()
	switch {
	case height != width && height != 0 && width != 0:
		return fmt.Errorf("it takes images of %d x %d; only squares are supported: export it for one", height, width)
	case height == 0 && width == 0 && hint == 0:
		guess, err := t.guess()
		if err != nil {
			return err
		}
		t.size = guess
	default:
		t.size = cmp.Or(max(height, width), hint)
	}

	if said && hint != t.size {
		return fmt.Errorf("%s says image_size %d, the tower takes %d", bundle.ManifestFile, hint, t.size)
	}

	if t.size > maxSide {
		return fmt.Errorf("it takes images of %d pixels on a side; at most %d are supported", t.size, maxSide)
	}

	if err := checkBatch(t.input, t.batch, 3, t.size, t.size); err != nil {
		return err
	}

	image, patches, err := t.try(t.size)
	if err != nil && t.input.DType() == graph.Uint8 {
		t.rounded = true // the operator that reads the pixels takes no floats
		image, patches, err = t.try(t.size)
	}

	if err != nil {
		return err
	}

	if s, ok := image.Shape().Ints(); !ok || len(s) != 2 || s[0] != 2 {
		return fmt.Errorf("output %s has shape %v for two images; features must be [batch,size]: write another value "+
			"as \"image\": {\"output\": NAME} in %s, or export one row for each image", t.output.Name(), image.Shape(),
			bundle.ManifestFile)
	}

	if t.embedDim = image.Dim(1); t.embedDim < 1 || t.embedDim > bundle.MaxExtent {
		return fmt.Errorf("features of size %d", t.embedDim)
	}

	if t.patches.OK() {
		s, ok := patches.Shape().Ints()
		if !ok || len(s) != 3 || s[2] != t.embedDim || s[1] > bundle.MaxExtent {
			return fmt.Errorf("output %s has shape %v; features of patches must be [batch,patches,%d]",
				t.patches.Name(), patches.Shape(), t.embedDim)
		}
		t.count = s[1]
	}

	return nil
}

// guess returns the image size of a tower that leaves it open, if only one of the usual sizes fits its positions.
func (t *imageTower) guess() (int, error) {
	var fit []int
	for size := 16; size <= 1024; size += 16 {
		if _, _, err := t.try(size); err == nil {
			fit = append(fit, size)
		}
	}

	if len(fit) == 1 {
		return fit[0], nil
	}

	return 0, fmt.Errorf("input %s leaves the image size open: write \"image_size\" in %s",
		describe(t.input), bundle.ManifestFile)
}

func (t *imageTower) try(size int) (image, patches graph.Node, err error) {
	g := graph.New()
	image, patches = t.build(g, bundle.AddPixelsInput(g, 2, size))
	return image, patches, g.Err()
}

// build adds the tower to g and returns the features of pixels [B,3,S,S]. If the export fixed the batch, B must be
// static.
func (t *imageTower) build(g *graph.Graph, pixels graph.Node) (image, patches graph.Node) {
	n := staticAxis(pixels, 0)
	if t.batch == 0 || n == t.batch {
		return t.once(g, pixels)
	}

	var images, others []graph.Node
	for _, rows := range chunks(g, n, t.batch) {
		image, patches = t.once(g, pixels.Rows(g.Ints(rows...)))
		images, others = append(images, image), append(others, patches)
	}

	image = graph.Concat(0, images...).Slice(0, 0, n)
	if t.patches.OK() {
		patches = graph.Concat(0, others...).Slice(0, 0, n)
	}

	return image, patches
}

func (t *imageTower) once(g *graph.Graph, pixels graph.Node) (image, patches graph.Node) {
	var roots []graph.Node // values of the file
	if t.box == nil {
		roots = append(roots, t.output)
	}

	if t.patches.OK() {
		roots = append(roots, t.patches)
	}

	feed := map[graph.Node]graph.Node{t.input: t.feed(g, pixels)}
	out := t.open.inline(g, roots, feed, staticAxis(pixels, 0))
	if t.patches.OK() {
		patches = out[len(out)-1].Cast(graph.Float)
	}

	if t.box != nil {
		return t.box.Features(map[string]graph.Node{t.input.Name(): feed[t.input]}), patches
	}

	return out[0].Cast(graph.Float), patches
}

// feed converts pixels to the element type and the layout of the input.
func (t *imageTower) feed(g *graph.Graph, x graph.Node) graph.Node {
	if t.last {
		x = x.Transpose(0, 2, 3, 1)
	}
	if t.rounded {
		return g.Apply(graph.Standard, "Round", nil, x).Cast(graph.Uint8)
	}
	return wide(x, t.input)
}

// model returns the tower with the input and output names of bundles, and with the batch of the export.
func (t *imageTower) model() (*onnx.ModelProto, error) {
	g := graph.New()
	image, patches := t.once(g, bundle.AddPixelsInput(g, t.batch, t.size))
	if err := g.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}

	list := []graph.Output{{Name: bundle.ImageOutput, Node: image}}
	if patches.OK() {
		list = append(list, graph.Output{Name: bundle.PatchesOutput, Node: patches})
	}

	return graph.Model(list...)
}

// prompted returns the tower with prompts. Prompt tokens use the recognised form, after it was compared with the graph.
func (t *imageTower) prompted(g *graph.Graph, pixels graph.Node, prompts clip.VisionPrompts) (image, patches graph.Node,
	err error) {
	if prompts.Pixels.OK() {
		pixels = pixels.Add(prompts.Pixels)
	}

	switch {
	case prompts.PixelsOnly():
		image, patches = t.build(g, pixels)
	case t.box != nil:
		return image, patches, fmt.Errorf("%w (it trains by %s)", bundle.ErrNoPromptTokens, t.box.Name())
	case t.vit == nil && t.stream == nil:
		return image, patches, bundle.ErrNoPromptTokens
	case t.vit != nil:
		if err := t.vit.proof(); err != nil {
			return image, patches, fmt.Errorf("%w (%v)", bundle.ErrNoPromptTokens, err)
		}
		image, patches = t.tokens(g, t.vit, pixels, prompts)
	default:
		if err := t.stream.proof(); err != nil {
			return image, patches, fmt.Errorf("%w (%v)", bundle.ErrNoPromptTokens, err)
		}
		image = t.streamed(g, t.stream, pixels, prompts)
	}

	if err := g.Err(); err != nil {
		return image, patches, fmt.Errorf("%s: %w", t.name, err)
	}

	return image, patches, nil
}
