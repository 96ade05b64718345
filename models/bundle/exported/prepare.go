package exported

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"promptfed/models/bundle"
	"promptfed/models/preprocess"
	"promptfed/runtime/atomicfile"
)

// said holds sizes from configuration files beside the graphs; 0 is unknown.
type said struct{ image, context int }

// sources lists the files that may describe the preprocessing. read parses one; size is used if the file has none.
var sources = []struct {
	name string
	read func(data []byte, size int) (p preprocess.Preprocess, ok bool, err error)
}{
	{"preprocess_cfg.json", func(data []byte, size int) (preprocess.Preprocess, bool, error) {
		p, err := preprocess.FromOpenCLIP(data, size)
		return p, true, err
	}},
	{"preprocessor_config.json", func(data []byte, _ int) (preprocess.Preprocess, bool, error) {
		p, err := preprocess.FromHF(data)
		return p, true, err
	}},
	{"open_clip_config.json", inside},
	{"config.json", inside},
}

// inside reads the object preprocess_cfg of a larger object.
func inside(data []byte, size int) (p preprocess.Preprocess, ok bool, err error) {
	var f struct {
		Preprocess json.RawMessage `json:"preprocess_cfg"`
	}
	if err := json.Unmarshal(data, &f); err != nil || f.Preprocess == nil {
		return p, false, err
	}

	p, err = preprocess.FromOpenCLIP(f.Preprocess, size)
	return p, true, err
}

// sizesOf reads the sizes in a config.json or open_clip_config.json.
func sizesOf(data []byte) (known said) {
	type sizes struct {
		Image   json.Number `json:"image_size"`
		Context json.Number `json:"context_length"`
		Longest json.Number `json:"max_position_embeddings"`
	}
	type towers struct {
		Vision   sizes `json:"vision_cfg"`
		Text     sizes `json:"text_cfg"`
		VisionHF sizes `json:"vision_config"`
		TextHF   sizes `json:"text_config"`
	}

	var parsed struct {
		towers
		Model towers `json:"model_cfg"`
	}
	if json.Unmarshal(data, &parsed) != nil {
		return known
	}

	first := func(list ...json.Number) int {
		for _, n := range list {
			if v, err := n.Int64(); err == nil && v > 0 && v <= bundle.MaxExtent {
				return int(v)
			}
		}
		return 0
	}

	return said{image: first(parsed.Vision.Image, parsed.VisionHF.Image, parsed.Model.Vision.Image),
		context: first(parsed.Text.Context, parsed.TextHF.Longest, parsed.Model.Text.Context)}
}

// places returns the folders in which a tower's files are searched: the folder of its graph, the parent folder if that
// is onnx/, and the folder of the tower.
func places(dir, file string) []string {
	own := path.Dir(file)
	list := []string{own}
	if path.Base(own) == "onnx" {
		list = append(list, path.Dir(own))
	}

	if dir = path.Clean(dir); !slices.Contains(list, dir) {
		list = append(list, dir)
	}

	return list
}

// beside reads a file in one of the places and adds it to the files that the bundle depends on.
func (m *model) beside(at []string, file string) (name string, data []byte, err error) {
	name, data, err = m.look(at, file)
	if name != "" && err == nil {
		m.read = append(m.read, name)
	}
	return name, data, err
}

// look reads a file in one of the places; name is relative to the folder of the bundle, or empty if there is no such
// file.
func (m *model) look(at []string, file string) (name string, data []byte, err error) {
	for _, dir := range at {
		name = path.Join(dir, file)
		data, err = atomicfile.ReadAtMost(m.path(name), 1<<24)
		if !errors.Is(err, os.ErrNotExist) {
			return name, data, err
		}
	}

	return "", nil, nil
}

// preprocessing determines the preprocessing and measures the image tower. bundle.json takes precedence over files of
// exporters, and normalisation in the graph over both.
func (m *model) preprocessing() (preprocess.Preprocess, error) {
	config, imageTower := m.config, m.image
	at := places(m.imageDir, imageTower.name)
	for _, file := range []string{"config.json", "open_clip_config.json"} {
		_, data, err := m.beside(at, file)
		if err != nil {
			return preprocess.Preprocess{}, err
		}
		s := sizesOf(data)
		m.said = said{cmp.Or(m.said.image, s.image), cmp.Or(m.said.context, s.context)}
	}

	size := cmp.Or(config.ImageSize, imageTower.fixedSize(), m.said.image, 224)
	settings, from := preprocess.CLIP(size), ""
	for _, s := range sources {
		name, data, err := m.beside(at, s.name)
		if err != nil {
			return settings, err
		}

		if name == "" {
			continue
		}

		q, ok, err := s.read(data, size)
		if ok {
			settings.Floor = q.Floor // the last file decides, because libraries differ
		}

		switch {
		case err != nil:
			return settings, fmt.Errorf("%s: %w", name, err)
		case ok && from != "" && q != settings:
			return settings, fmt.Errorf("%s and %s prepare images differently (%+v, %+v): write preprocess in %s", from,
				name, settings, q, bundle.ManifestFile)
		case ok:
			settings, from = q, name
		}
	}

	known := cmp.Or(config.ImageSize, imageTower.fixedSize())
	if from != "" {
		known = cmp.Or(known, settings.Size)
		m.decided("preprocessing", "as %s says", from)
	}

	if err := imageTower.measure(cmp.Or(known, m.said.image), config.ImageSize != 0); err != nil {
		return settings, fmt.Errorf("%s: %w", imageTower.name, err)
	}

	if from == "" {
		settings.Size = imageTower.size
	}

	if imageTower.levels > 0 {
		settings.Mean, settings.Std = [3]float32{}, [3]float32{1 / imageTower.levels, 1 / imageTower.levels,
			1 / imageTower.levels}
		m.decided("normalisation", "inside the graph, of pixels from 0 to %g", imageTower.levels)
	}

	if config.Preprocess != nil {
		dec := json.NewDecoder(bytes.NewReader(config.Preprocess))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&settings); err != nil {
			return settings, fmt.Errorf("preprocess: %w; the keys are size, resize, crop, floor, longest, fill, "+
				"mean, std", err)
		}
	} else if from == "" {
		assumed := "preprocess is not given: that of OpenAI's models"
		if imageTower.levels > 0 {
			assumed = "preprocess is not given: its resizing and cropping are those of OpenAI's models"
		}
		m.bundle.Notes = append(m.bundle.Notes, assumed+"; if it is another, write it in "+bundle.ManifestFile)
	}

	if err := settings.Validate(); err != nil {
		return settings, err
	}

	if settings.Size != imageTower.size {
		return settings, fmt.Errorf("preprocess: images of %d pixels for a tower that takes %d", settings.Size,
			imageTower.size)
	}

	return settings, nil
}
