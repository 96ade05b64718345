package pretrain

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/models/checkpoint"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// A run that is stopped after its second step and continued ends with the same bytes as an uninterrupted run.
func TestResume(t *testing.T) {
	whole, parts := small(t, filepath.Join(t.TempDir(), "whole")), small(t, "")
	parts.Sources, parts.Out = whole.Sources, filepath.Join(t.TempDir(), "parts")
	steps := 0
	res, err := Run(context.Background(), whole, func(Progress) { steps++ })
	goldentest.NoError(t, err)
	if steps != 4 || len(res.Accuracy) != 7 {
		t.Errorf("%d steps and %d accuracies, want 4 and 7 (six synthetic domains and the folder's)", steps,
			len(res.Accuracy))
	}
	ctx, stop := context.WithCancel(context.Background())
	_, err = Run(ctx, parts, func(p Progress) {
		if p.Step == 3 {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the stopped run says %v", err)
	}
	first := 0
	if _, err := Run(context.Background(), parts, func(p Progress) {
		if first == 0 {
			first = p.Step
		}
	}); err != nil {
		t.Fatal(err)
	}
	if first != 3 {
		t.Errorf("the second run began with step %d, want 3", first)
	}
	if !bytes.Equal(filetest.Read(t, whole.Out, weightsFile), filetest.Read(t, parts.Out, weightsFile)) {
		t.Error("stopping and starting again changed the weights")
	}
	other := parts
	other.Seed++
	_, err = Run(context.Background(), other, nil)
	goldentest.WantErrorOf(t, "another seed in the same folder", err, "another configuration")
}

// A training continues only with the images that it began with: changed files under the same paths are refused, since
// the steps would have different data.
func TestResumeWithOtherFiles(t *testing.T) {
	c := small(t, filepath.Join(t.TempDir(), "out"))
	ctx, stop := context.WithCancel(t.Context())
	if _, err := Run(ctx, c, func(p Progress) {
		if p.Step == 3 {
			stop()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	image := filepath.Join(c.Sources[1].Data.Root, "photo", "cat", "a.png")
	goldentest.NoError(t, os.Rename(image, filepath.Join(filepath.Dir(image), "zz.png")))
	_, err := Run(t.Context(), c, nil)
	goldentest.WantErrorOf(t, "another image", err, "other images")
}

// Export writes an OpenCLIP folder in which nothing must be guessed.
func TestExport(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.Train.Steps, cfg.Train.Warmup = 1, 0
	if _, err := Run(context.Background(), cfg, nil); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(cfg.Out, checkpoint.Options{})
	goldentest.NoError(t, err)
	defer c.Close()
	w, err := checkpoint.CLIP(c)
	goldentest.NoError(t, err)
	a := w.Arch
	if len(a.Warnings) > 0 {
		t.Errorf("the reader had to guess: %v", a.Warnings)
	}
	if a.Vision.ResNet() || a.Vision.Image != 16 || a.Vision.Patch != 8 || a.Text.EmbedDim != 8 ||
		a.Text.Context != 77 ||
		a.Vision.Heads != 1 || a.Text.Heads != 1 || a.Text.Activation != checkpoint.QuickGELU || a.Vocab != 1514 {
		t.Errorf("read back as %+v", a)
	}
}

// A backbone that starts from another has its text tower, and its own image tower and projections.
func TestStart(t *testing.T) {
	first := small(t, t.TempDir())
	tok, err := first.vocabulary()
	goldentest.NoError(t, err)
	trained := fresh(first.text(), first.image(), tok.VocabSize(), 5)
	goldentest.NoError(t, Export(first, trained))
	for _, w := range trained { // as stored in a folder
		goldentest.NoError(t, data.RoundHalf(w))
	}
	second := small(t, t.TempDir())
	second.Start, second.EmbedDim = first.Out, 4
	got, err := newTrainer(second)
	goldentest.NoError(t, err)
	defer got.session.Close()
	for _, name := range []string{tokenTable, "transformer.resblocks.0.attn.in_proj_weight", "visual.conv1.weight"} {
		same := slices.Equal(got.weights[name].Data, trained[name].Data)
		if same == strings.HasPrefix(name, "visual.") {
			t.Errorf("%s: taken over is %v", name, same)
		}
	}
	goldentest.NoError(t, Export(first, fresh(first.text(), first.image(), tok.VocabSize(), 6)))
	if other, err := newTrainer(second); err != nil || other.fingerprint() == got.fingerprint() {
		t.Errorf("a training from other weights has the checkpoints of the first: %v", err)
	}
	second.Take = takeAll
	_, err = newTrainer(second)
	goldentest.WantErrorOf(t, "another embedding dimension", err, "text_projection")
	second.Take, second.Text.Layers = takeText, 2
	_, err = newTrainer(second)
	goldentest.WantErrorOf(t, "another text tower", err, "same architecture")
}

// Training lowers the loss: with 12 pairs in a batch, guessing costs at most ln 12.
func TestLearns(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.Checkpoint, cfg.Train.LR = 0, 3e-3
	cfg.Train.Steps, cfg.Train.Warmup = 60, 5
	cfg.Sources = cfg.Sources[:1]
	cfg.Sources[0].Data.Generator.Classes = []string{"stripes", "dots"}
	cfg.Sources[0].Data.Generator.Domains = []string{"cartoon"}
	first := 0.0
	r, err := Run(context.Background(), cfg, func(p Progress) {
		if p.Step == 1 {
			first = p.Loss
		}
	})
	goldentest.NoError(t, err)
	if !(first < 2*math.Log(12)) || !(r.Loss < first) {
		t.Errorf("the loss went from %.3f to %.3f", first, r.Loss)
	}
}

func TestRefusals(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"give at least one":         func(c *Config) { c.Sources = nil },
		"patches of 7":              func(c *Config) { c.Patch = 7 },
		"does not divide":           func(c *Config) { c.Text.Heads = 3 },
		"give the backbone a name":  func(c *Config) { c.Name = "" },
		"shorter than the training": func(c *Config) { c.Train.Warmup = 4 },
		"names no class": func(c *Config) {
			c.Sources[1].Captions = map[string][]string{"any": {"a photo"}}
		},
		"no templates":          func(c *Config) { c.Sources[1].Captions = map[string][]string{"sketch": {"{a}"}} },
		"no class \"dragon\"":   func(c *Config) { c.Sources[0].Data.Generator.Classes = []string{"dragon"} },
		"take: \"half\"":        func(c *Config) { c.Take = "half" },
		"careless.share":        func(c *Config) { c.Careless.Share = 2 },
		"by_class":              func(c *Config) { c.Train.ByClass = -1 },
		"difficulty":            func(c *Config) { c.Sources[0].Difficulty = [2]float64{0.5, 0.1} },
		"under 'any' alone":     func(c *Config) { c.Sources[0].Captions = map[string][]string{"photo": {"{a}"}} },
		"share 0":               func(c *Config) { c.Sources[0].Share = 0 },
		"keep: 9":               func(c *Config) { c.Sources[1].Keep = 9 },
		"caption_tokens":        func(c *Config) { c.Caption = 3 },
		"the list is cut short": func(c *Config) { c.Merges = 5000 },
		"does not exist":        func(c *Config) { c.Sources[1].Data.Root = filepath.Join(c.Out, "nowhere") },
	} {
		cfg := small(t, t.TempDir())
		cfg.Train.Steps = 2
		if want == "shorter than the training" {
			cfg.Train.Steps = 4
		}
		change(&cfg)
		_, err := Run(context.Background(), cfg, nil)
		goldentest.WantError(t, err, want)
	}
}
