package experiment

import (
	"strings"
	"testing"

	"promptfed/federation/methods"
	"promptfed/runtime/goldentest"
)

// A prompt that clients share is refused on backbones of several text widths before an image is read, for a run and for
// a cell of a sweep. Prompts that stay with their clients are not.
func TestSharedPromptsOfSeveralWidths(t *testing.T) {
	const other = "../../models/bundle/exported/testdata/siglip"
	c := smallConfig("promptfl")
	c.Backbones, c.Assign, c.Options = append(c.Backbones, other), "cycle", map[string]any{"tokens": 3}
	_, err := Open(t.Context(), c, nil)
	goldentest.WantErrorOf(t, "a run", err, "parameter ctx is [3 12]", "it cannot be averaged")
	var cells Prechecker
	err = cells.Check(c)
	goldentest.WantErrorOf(t, "a cell", err, "parameter ctx is [3 12]", "it cannot be averaged")
	c.Method = "coop"
	if err := cells.Check(c); err != nil {
		t.Error(err)
	}
}

// Cells are refused for prompts that do not fit a text tower and for steps that need too much memory. A set that cannot
// be opened is left to the run.
func TestPrechecker(t *testing.T) {
	var cells Prechecker
	for _, one := range []struct {
		set func(*Config)
		say string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Options["tokens"] = 90 }, "options.tokens: client 0 on "},
		{func(c *Config) { c.Method, c.Options = "fedpha", map[string]any{"local_tokens": 80} },
			"after a prompt of 80 tokens"},
		{func(c *Config) { c.Method, c.Options = "fedpha", map[string]any{"global_tokens": 80} },
			"options.global_tokens: client 0 on "},
		{func(c *Config) { c.Method, c.Options, c.Train.Memory = "fedvpt", nil, 1e-6 }, "train.memory_gb"},
		{func(c *Config) { c.Method, c.Options = "fedlora", map[string]any{"towers": "image"} }, ""},
		{func(c *Config) {
			c.Method, c.Options = "fedlora", map[string]any{"towers": "image"}
			c.Train.Each.Batch = []int{1 << 20}
		}, "a batch of 1048576"},
		{func(c *Config) { c.Data.Set, c.Data.Root = "folder", "none" }, ""},
	} {
		c := smallConfig("promptfl")
		c.Options = map[string]any{"tokens": 3}
		one.set(&c)
		for range 2 { // the second answer is that of the first
			err := cells.Check(c)
			if one.say == "" && err != nil || one.say != "" && (err == nil || !strings.Contains(err.Error(), one.say)) {
				t.Errorf("%v, want %q", err, one.say)
			}
		}
	}
}

// Every method opens on a ResNet and on an exported model, or says in one line what it needs.
func TestMethodsOnOtherTowers(t *testing.T) {
	for _, backbone := range []string{"tiny-rn50", "../../models/bundle/exported/testdata/siglip"} {
		refused := 0
		for _, e := range methods.Table() {
			c := smallConfig(e.Name)
			if e.Wrapper() {
				c.Method, c.With = "promptfl", []string{e.Name}
			}
			c.Backbones = []string{backbone}
			if _, err := Open(t.Context(), c, nil); err != nil {
				if refused++; strings.Contains(err.Error(), "\n") {
					t.Errorf("%s on %s: %v", e.Name, backbone, err)
				}
			}
		}
		if refused == 0 {
			t.Errorf("no method needs a tower that %s lacks", backbone)
		}
	}
}
