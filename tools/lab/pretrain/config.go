package pretrain

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/sets"
	"promptfed/models/clip"
	"promptfed/models/synthetic"
	"promptfed/runtime/optim"
)

// Config describes the architecture, the data and the training. The tags are the keys of a configuration file.
type Config struct {
	Name     string `config:"name" help:"name of the backbone"`
	Seed     uint64 `config:"seed" help:"seed of weights and batches; one seed gives backbones one initial text tower"`
	Out      string `config:"out" help:"folder for the checkpoint, which is created"`
	Start    string `config:"start" help:"folder of a finished backbone to start from; empty: train from scratch"`
	Take     string `config:"take" help:"what start gives: text (the text tower without its projection) or all"`
	EmbedDim int    `config:"embed_dim" help:"size of the space that images and texts share"`
	Text     Tower  `config:"text" help:"text tower"`
	Image    Tower  `config:"image" help:"image tower; of a ResNet the width alone, 32 times its stem's channels"`
	Stages   []int  `config:"stages" help:"blocks of the four stages of a ResNet, which is then the image tower"`
	Patch    int    `config:"patch" help:"side of a patch in pixels"`
	Size     int    `config:"size" help:"side of the image in pixels"`

	Merges  int `config:"merges" help:"number of byte-pair merges of the bundled backbones' vocabulary to use"`
	Caption int `config:"caption_tokens" help:"longest caption, with start and end; longer ones are drawn again"`

	Careless Careless `config:"careless" help:"wrong captions"`

	Sources []Source `config:"sources" help:"where images come from"`
	Train   Training `config:"train" help:"optimisation"`

	Threads    int `config:"threads" help:"threads of ONNX Runtime; another number rounds differently"`
	Checkpoint int `config:"checkpoint_every" help:"steps between two checkpoints; 0 for none"`
}

// Tower is the size of a transformer.
type Tower struct {
	Width  int `config:"width"`
	Layers int `config:"layers"`
	Heads  int `config:"heads"`
}

// Careless makes captions of some wordings unreliable, as captions on the web are: a share Share of the captions that
// begin with one of Wordings name the class after the right one in the list of their source. The image's other captions
// stay right. A hand-written prompt with such a wording is then not the best one, so prompt tuning can improve on it.
type Careless struct {
	Wordings []string `config:"wordings" help:"how such captions begin"`
	Share    float64  `config:"share" in:"0..1" help:"share of these captions that are wrong, 0 to 1"`
}

// Source supplies a share of every batch.
type Source struct {
	Share      float64             `config:"share" help:"share of the batch; shares are scaled to add up to 1"`
	Data       sets.Config         `config:"data" help:"the data set; images of set synthetic are drawn on the fly"`
	Keep       int                 `config:"keep" in:"0..8"`
	Mirror     bool                `config:"mirror" help:"mirror half of the images"`
	Shift      int                 `config:"shift" in:"0..1024" help:"largest random shift in pixels"`
	Captions   map[string][]string `config:"captions"`
	Difficulty [2]float64          `config:"difficulty" help:"range of the difficulty of synthetic images"`
}

// LongHelp implements configtags.LongHelp.
func (Source) LongHelp() map[string]string {
	return map[string]string{
		"keep": "how many of every 8 training images of a class in a domain are used; 0 and 8: all",
		"captions": "templates by domain, 'any' for the rest; {} is the class, {a} the class with its article; a " +
			"synthetic source without 'any' uses its own captions",
	}
}

// Training is AdamW with a linear warm-up and cosine decay to 0; weight decay does not apply to gains, biases and other
// vectors.
type Training struct {
	Steps    int     `config:"steps"`
	Batch    int     `config:"batch"`
	LR       float64 `config:"lr"`
	Decay    float64 `config:"weight_decay"`
	Beta2    float64 `config:"beta2"`
	Warmup   int     `config:"warmup" help:"steps"`
	ClipNorm float64 `config:"clip_norm"`
	ByClass  float64 `config:"by_class" help:"0 to 1: how far images of one class count as equal, despite captions"`
}

// Defaults returns the default configuration, which a file overrides.
func Defaults() Config {
	return Config{
		Seed: 1, EmbedDim: 64, Size: 64, Patch: 16,
		Text: Tower{96, 3, 3}, Image: Tower{128, 4, 4},
		Merges: 1000, Caption: 16,
		Train:   Training{Steps: 1000, Batch: 128, LR: 1e-3, Decay: 0.1, Beta2: 0.98, Warmup: 100, ClipNorm: 1},
		Threads: 1, Checkpoint: 200,
	}
}

// contextLength is the number of text positions, as in the published models, so that long prompts fit.
const contextLength = 77

func (c Config) text() clip.TextArch {
	return clip.TextArch{Width: c.Text.Width, Layers: c.Text.Layers, Heads: c.Text.Heads, Context: contextLength,
		EmbedDim: c.EmbedDim}
}

