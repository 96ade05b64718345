package client_test

import (
	"fmt"
	"math"
	"path"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// withTower is a toy whose image tower is one of CLIP's, with random weights.
type withTower struct {
	*methodtest.Toy
	vision  clip.Vision
	weights clip.ConstantWeights
}

func newTower(arch clip.VisionArch, seed uint64) *withTower {
	arch.EmbedDim = 256
	w := &withTower{&methodtest.Toy{ID: fmt.Sprint("tower ", seed), Width: methodtest.Width, Dim: 256,
		Layers: arch.Layers}, clip.Vision{VisionArch: arch}, clip.ConstantWeights{}}
	for name, shape := range arch.Shapes() {
		w.weights[name] = method.Draw(seed, 0, name, shape, math.Sqrt(1/float64(tensor.Size(shape)/shape[0])))
		if gain, _ := path.Match("*ln_*.weight", name); gain {
			w.weights[name] = method.Draw(seed, 0, name, shape, 1)
		}
	}
	return w
}

func (w *withTower) Task() method.ClientSpec {
	t, v := w.Toy.Task(), w.vision
	t.ImageSize, t.Patches, t.VisionWidth, t.VisionLayers, t.VisionUnits = v.Image, v.Patches(), v.Width, v.Layers,
		v.Units()
	return t
}

func (w *withTower) Vision(g *graph.Graph, pixels graph.Node, p method.VisionPrompts) (graph.Node, error) {
	n, _ := w.vision.PromptedFeatures(g, w.weights, pixels, p)
	return n, g.Err()
}

var (
	towerViT = clip.VisionArch{Width: 256, Layers: 3, Heads: 4, Patch: 4, Image: 16}
	towerRN  = clip.VisionArch{Width: 256, Heads: 4, Stages: []int{1, 1, 1, 1}, Patch: 32, Image: 64}
)

// oneClient returns an experiment of a client on a backbone with seven images to train and seven to test.
func oneClient(t *testing.T, b *withTower, name string, options map[string]any) *spec.Experiment {
	t.Helper()
	m := buildMethod(t, name, nil, options)
	e := withMethod(m)
	e.Clients = methodtest.ClientsOfOneBackbone(7)
	e.Clients[0].Backbone = b
	e.Clients[0].Train, e.Clients[0].Test = methodtest.Rows(100, 7, 256, 4), methodtest.Rows(200, 7, 256, 4)
	for i, features := range []*spec.Features{e.Clients[0].Train.(*spec.Features), e.Clients[0].Test} {
		n := b.vision.Image
		features.Pixels = []spec.RowReader{spec.InMemory{Tensor: methodtest.Values(50+i, 1, 7, 3, n, n)}}
		features.Patches, features.Tokens = nil, nil
	}
	e.Training.Epochs, e.Training.Optim.LR = 3, 1e-3
	return e
}

// trained returns what a client uploads and keeps after three epochs, its mean loss and its class scores.
func trained(t *testing.T, w *client.Worker) map[string]tensor.Map {
	t.Helper()
	c := w.Experiment.Clients[0]
	o := message.Instruction{Kind: message.Train, Total: 1, Shared: tensor.Map{}, Broadcast: tensor.Map{}}
	for _, p := range w.Experiment.Method.Params(w.Task(c, 1)) {
		if p.Owner == method.Shared {
			o.Shared[p.Name] = method.Draw(3, 0, p.Name, p.Shape, 0.1)
		}
	}
	reply, s, err := w.Train(t.Context(), c, o, message.ClientState{})
	goldentest.NoError(t, err)
	l, s := w.Begin(t.Context(), c, o, s)
	scores, err := w.ScoreRows(t.Context(), c, l, s, c.Test)
	goldentest.NoError(t, err)
	return map[string]tensor.Map{"upload": reply.Upload.Shared, "own": s.Private, "loss": {"train": tensor.Of(
		[]float32{float32(reply.Stats.Loss)}, 1), "test": scores}}
}

// TestImagePartsAreTheWhole: steps and scores in which parts of the image tower are computed once for each image have
// the bytes of those in one graph: adapters of the last block, prompts of a ResNet's attention pooling, and the plain
// tower of FedMVP. Bytes are the same without memory for the values, with memory for some of them, and with all known.
func TestImagePartsAreTheWhole(t *testing.T) {
	orttest.RequireCPU(t)
	for _, c := range []struct {
		name    string
		arch    clip.VisionArch
		options map[string]any
		least   float64
		kept    int // images; FedMVP's scores need no plain tower
	}{
		{"pfedmma", towerViT, map[string]any{"towers": "image", "blocks": 1}, 2048, 14},
		{"fedvpt", towerRN, map[string]any{"vision_tokens": 2}, 256, 14},
		{"fedmvp", towerViT, map[string]any{"mult": 1}, 2048, 7},
	} {
		e := oneClient(t, newTower(c.arch, 1), c.name, c.options)
		build := func(least float64, bytes, turns int) (out map[string]tensor.Map, kept, size int) {
			w := client.NewWorker(e, client.Settings{Session: ort.Options{Prepack: true}})
			defer w.Close()
			w.ImageParts(least, bytes)
			for range turns {
				out = trained(t, w)
			}
			kept, size = w.ImageValues()
			return out, kept, size
		}
		whole, none, _ := build(math.Inf(1), 1<<30, 1)
		want, kept, size := build(c.least, 1<<30, 1)
		if none != 0 || kept != c.kept {
			t.Errorf("%s: values of %d and %d images are kept, want 0 and %d", c.name, none, kept, c.kept)
		}
		equal(t, c.name+", the whole", whole, want, 0)
		for what, bytes := range map[string]int{"no memory": 0, "memory for some": size / 2} {
			got, n, _ := build(c.least, bytes, 1)
			if want := kept * bytes / size; n != want {
				t.Errorf("%s, %s: values of %d images are kept, want %d", c.name, what, n, want)
			}
			equal(t, c.name+", "+what, got, want, 0)
		}
		again, _, _ := build(c.least, 1<<30, 2)
		equal(t, c.name+", a second turn", again, want, 0)
		if c.name == "pfedmma" { // two images of a batch of four at a time
			e.Training.Memory = 2 * clip.BlocksStepBytes(17, 256, 4*256, 3, true)
			parts, _, _ := build(c.least, 1<<30, 1)
			equal(t, "a batch in parts", parts, want, 1e-6)
		}
	}
}

// equal compares the numbers of two trainings.
func equal(t *testing.T, what string, got, want map[string]tensor.Map, tolerance float64) {
	t.Helper()
	for kind, m := range want {
		for name, v := range m {
			d := got[kind][name].Clone()
			if d.Axpy(-1, v); !(d.MaxAbs() <= tolerance*max(1, v.MaxAbs())) {
				t.Errorf("%s: %s %s differs by %g", what, kind, name, d.MaxAbs())
			}
		}
	}
}

// Two towers with other weights, and two methods whose first adapters are in other blocks, share no value of the same
// images; steps and tests of one method do. Prompts of the first block leave nothing to keep.
func TestImageValuesAreOfOneTower(t *testing.T) {
	orttest.RequireCPU(t)
	e := oneClient(t, newTower(towerViT, 1), "pfedmma", map[string]any{"towers": "image", "blocks": 1})
	w := client.NewWorker(e, client.Settings{})
	defer w.Close()
	first := trained(t, w)
	same := *e.Clients[0]
	same.Backbone = newTower(towerViT, 2)
	w.Experiment.Clients = []*spec.Client{&same}
	second := trained(t, w)
	if n, _ := w.ImageValues(); n != 28 {
		t.Errorf("two towers: %d values, want 28", n)
	}
	alone := client.NewWorker(e, client.Settings{})
	defer alone.Close()
	alone.Experiment.Clients = w.Experiment.Clients
	equal(t, "the second tower", second, trained(t, alone), 0)
	if slices.Equal(first["loss"]["test"].Data, second["loss"]["test"].Data) {
		t.Error("two towers have the same scores")
	}
	e.Clients[0].Test = e.Clients[0].Train.(*spec.Features)
	both := client.NewWorker(e, client.Settings{})
	defer both.Close()
	trained(t, both)
	if n, _ := both.ImageValues(); n != 7 {
		t.Errorf("steps and tests of the same seven images keep %d values", n)
	}
	for _, c := range []struct {
		name    string
		options map[string]any
		kept    int
	}{{"pfedmma", map[string]any{"towers": "image", "blocks": 2}, 14},
		{"pfedmma", map[string]any{"towers": "text"}, 0},
		{"fedvpt", map[string]any{"vision_tokens": 2}, 0},
		{"fedlora", map[string]any{"towers": "image", "loss": "ce"}, 0}} {
		other := client.NewWorker(oneClient(t, newTower(towerViT, 1), c.name, c.options), client.Settings{})
		defer other.Close()
		trained(t, other)
		if n, _ := other.ImageValues(); n != c.kept {
			t.Errorf("%s %v: %d values, want %d", c.name, c.options, n, c.kept)
		}
	}
}

// Clients that train at the same time share the values of images, and keep the bytes of clients one after the other.
func TestImageValuesAtOnce(t *testing.T) {
	orttest.RequireCPU(t)
	e := oneClient(t, newTower(towerViT, 1), "pfedmma", map[string]any{"towers": "image", "blocks": 1})
	for id := range 3 {
		c := *e.Clients[0]
		c.ID = id
		e.Clients = append(e.Clients[:id:id], &c)
	}
	e.Plan.Rounds, e.Training.Epochs = 2, 1
	one := mustRun(t, e, engine.Settings{Workers: 1})
	three := mustRun(t, e, engine.Settings{Workers: 3})
	for name, want := range one.Prompts {
		if !slices.Equal(three.Prompts[name].Data, want.Data) {
			t.Errorf("three workers: other %s", name)
		}
	}
	for i, r := range one.Records {
		if *r.Loss != *three.Records[i].Loss {
			t.Errorf("round %d: loss %v, and %v with three workers", i, *r.Loss, *three.Records[i].Loss)
		}
	}
}
