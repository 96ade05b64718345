package pretrain

import (
	"fmt"
	"path/filepath"
	"strings"

	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// start takes the text tower of a backbone that is trained already, without its projection: the two towers then read
// prompts alike, which is what makes averaging prompts between backbones sensible, and the image tower has texts to
// learn from at once.
func start(folder string, weights tensor.Map) error {
	if folder == "" {
		return nil
	}
	path := filepath.Join(folder, weightsFile)
	trained, _, err := safetensors.ReadFile(path)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	for name, w := range weights {
		if strings.HasPrefix(name, "visual.") || name == "text_projection" || name == logScale {
			continue
		}
		t := trained[name]
		if t == nil || !t.SameShape(w) {
			return fmt.Errorf("start: %s: tensor %s is %v, want %v: take a backbone with the same text tower and vocabulary", path, name, t, w)
		}
		copy(w.Data, t.Data)
	}
	return nil
}
