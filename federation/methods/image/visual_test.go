package image_test

import (
	stdcontext "context"
	"fmt"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
)

// Invalid settings are refused in one line with the next step: prompts of different image towers have no mean, deep
// ones no place in a ResNet, FedPR needs tokens and room to move.
func TestImagePromptsAreRefusedClearly(t *testing.T) {
	for _, c := range []struct {
		method  string
		options methodtest.Options
		clients []*spec.Client
		words   []string
	}{
		{"pfeddc", methodtest.Options{"vision": "deep"}, methodtest.Clients(4, 4),
			[]string{"parameter image/shared", "client 1", "toy-b", "[1 16 4]", "[3 16 4]", "the same image tower"}},
		{"fedhpl", methodtest.Options{"vision": "deep"}, methodtest.Clients(4, 4),
			[]string{"client 1", "vision: deep", "toy-b is a ResNet", "shallow or pixels"}},
		{"fedpr", methodtest.Options{"vision": "pixels"}, nil, []string{"vision is pixels", "shallow or deep"}},
		{"fedpr", methodtest.Options{"ratio": 0.0}, nil, []string{"ratio is 0", "above 0"}},
		{"fedvpt", methodtest.Options{"vision": "wide"}, nil, []string{"option vision", "shallow, deep or pixels"}},
		{"pfeddc", methodtest.Options{"attention": "some"}, nil, []string{"option attention"}},
		{"fedmvp", methodtest.Options{"attributes": map[string][]string{"cat": {}}}, nil,
			[]string{`option attributes has 0 for class "cat" and 0 for another`}},
	} {
		m, err := methods.Build(c.method, nil, c.options)
		if err == nil && c.clients != nil {
			_, err = engine.Run(stdcontext.Background(), &spec.Experiment{Method: m, Classes: methodtest.Classes,
				Template: "a {}.", Clients: c.clients,
				Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1}},
				Plan:     spec.Plan{Rounds: 1}}, engine.Settings{Workers: 1})
		}
		t.Run(fmt.Sprint(c.method, c.options), func(t *testing.T) { goldentest.WantError(t, err, c.words...) })
	}
}
