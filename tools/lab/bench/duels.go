package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"promptfed/federation/engine/spec"
	"promptfed/federation/methods/parts/projection"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/convert"
	"promptfed/runtime/ort"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
	"promptfed/tools/lab/pretrain"
)

// duel is a workload that ours and PyTorch's side run.
type duel struct {
	name   string
	tower  string   // text or image, for step_torch.py
	dir    string   // of its files
	forms  []string // of step_torch.py; the first one, eager in float32, is the reference
	images int      // of a run
	// ready writes the files.
	ready func() error
	// ours opens our side and returns a run of it, and the gradient or the features.
	ours func(ctx context.Context, o ort.Options, open *opened) (*contestant, *tensor.Tensor, error)

	compiles bool               // Quick compiles it, on a device
	wanted   map[string]float64 // by precision, the target of our time as a part of PyTorch's
	than     string             // the mode of PyTorch that targets compare with; empty means the best
	want     *tensor.Tensor     // the reference
}

// duels returns the workloads of ComparePyTorch.
func (m *Measurement) duels() (all []*duel) {
	text := sync.OnceValues(m.tower)
	for i, set := range m.lists {
		duel := &duel{name: "promptfl, " + set.name, tower: "text", dir: m.dir, forms: []string{"shared"},
			compiles: i == len(m.lists)-1}
		if m.Session.OnDevice() {
			duel.forms = append(duel.forms, "published")
			duel.wanted = map[string]float64{"float32": 0.8, "tf32": 1, "bfloat16": 1.2}
		}
		if len(set.classes) >= 1000 {
			duel.wanted = map[string]float64{"float32": 1, "tf32": 1, "bfloat16": 1}
		}
		duel.steps(promptFL, text, set.classes.Names(), (*step).export)
		if slices.Contains(m.Only, "text") {
			all = append(all, duel)
		}
	}

	if last := m.lists[min(1, len(m.lists)-1)]; m.Session.OnDevice() && slices.Contains(m.Only, "text") {
		d := &duel{name: "fedpha, " + last.name, tower: "text", dir: m.dir, forms: []string{"shared"},
			wanted: map[string]float64{"float32": 1, "tf32": 1, "bfloat16": 1}}
		d.steps(fedPHA, text, last.classes.Names(), (*step).export)
		all = append(all, d)
	}

	if !m.Session.OnDevice() {
		return all
	}

	if slices.Contains(m.Only, "image") {
		all = append(all, m.fedVPTDuel(m.lists[0], filepath.Join(m.dir, "fedvpt")))
	}

	if !slices.Contains(m.Only, "features") {
		return all
	}

	batches := []int{32, 128, 256}
	if m.Quick {
		batches = batches[:2]
	}

	for _, name := range []string{"vit-b32", "vit-b16", "rn50"} {
		arch, ok := m.images[name]
		if !ok {
			continue
		}
		at, v, w := filepath.Join(m.dir, name), clip.Vision{VisionArch: arch}, stored{}
		draw := sync.OnceValue(func() error {
			return w.draw(at, "image.safetensors", v.Shapes(), v.Width, v.Layers)
		})
		for _, images := range batches {
			all = append(all, featuresDuel(name, at, v, w, images, draw))
		}
	}

	return all
}

// steps makes a duel one of steps over some classes.
func (d *duel) steps(makeStep stepOf, open func() (*tower, error), classes []string, export func(*step, *tower) error) {
	var tower *tower
	d.images = batch
	d.ready = func() (err error) {
		if tower, err = open(); err != nil {
			return err
		}
		s, err := makeStep(tower, classes, ort.Options{}, nil)
		if err != nil {
			return err
		}
		defer s.close()
		return export(s, tower)
	}

	d.ours = func(ctx context.Context, o ort.Options, open *opened) (*contestant, *tensor.Tensor, error) {
		result, err := gradient(ctx, makeStep, tower, classes, o)
		if err != nil {
			return nil, nil, err
		}
		s, err := makeStep(tower, classes, o, nil)
		open.add(s.close, err)
		return &s.contestant, result, err
	}
}

