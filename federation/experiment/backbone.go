package experiment

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/engine/record"
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
	bundle.RegisterFormat(converted.Format(run), exported.Format(run))
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
		return nil, MachineError{err}
	}

	return bundle.Find(name, models)
}

// MachineError is the error of a machine that cannot do what a configuration asks for, such as fetching a backbone or
// using a device. The configuration may be right.
type MachineError struct{ error }

func (e MachineError) Unwrap() error { return e.error }

// FetchPrefix begins the names of work whose progress counts MiB.
const FetchPrefix = "backbone: "

const mebi = 1 << 20

// ToyLR is a learning rate that suits the bundled backbones, as prompts of record.FewTokens tokens do.
const ToyLR = 0.005

// ReplacementHint says what suits the bundled backbones, and names replacements.
var ReplacementHint = fmt.Sprintf("options.tokens: %d and train.lr: %g suit toys; for results, make a backbone of a "+
	"real CLIP checkpoint with promptfed convert and name it under backbones", record.FewTokens, ToyLR)

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

// Name returns the name of the bundle, as in the key backbones.
func (b Backbone) Name() string { return b.Bundle.Name }

// Task describes the towers. TextLayers is 0 of a text tower whose graph was not recognised, and the fields of the
// image tower's blocks are 0 where it takes no prompt tokens or is a ResNet.
func (b Backbone) Task() method.ClientSpec {
	client := method.ClientSpec{Width: b.Bundle.Text.Width, Dim: b.Bundle.Text.EmbedDim, Patches: b.Patches(),
		Scale: b.LogitScale, Bias: b.LogitBias, Sigmoid: b.Sigmoid, ImageSize: b.Preprocess.Size}
	if b.Bundle.Text.Layers > 0 { // else it is a graph that was not recognised
		client.TextLayers, client.TextUnits = b.Bundle.Text.Layers, b.Bundle.Text.Units()
	}

	if b.TakesPromptTokens() {
		client.VisionWidth = b.Bundle.Vision.Width
		if !b.Bundle.Vision.ResNet() {
			client.VisionLayers, client.VisionUnits = b.Bundle.Vision.Layers, b.Bundle.Vision.Units()
			client.Tokens = b.Tokens()
		}
	}

	return client
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
	clipPrompts := make([]clip.Prompt, len(prompts))
	for i, prompt := range prompts {
		clipPrompts[i] = clipPrompt(prompt)
		if prompt.NoClass {
			own, err := b.EmptySuffix()
			if err != nil {
				return nil, err
			}
			clipPrompts[i].Own = own
		}

		if !prompt.Ctx.OK() {
			words, own, err := b.SplitTemplate(classes, prompt.Template)
			if err != nil {
				return nil, err
			}
			if clipPrompts[i].Own = own; words != nil {
				clipPrompts[i].Ctx = g.Const(words)
			}
		}
	}

	out, err := b.Prompts(g, classes, clipPrompts)
	for i, q := range prompts {
		if err == nil && q.PerImage() {
			out[i] = out[i].Reshape(-1, len(classes), b.Bundle.Text.EmbedDim)
		}
	}

	return out, err
}

// Backbones are the backbones of an experiment, and who has which.
type Backbones struct {
	Distinct []*bundle.Bundle // in the order of Config.Backbones
	Assigned []*bundle.Bundle // of each client

	named []*bundle.Bundle // of each entry of Config.Backbones
}

// OpenBackbones opens the backbones of a configuration and assigns them to clients. It runs none.
func OpenBackbones(ctx context.Context, config Config, clients int, progress Progress) (*Backbones, error) {
	backbones, byName := &Backbones{}, map[string]*bundle.Bundle{}
	for _, name := range config.Backbones {
		if byName[name] == nil {
			f, err := openBackbone(ctx, config, name, progress)
			if err != nil {
				return nil, err
			}
			byName[name], backbones.Distinct = f, append(backbones.Distinct, f)
		}
		backbones.named = append(backbones.named, byName[name])
	}

	for _, name := range config.assigned(clients) {
		backbones.Assigned = append(backbones.Assigned, byName[name])
	}

	return backbones, nil
}

// openBackbone opens a backbone for the loss of a configuration.
func openBackbone(ctx context.Context, c Config, name string, progress Progress) (*bundle.Bundle, error) {
	model, err := findBackbone(ctx, name, c.Runtime.Models, progress)
	if err != nil {
		return nil, configtags.KeyErrorf("backbones", "%w", err)
	}

	model.Sigmoid = c.Train.Loss == sigmoidLoss
	if model.Sigmoid && model.AssumedScale {
		return nil, fmt.Errorf("backbone %s: its files lack the logit scale and bias that train.loss: sigmoid needs: "+
			"write backbones: [{folder: %s, logit_scale: NUMBER, logit_bias: NUMBER}], or add the "+
			"model.safetensors or model.onnx of the whole model", model.Name, model.Dir)
	}

	return model, nil
}

// assigned returns the backbones of the first n clients.
func (c Config) assigned(n int) []string {
	out, r := make([]string, n), method.Rand(c.Seed, "backbones")
	for i := range out {
		k := i % len(c.Backbones)
		if c.Assign == "random" {
			k = r.IntN(len(c.Backbones))
		}
		out[i] = c.Backbones[k]
	}

	return out
}
