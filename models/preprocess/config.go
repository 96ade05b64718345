package preprocess

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// hfUnread lists fields of preprocessor_config.json that do not change the pixels of an RGB image, with the values (as
// JSON) for which this holds; nil means every value (CLIPImageProcessor and SiglipImageProcessor, transformers 5.23).
var hfUnread = map[string][]string{"_valid_processor_keys": nil, "data_format": nil, "device": nil,
	"disable_grouping": nil, "do_convert_rgb": nil, "input_data_format": nil, "processor_class": nil,
	"return_tensors": nil, "transformers_version": nil, "do_pad": {"false", "null"}, "pad_size": {"null"},
	"default_to_square": {"false", "null"}}

// readFields reads the fields of a struct from an object. A field that is neither in the struct nor in unread is an
// error, because it may change pixels.
func readFields(data []byte, into any, unread map[string][]string) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}

	for key, value := range all {
		if values, ok := unread[key]; ok && (values == nil || slices.Contains(values, string(value))) {
			delete(all, key)
		}
	}

	rest, err := json.Marshal(all)
	if err != nil {
		return err
	}

	dec := json.NewDecoder(bytes.NewReader(rest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w: remove a field that changes no pixels", err)
	}

	return nil
}

// FromHF reads Hugging Face's preprocessor_config.json. Settings that no CLIP uses (no resize, other filters, a crop of
// another size than the resize) are errors. Missing fields have the values of the file's image_processor_type: those of
// SigLIP's or ViT's, else those of OpenAI's. A crop has Floor.
func FromHF(data []byte) (Preprocess, error) {
	fields := struct {
		Resize    *bool     `json:"do_resize"`
		Crop      *bool     `json:"do_center_crop"`
		Rescale   *bool     `json:"do_rescale"`
		Normalize *bool     `json:"do_normalize"`
		Size      side      `json:"size"`
		CropSize  side      `json:"crop_size"`
		Resample  *int      `json:"resample"`
		Factor    *float64  `json:"rescale_factor"`
		Mean      []float32 `json:"image_mean"`
		Std       []float32 `json:"image_std"`
		Processor string    `json:"image_processor_type"`
		Extractor string    `json:"feature_extractor_type"` // its old name
	}{}

	if err := readFields(data, &fields, hfUnread); err != nil {
		return Preprocess{}, fmt.Errorf("preprocessor_config.json: %w", err)
	}

	fail := func(format string, args ...any) (Preprocess, error) {
		return Preprocess{}, fmt.Errorf("preprocessor_config.json: "+format, args...)
	}
	on := func(b *bool) bool { return b == nil || *b }
	preprocess := CLIP(224)
	switch kind := cmp.Or(fields.Processor, fields.Extractor); {
	case strings.HasPrefix(kind, "Siglip"):
		preprocess = SigLIP(224)
	case strings.HasPrefix(kind, "ViT"):
		preprocess = SigLIP(224)
		preprocess.Resize = Bilinear
	}

	if preprocess.Crop = preprocess.Crop && !fields.Size.square; fields.Crop != nil { // SigLIP's file has no crop field
		preprocess.Crop = *fields.Crop
	}

	switch {
	case !on(fields.Resize) || !on(fields.Rescale):
		return fail("do_resize and do_rescale must be true")
	case fields.Factor != nil && (*fields.Factor < 0.00392 || *fields.Factor > 0.00393):
		return fail("rescale_factor %v, need 1/255", *fields.Factor)
	case preprocess.Crop && fields.Size.pixels > 0 && fields.CropSize.pixels > 0 &&
		fields.Size.pixels != fields.CropSize.pixels:
		return fail("crop_size %d differs from size %d: not supported", fields.CropSize.pixels, fields.Size.pixels)
	case preprocess.Crop && fields.Size.square || !preprocess.Crop && fields.Size.pixels > 0 && !fields.Size.square:
		return fail("do_center_crop %v does not go with the form of size: need shortest_edge with a crop, height and "+
			"width without", preprocess.Crop)
	case fields.Size.pixels > 0:
		preprocess.Size = fields.Size.pixels
	case fields.CropSize.pixels > 0:
		preprocess.Size = fields.CropSize.pixels
	}

	preprocess.Floor = preprocess.Crop
	if fields.Resample != nil {
		name, ok := map[int]string{2: Bilinear, 3: Bicubic}[*fields.Resample]
		if !ok {
			return fail("resample %d, need 3 (bicubic) or 2 (bilinear)", *fields.Resample)
		}
		preprocess.Resize = name
	}

	if !on(fields.Normalize) {
		fields.Mean, fields.Std = []float32{0, 0, 0}, []float32{1, 1, 1}
	}

	if err := preprocess.colours(fields.Mean, fields.Std); err != nil {
		return fail("%w", err)
	}

	return preprocess, preprocess.Validate()
}

