package methods_test

import (
	stdcontext "context"
	"fmt"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
)

// Towers exported by other tools have no blocks to insert prompts into, as likeCLIP's text and image towers. Each
// method names the missing blocks in one line.
func TestExportedTowersAreRefusedClearly(t *testing.T) {
	for _, c := range []struct {
		method string
		options
		words []string
	}{
		{"ivlp", options{"vision_depth": 0}, []string{"like-clip", "exported", "deep prompts", "depth"}},
		{"ivlp", options{"depth": 1, "vision_depth": 2}, []string{"like-clip is a ResNet", "vision_depth"}},
		{"maple", nil, []string{"like-clip", "transformer"}},
		{"promptsrc", options{"vision_depth": 0}, []string{"like-clip", "exported", "deep prompts"}},
		{"cocoop", nil, []string{"like-clip", "exported", "prompt for each image"}},
		{"proda", nil, []string{"like-clip", "exported", "prompts without a class"}},
		{"pfedmma", nil, []string{"like-clip", "adapters", "options.towers"}},
		{"fedlora", nil, []string{"like-clip", "low-rank", "options.towers"}},
		{"fedlora", options{"towers": "image"}, []string{"like-clip", "low-rank", "options.towers"}},
	} {
		m, err := methods.Build(c.method, nil, c.options)
		if err == nil {
			b := &likeCLIP{methodtest.Toy{ID: "like-clip", Width: clipWidth, Dim: clipDim}}
			classes := strings.Fields(strings.Repeat("class ", clipClasses))
			_, err = engine.Run(stdcontext.Background(), &spec.Experiment{Method: m, Classes: classes,
				Template: "a {}.", Clients: []*spec.Client{{Backbone: b, Train: clipRows(0, 4), Test: clipRows(0, 4)}},
				Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1}},
				Plan:     spec.Plan{Rounds: 1}}, engine.Settings{Workers: 1})
		}
		t.Run(fmt.Sprint(c.method, c.options), func(t *testing.T) { goldentest.WantError(t, err, c.words...) })
	}
}
