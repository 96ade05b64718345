package pretrain

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Values of Config.Take; empty means takeText.
const (
	takeText = "text"
	takeAll  = "all"
)

// start copies tensors of a trained backbone: all tensors, or the text tower without its projection. If two backbones
// share a text tower at the start, prompts have similar meanings for both, which makes averages of their prompts
// meaningful, and the second one's image tower learns from meaningful text features at once.
func start(folder, take string, weights, moments tensor.Map) error {
	if folder == "" {
		return nil
	}
	path := filepath.Join(folder, weightsFile)
	trained, _, err := safetensors.ReadFile(path)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	all := maps.Clone(weights)
	maps.Copy(all, moments)
	for _, name := range all.Names() {
		w := all[name]
		if take != takeAll && (strings.HasPrefix(name, "visual.") || name == "text_projection" || name == logScale) {
			continue
		}
		t := trained[name]
		if t == nil || !t.SameShape(w) {
			return fmt.Errorf("start: %s: tensor %s is %v, want %v: use a backbone with the same architecture and "+
				"vocabulary", path, name, t, w)
		}
		copy(w.Data, t.Data)
	}
	return nil
}