// export writes the inputs of a step of a text prompt, except the tower's weights.
func (s *step) export(tower *tower) error {
	inputs, err := s.client.Train.Batch(tensor.Indices(s.client.Train.Len()), nil)
	if err != nil {
		return err
	}
	if len(s.prompts) > 1 {
		q, err := projection.Project(s.prompts[0], projection.Eq9, removed)
		if err != nil {
			return err
		}
		inputs["projector"] = q.Dense()
	}

	inputs["ctx"] = tensor.Stack(s.prompts)
	return export(tower, s.set, inputs)
}

// export adds to ctx [P,T,w], image [B,D] and label [B] what else the text tower of a step in step_torch.py needs, and
// writes all of it beside the tower's weights.
func export(tower *tower, set *clip.Suffixes, tensors tensor.Map) error {
	lengths, ids := []int64{}, []int{tower.sos}
	for _, class := range set.IDs {
		ids = append(ids, class...)
		lengths = append(lengths, int64(len(class)))
	}

	tokens, err := tower.Embed(ids)
	if err != nil {
		return err
	}

	w := tower.text().Width
	tensors["start"], tensors["suffix"] = tensor.Of(tokens[:w], 1, w), tensor.Of(tokens[w:], len(ids)-1, w)
	tensors["lengths"] = tensor.OfInts(lengths, len(lengths))
	return tower.write(tensors, tower.text().Heads)
}

// write writes the inputs of a workload, with the scale of logits and the heads of the tower's attention.
func (t *tower) write(m tensor.Map, heads int) error {
	m["scale"] = tensor.Of([]float32{float32(t.LogitScale)}, 1)
	return writeInputs(t.dir, m, heads)
}

func writeInputs(dir string, m tensor.Map, heads int) error {
	m["heads"] = tensor.OfInts([]int64{int64(heads)}, 1)
	return safetensors.WriteFile(filepath.Join(dir, "step.safetensors"), m, nil)
}

// fedVPTDuel returns the step of an image prompt of ViT-B/16, with class features of a text tower of one block.
func (o Options) fedVPTDuel(set classSet, dir string) *duel {
	duel := &duel{name: "fedvpt, vit-b16, " + set.name, tower: "image", dir: dir, forms: []string{"plain"},
		than:   "eager",
		wanted: map[string]float64{"float32": 1, "tf32": 1}}
	open := func() (*tower, error) {
		text, v := oneBlock, o.images["vit-b16"]
		text.EmbedDim = v.EmbedDim
		return randomTower("random-image", text, v, dir)
	}

	duel.steps(fedVPT, open, set.classes.Names(), (*step).exportImages)
	return duel
}

// exportImages writes the inputs of a step of an image prompt, except the tower's weights.
func (s *step) exportImages(tower *tower) error {
	m, err := s.client.Train.Batch(tensor.Indices(s.client.Train.Len()), nil, bundle.PixelsInput)
	if err != nil {
		return err
	}

	m["prompt"] = s.order.Shared["prompt"]
	if m["texts"], err = s.texts(tower); err != nil {
		return err
	}

	return tower.write(m, tower.Bundle.Vision.Heads)
}

// texts returns the unit features [C,D] of the hand-written prompts of all classes.
func (s *step) texts(tower *tower) (*tensor.Tensor, error) {
	sentences := convert.Slice(s.experiment.Classes,
		func(class string) string { return spec.Sentence(s.experiment.Template, class) })
	return pretrain.TextFeatures(context.Background(), tower, sentences, ort.Options{Provider: ort.CPU})
}

// featuresDuel returns the features of so many images of an image tower, whose weights draw writes to dir.
func featuresDuel(name, dir string, vision clip.Vision, weights stored, images int, draw func() error) *duel {
	const most = 1.11 // of the time, for 0.9 of the rate
	duel := &duel{name: fmt.Sprintf("features, %s, %d images", name, images), tower: "image", dir: dir,
		forms: []string{"plain"}, images: images,
		wanted: map[string]float64{"float32": most, "tf32": most, "bfloat16": most}}
	duel.ready = func() error {
		if err := draw(); err != nil {
			return err
		}
		return writeInputs(dir, drawPixels(vision, images), vision.Heads)
	}

	duel.ours = func(ctx context.Context, o ort.Options, open *opened) (*contestant, *tensor.Tensor, error) {
		o.WeightsDir, o.Prepack = dir, false
		p := open.products(pixelsThrough(vision, weights, images, o))
		if open.err != nil {
			return nil, nil, open.err
		}
		features, err := p.output(ctx)
		return &p.contestant, features, err
	}

	return duel
}
