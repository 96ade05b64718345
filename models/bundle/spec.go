package bundle

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"promptfed/models/clip"
)

// Spec specifies a bundle: a name or a folder, or folders of the two towers of an exported model. As text it is the
// name, or KEY=VALUE pairs separated by commas: image=A,text=B,variant=fp16.
type Spec struct {
	Folder      string  // or a name for Find
	Image, Text string  // folders of one tower each, or their .onnx files; Folder is then empty
	Variant     string  // which files of an exported model are used, such as fp16
	Name        string  // replaces the folder's name
	LogitScale  float64 // replaces the model's; 0 keeps it
	LogitBias   float64 // replaces the model's; 0 keeps it
}

// SpecKeys returns the keys of a specification's text.
func SpecKeys() []string {
	return []string{"folder", "image", "text", "variant", "name", "logit_scale", "logit_bias"}
}

// ParseSpec reads a specification. If the text before the first equals sign contains a path separator, the whole text
// is a path.
func ParseSpec(text string) (spec Spec, err error) {
	if first, _, pairs := strings.Cut(text, "="); !pairs || strings.ContainsAny(first, `/\`) {
		return Spec{Folder: text}, nil
	}

	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		to := map[string]*string{"folder": &spec.Folder, "image": &spec.Image, "text": &spec.Text,
			"variant": &spec.Variant, "name": &spec.Name}[key]
		number := map[string]*float64{"logit_scale": &spec.LogitScale, "logit_bias": &spec.LogitBias}[key]
		switch {
		case number != nil:
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return spec, fmt.Errorf("backbone %q: %s %q must be a number", text, key, value)
			}
			if *number = v; key == "logit_scale" {
				err = clip.CheckScale(v, 0)
			} else {
				err = clip.CheckScale(1, v)
			}
			if err != nil {
				return spec, fmt.Errorf("backbone %q: %w", text, err)
			}
		case to == nil || value == "":
			return spec, fmt.Errorf("backbone %q: %q is none of %s=", text, pair, strings.Join(SpecKeys(), "=, "))
		default:
			*to = value
		}
	}

	if (spec.Image == "") != (spec.Text == "") || (spec.Image == "") == (spec.Folder == "") {
		return spec, fmt.Errorf("backbone %q: give a folder, or both image and text", text)
	}

	return spec, nil
}

// ShortName returns the name of a specification for other machines: its name, or the last element of its path.
func ShortName(text string) string {
	spec, err := ParseSpec(text)
	switch {
	case err != nil:
		return filepath.Base(text)
	case strings.HasPrefix(spec.Folder, HubPrefix) && spec.Name == "":
		if h, err := ParseHubName(spec.Folder); err == nil {
			return h.Folder()
		}
		return filepath.Base(text)
	case spec.Name != "":
		return spec.Name
	case spec.Folder != "":
		return filepath.Base(spec.Folder)
	}

	return filepath.Base(spec.Image)
}
