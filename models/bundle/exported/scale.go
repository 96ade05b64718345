package exported

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// findScale returns the factor of similarities and the bias that is added to them. They come from bundle.json or the
// specification, from the image tower's file if it computes similarities, or from a file beside the towers: an export
// of the whole model or a checkpoint. Otherwise they are those of OpenAI's models.
func (m *model) findScale() (scale, bias float64, err error) {
	config, from := m.config, ""
	scale, bias = config.LogitScale, config.LogitBias
	switch {
	case scale == 0 && config.LogScale != nil:
		scale = math.Exp(*config.LogScale)
	case scale == 0:
		scale, bias, from = m.image.scale, m.image.bias, "the similarities of "+m.image.name
		if scale == 0 {
			scale, bias, from = m.scaleBeside()
		}
		if from != "" {
			m.decided("logit scale", "%.4f, from %s", scale, from)
		}
		if bias = cmp.Or(config.LogitBias, bias); scale > 0 && bias != 0 && config.LogitBias == 0 {
			m.decided("logit bias", "%.4f, from %s", bias, from)
		}
		if from == "" {
			scale, m.bundle.AssumedScale = 100, true
			m.bundle.Notes = append(m.bundle.Notes, "logit_scale is not given: 100, as in OpenAI's models; "+
				"if it is another, write it in "+bundle.ManifestFile)
		}
	}

	if err := clip.CheckScale(scale, bias); err != nil {
		if from == "" {
			return 0, 0, fmt.Errorf("%s: %w", filepath.Join(m.bundle.Dir, bundle.ManifestFile), err)
		}
		return 0, 0, fmt.Errorf("%w; it comes from %s: write another logit_scale in %s", err, from, bundle.ManifestFile)
	}

	if config.LogScale != nil && math.Abs(math.Log(scale)-*config.LogScale) > 1e-4 {
		return 0, 0, fmt.Errorf("logit_scale %g is not the exponential of logit_scale_log %g: leave one of them out",
			scale, *config.LogScale)
	}

	return scale, bias, nil
}

// scaleBeside reads the scale from the smallest export of both towers in one file, or from a checkpoint, since exports
// of single towers do not contain it.
func (m *model) scaleBeside() (scale, bias float64, from string) {
	root := m.bundle.Dir
	if m.imageDir != "" {
		root = filepath.Join(root, filepath.FromSlash(m.imageDir))
	}

	size := func(name string) int64 {
		if st, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err == nil {
			return st.Size()
		}
		return math.MaxInt64
	}

	var whole []export
	for _, l := range layouts {
		if l.combined() {
			whole = append(whole, matching(exportsIn(root), l.image)...)
		}
	}

	slices.SortStableFunc(whole, func(a, b export) int { return cmp.Compare(size(a.file), size(b.file)) })
	for _, e := range whole {
		at := path.Join(m.imageDir, e.file)
		if f, err := graph.OpenFile(m.bundle.Dir, at); err == nil && e.file != m.image.name {
			if _, _, scale, bias = similarities(m.bundle.Dir, f); scale > 0 {
				return scale, bias, "the similarities of " + at
			}
		}
	}

	for _, dir := range places(m.imageDir, m.image.name) {
		c, err := checkpoint.Open(m.path(dir), checkpoint.Options{})
		if err != nil {
			continue
		}
		defer c.Close()
		if scale, err = number(c, "logit_scale"); err == nil {
			bias, _ = number(c, "logit_bias")
			return math.Exp(scale), bias, "the checkpoint " + filepath.Base(c.WeightFiles()[0])
		}
	}

	return 0, 0, ""
}

func number(c *checkpoint.Checkpoint, name string) (float64, error) {
	h, err := c.Tensor(name)
	if err != nil {
		return 0, err
	}
	return h.Number()
}