// FromOpenCLIP reads the preprocess_cfg object of OpenCLIP's open_clip_config.json; size is the model's image size,
// which is used if the object has none. Empty data means OpenAI's preprocessing, as in OpenCLIP.
func FromOpenCLIP(data []byte, size int) (Preprocess, error) {
	fields := struct {
		Size          json.RawMessage `json:"size"`
		Mode          string          `json:"mode"`
		Interpolation string          `json:"interpolation"`
		ResizeMode    string          `json:"resize_mode"`
		Fill          json.RawMessage `json:"fill_color"`
		Mean          []float32       `json:"mean"`
		Std           []float32       `json:"std"`
	}{Mode: "RGB", Interpolation: Bicubic, ResizeMode: "shortest"}

	if len(data) > 0 {
		if err := readFields(data, &fields, nil); err != nil {
			return Preprocess{}, fmt.Errorf("preprocess_cfg: %w", err)
		}
	}

	preprocess := CLIP(size)
	preprocess.Resize, preprocess.Crop = fields.Interpolation, fields.ResizeMode == "shortest"
	if len(fields.Size) > 0 {
		var pair [2]int
		if json.Unmarshal(fields.Size, &preprocess.Size) != nil {
			if err := json.Unmarshal(fields.Size, &pair); err != nil || pair[0] != pair[1] {
				return Preprocess{}, fmt.Errorf("preprocess_cfg: size %.40s, need one number or two equal ones",
					fields.Size)
			}
			preprocess.Size = pair[0]
		}
	}

	if preprocess.Longest = fields.ResizeMode == "longest"; preprocess.Longest && len(fields.Fill) > 0 &&
		json.Unmarshal(fields.Fill, &preprocess.Fill) != nil {
		return Preprocess{}, fmt.Errorf("preprocess_cfg: fill_color %.40s, need one level from 0 to 255", fields.Fill)
	}

	if fields.Mode != "RGB" || !preprocess.Crop && !preprocess.Longest && fields.ResizeMode != "squash" {
		return Preprocess{}, fmt.Errorf("preprocess_cfg: mode %q with resize_mode %q, need RGB with shortest, longest "+
			"or squash", fields.Mode, fields.ResizeMode)
	}

	if err := preprocess.colours(fields.Mean, fields.Std); err != nil {
		return Preprocess{}, fmt.Errorf("preprocess_cfg: %w", err)
	}

	return preprocess, preprocess.Validate()
}

// colours sets mean and std if they are given.
func (p *Preprocess) colours(mean, std []float32) error {
	for _, v := range []struct {
		name string
		from []float32
		to   *rgb
	}{{"mean", mean, &p.Mean}, {"std", std, &p.Std}} {
		if n := len(v.from); n != 0 && n != 3 {
			return fmt.Errorf("%s has %d numbers, need 3", v.name, n)
		}
		copy(v.to[:], v.from)
	}

	return nil
}

// side is a size in Hugging Face's notations: a number, {"shortest_edge": n} or {"height": n, "width": n}.
type side struct {
	pixels int
	square bool // height and width were given
}

func (s *side) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &s.pixels) == nil {
		return nil
	}

	fields := struct {
		Edge   int `json:"shortest_edge"`
		Height int `json:"height"`
		Width  int `json:"width"`
	}{}

	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}

	switch {
	case fields.Edge > 0:
		s.pixels = fields.Edge
	case fields.Height > 0 && fields.Height == fields.Width:
		s.pixels, s.square = fields.Height, true
	default:
		return fmt.Errorf("size %.60s, need a number, shortest_edge, or equal height and width", data)
	}

	return nil
}