func (c Config) image() clip.VisionArch {
	if len(c.Stages) > 0 {
		return clip.VisionArch{Width: c.Image.Width, Heads: c.Image.Width / 64, Stages: c.Stages, Patch: 32,
			Image: c.Size, EmbedDim: c.EmbedDim}
	}
	return clip.VisionArch{Width: c.Image.Width, Layers: c.Image.Layers, Heads: c.Image.Heads, Patch: c.Patch,
		Image: c.Size, EmbedDim: c.EmbedDim}
}

// Validate checks everything that can be checked without reading the disk.
func (c Config) Validate() error {
	training, image := c.Train, c.image()
	_, optimizerErr := training.optimizer()
	_, rateErr := training.rate()
	errs := []error{c.text().Check(), image.Check(),
		data.Need(image.Patch < 1 || image.Image%image.Patch == 0, "patches of %d pixels leave a margin of an image "+
			"of %d: choose a patch that divides it", image.Patch, image.Image),
		data.Need(c.Name != "" && c.Out != "", "name %q, out %q: give the backbone a name and a folder", c.Name, c.Out),
		data.Need(slices.Contains([]string{"", takeText, takeAll}, c.Take), "take: %q is not known: use %s or %s",
			c.Take, takeText, takeAll),
		data.Need(c.Merges >= 0 && c.Caption >= 3 && c.Caption <= contextLength, "merges %d, caption_tokens %d: "+
			"merges must not be negative, captions take 3 to %d tokens", c.Merges, c.Caption, contextLength),
		configtags.Check("careless.", c.Careless),
		data.Need(len(c.Sources) > 0, "sources: give at least one")}

	for i, s := range c.Sources {
		if err := s.validate(); err != nil {
			errs = append(errs, fmt.Errorf("sources[%d]: %w", i, err))
		}
	}

	return cmp.Or(append(errs,
		data.Need(training.Steps >= 1 && training.Batch >= 2 && training.Warmup >= 0 &&
			training.Warmup < training.Steps &&
			training.Beta2 > 0, "train: steps "+
			"%d, batch %d, warmup %d, beta2 %g: need 1 step, 2 images, a warm-up shorter than the training and a "+
			"beta2 in (0,1)", training.Steps, training.Batch, training.Warmup, training.Beta2),
		data.Need(training.ByClass >= 0 && training.ByClass <= 1, "train.by_class: %v; it must lie between 0 and 1",
			training.ByClass),
		data.Need(c.Checkpoint >= 0 && c.Threads >= 0, "checkpoint_every %d, threads %d: neither may be negative",
			c.Checkpoint, c.Threads),
		optimizerErr, rateErr)...)
}

func (s Source) validate() error {
	errs := []error{sets.Validate(s.Data), data.Need(s.Share > 0 && !math.IsInf(s.Share, 1), "share %g must be above 0",
		s.Share), configtags.Check("", s)}
	if s.synthetic() {
		d := s.Difficulty
		list, own := s.Captions[anyDomain]
		errs = append(errs, data.Need(d[0] >= 0 && d[0] <= d[1] && d[1] <= 1,
			"difficulty %v: from 0 to 1, the smaller number first", d), data.Need(len(s.Captions) == 0 ||
			len(s.Captions) == 1 && own && !slices.ContainsFunc(list, lacksClass),
			"captions: a synthetic source takes templates under 'any' alone, each with {} or {a}"))

		for _, class := range s.classes() {
			for _, domain := range s.domains() {
				_, err := synthetic.New(class, domain, 0, synthetic.Default())
				errs = append(errs, err)
			}
		}

		return cmp.Or(errs...)
	}

	errs = append(errs, data.Need(len(s.Captions) > 0, "captions: give templates, at least under 'any'"))
	for domain, list := range s.Captions {
		for _, text := range list {
			errs = append(errs, data.Need(!lacksClass(text), "captions.%s: %q names no class: write {} or {a} where "+
				"it goes", domain, text))
		}
		errs = append(errs, data.Need(len(list) > 0, "captions.%s is empty", domain))
	}

	return cmp.Or(errs...)
}

// optimizer returns AdamW with decoupled weight decay of matrices only.
func (t Training) optimizer() (*optim.Optimizer, error) {
	// The package's own constructor checks the values; the chain below decays different parameters.
	if _, err := optim.New(optim.Config{Name: "adamw", LR: t.LR, WeightDecay: t.Decay, Beta2: t.Beta2,
		ClipNorm: t.ClipNorm}); err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}

	var parts []optim.Transform
	if t.ClipNorm > 0 {
		parts = append(parts, optim.ClipByGlobalNorm(t.ClipNorm))
	}

	return optim.With(append(parts, optim.ScaleByAdam(0.9, t.Beta2, 1e-6), decayMatrices(t.Decay))...), nil
}

func (t Training) rate() (optim.Rate, error) {
	return optim.Schedule{Kind: "cosine", TMax: t.Steps - t.Warmup, Warmup: t.Warmup, WarmupKind: "linear"}.New(t.LR)
}
