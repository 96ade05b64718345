package experiment

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/bundle/exported"
	"promptfed/models/clip"
	"promptfed/models/hub"
	"promptfed/models/tiny"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// The forms of bundles, and the bundled backbones, which are found by name like any other.
func init() {
	run := func(m *onnx.ModelProto, dir string, in tensor.Map) (tensor.Map, error) {
		return ort.RunOnce(context.Background(), m, ort.Options{WeightsDir: dir}, in)
	}
	bundle.RegisterFormat(converted.Format, exported.Format(run))
	for _, name := range tiny.Names() {
		if files, err := tiny.FS(name); err == nil {
			converted.Embed(name, files)
		}
	}
}

// findBackbone finds a bundle, and makes one of a repository of the Hugging Face hub that is not on this machine yet.
func findBackbone(ctx context.Context, name, models string, progress Progress) (*bundle.Bundle, error) {
	b, err := bundle.Find(name, models)
	if !errors.Is(err, bundle.ErrNotPulled) {
		return b, err
	}
	s, err := bundle.ParseSpec(name)
	if err != nil {
		return nil, err
	}
	m, err := hub.Parse(s.Folder)
	if err != nil {
		return nil, err
	}
	client, err := hub.New()
	if err != nil {
		return nil, err
	}
	_, _, err = client.Pull(ctx, m, func(what string, done, total int64) {
		if progress == nil || total < mebi {
			return
		}
		at, parts := done/mebi, (total+mebi-1)/mebi
		if done == total {
			at = parts
		}
		progress(FetchPrefix+what, int(at), int(parts))
	})
	if err != nil {
		return nil, FetchError{err}
	}
	return bundle.Find(name, models)
}

// FetchError is the error of a backbone that cannot be fetched; the configuration may be right.
type FetchError struct{ error }

func (e FetchError) Unwrap() error { return e.error }

// FetchPrefix begins the names of work whose progress counts MiB.
const FetchPrefix = "backbone: "

const mebi = 1 << 20

// ReplacementHint names replacements for the bundled backbones.
const ReplacementHint = "for results, make a backbone of a real CLIP checkpoint with promptfed convert and name it " +
	"under backbones"

// toys returns a note if some of the backbones are bundled ones; empty otherwise.
func toys(all []*bundle.Bundle) string {
	var names []string
	for _, b := range all {
		if b.Registered {
			names = append(names, b.Name)
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "backbone " + names[0] + " is a toy for trying the program; " + ReplacementHint
	}
	return "backbones " + strings.Join(names, ", ") + " are toys for trying the program; " + ReplacementHint
}

// Backbone is a bundle as the engine uses it.
type Backbone struct{ *bundle.Bundle }

func (b Backbone) Name() string { return b.Bundle.Name }

func (b Backbone) Task() method.ClientSpec {
	t := method.ClientSpec{Width: b.Bundle.Text.Width, Dim: b.Bundle.Text.EmbedDim, Patches: b.Patches(),
		Scale: b.LogitScale, Bias: b.LogitBias, Sigmoid: b.Sigmoid, ImageSize: b.Preprocess.Size}
	if b.Bundle.Text.Layers > 0 { // else it is a graph that was not recognised
		t.TextLayers, t.TextUnits = b.Bundle.Text.Layers, b.Bundle.Text.Units()
	}
	if b.TakesPromptTokens() {
		t.VisionWidth = b.Bundle.Vision.Width
		if !b.Bundle.Vision.ResNet() {
			t.VisionLayers, t.VisionUnits = b.Bundle.Vision.Layers, b.Bundle.Vision.Units()
			t.Tokens = b.Tokens()
		}
	}
	return t
}

func (b Backbone) Vision(g *graph.Graph, pixels graph.Node, p method.VisionPrompts) (graph.Node, error) {
	n, _, err := b.Image(g, pixels, p)
	return n, err
}

// clipPrompt returns a prompt of a method without its template or absent class.
func clipPrompt(p method.Prompt) clip.Prompt {
	return clip.Prompt{Ctx: p.Ctx, ReadOffset: p.ReadOffset, Class: clip.Position(p.Position), Deep: p.Deep,
		Changes: p.Changes, NoPositions: p.NoPositions, PerClass: p.PerClass}
}

func (b Backbone) StepBytes(classes []string, p method.Prompt) (int, error) {
	return b.Bundle.StepBytes(classes, clipPrompt(p))
}

func (b Backbone) Text(g *graph.Graph, classes []string, prompts []method.Prompt) ([]graph.Node, error) {
	p := make([]clip.Prompt, len(prompts))
	for i, q := range prompts {
		p[i] = clipPrompt(q)
		if q.NoClass {
			own, err := b.EmptySuffix()
			if err != nil {
				return nil, err
			}
			p[i].Own = own
		}
		if !q.Ctx.OK() {
			words, own, err := b.SplitTemplate(classes, q.Template)
			if err != nil {
				return nil, err
			}
			if p[i].Own = own; words != nil {
				p[i].Ctx = g.Const(words)
			}
		}
	}
	out, err := b.Prompts(g, classes, p)
	for i, q := range prompts {
		if err == nil && q.PerImage() {
			out[i] = out[i].Reshape(-1, len(classes), b.Bundle.Text.EmbedDim)
		}
	}
	return out, err
}

// readAlike returns lines about classes whose names have the same tokens for a backbone, such as names that differ in
// capitals or in letters that its vocabulary lacks: no text distinguishes them.
func (b *Built) readAlike(f *bundle.Bundle) (notes []string, err error) {
	lists := [][]string{b.Set.Classes}
	for _, p := range b.evaluationSets {
		lists = append(lists, p.classes)
	}
	said := map[string]bool{}
	for _, classes := range lists {
		tokens, err := f.ClassTokens(classes)
		if err != nil {
			return nil, err
		}
		first := map[string]string{}
		for i, ids := range tokens {
			key := fmt.Sprint(ids)
			had, ok := first[key]
			if !ok {
				first[key] = classes[i]
				continue
			}
			line := fmt.Sprintf("%s reads the classes %q and %q as the same tokens, so that no prompt tells them "+
				"apart; data.class_names gives them other names", f.Name, had, classes[i])
			if !said[line] {
				said[line], notes = true, append(notes, line)
			}
		}
	}
	if n := len(notes) - mostAlike; n > 0 {
		notes = append(notes[:mostAlike], fmt.Sprintf("%s reads %s more alike", f.Name, CountInWords(n, "class")))
	}
	return notes, nil
}

// mostAlike bounds the lines of readAlike for one backbone.
const mostAlike = 5
