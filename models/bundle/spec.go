package bundle

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"promptfed/models/clip"
)

// Spec names a bundle: a name or folder, or folders of the two towers of an exported model. As text it is the name, or
// KEY=VALUE pairs with commas between them: image=A,text=B,variant=fp16.
type Spec struct {
	Folder      string  // or the name that Find looks for
	Image, Text string  // folders of one tower each, in place of Folder, or their .onnx files
	Variant     string  // of the files of an exported model, such as fp16
	Name        string  // in place of the folder's
	LogitScale  float64 // in place of the model's; 0 leaves it
	LogitBias   float64 // in place of the model's; 0 leaves it
}

// Keys are those of a specification's text.
func Keys() []string {
	return []string{"folder", "image", "text", "variant", "name", "logit_scale", "logit_bias"}
}

// ParseSpec reads a specification. A path may have an equals sign: what stands before the first one of pairs has no
// separator of folders.
func ParseSpec(text string) (s Spec, err error) {
	if first, _, pairs := strings.Cut(text, "="); !pairs || strings.ContainsAny(first, `/\`) {
		return Spec{Folder: text}, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		to := map[string]*string{"folder": &s.Folder, "image": &s.Image, "text": &s.Text, "variant": &s.Variant,
			"name": &s.Name}[key]
		number := map[string]*float64{"logit_scale": &s.LogitScale, "logit_bias": &s.LogitBias}[key]
		switch {
		case number != nil:
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return s, fmt.Errorf("backbone %q: %s %q must be a number", text, key, value)
			}
			if *number = v; key == "logit_scale" {
				err = clip.CheckScale(v, 0)
			} else {
				err = clip.CheckScale(1, v)
			}
			if err != nil {
				return s, fmt.Errorf("backbone %q: %w", text, err)
			}
		case to == nil || value == "":
			return s, fmt.Errorf("backbone %q: %q is none of %s=", text, pair, strings.Join(Keys(), "=, "))
		default:
			*to = value
		}
	}
	if (s.Image == "") != (s.Text == "") || (s.Image == "") == (s.Folder == "") {
		return s, fmt.Errorf("backbone %q: give a folder, or both image and text", text)
	}
	return s, nil
}

// ShortName is what other machines are told of a specification: the name, or the last element of the path.
func ShortName(text string) string {
	s, err := ParseSpec(text)
	switch {
	case err != nil:
		return filepath.Base(text)
	case s.Name != "":
		return s.Name
	case s.Folder != "":
		return filepath.Base(s.Folder)
	}
	return filepath.Base(s.Image)
}
