package hub

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"promptfed/models/hub/hubtest"
)

// snapshotOf prints the folder of a repository, as Python's huggingface_hub finds or fetches it.
const snapshotOf = `import sys, huggingface_hub as hub
names = ["config.json", "vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json",
         "special_tokens_map.json", "preprocessor_config.json", "model.safetensors"]
print(*sorted({hub.hf_hub_download("ORG/NAME", n)[:-len(n) - 1] for n in names}), end="")`

// Python's huggingface_hub and Pull read each other's cache without a network. PYTHON names a Python that has
// huggingface_hub; the test was compared with its version 2.4.0.
func TestPython(t *testing.T) {
	python := os.Getenv("PYTHON")
	if python == "" {
		t.Skip("PYTHON is not set")
	}
	s := serve(t)
	snapshot := func() string {
		out, err := exec.Command(python, "-c", snapshotOf).Output()
		if err != nil {
			t.Fatal(err, string(err.(*exec.ExitError).Stderr))
		}
		return string(out)
	}
	h := client(t)
	want := filepath.Join(h.cache, "models--ORG--NAME", "snapshots", hubtest.Commit)
	if _, err := pull(t, h, "ORG/NAME"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	if got := snapshot(); got != want {
		t.Errorf("Python finds %q, want %q", got, want)
	}
	t.Setenv("HF_HUB_OFFLINE", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	h = client(t)
	snapshot()
	if n := s.Asked("GET /" + weights); n != 2 {
		t.Errorf("the weights were fetched %d times", n)
	}
	h.offline = true
	if b, err := pull(t, h, "ORG/NAME"); err != nil || b.Verify() != nil {
		t.Error(err)
	}
	h.offline = false
	m, _ := Parse("ORG/NAME")
	if _, local, err := h.Pull(context.Background(), m, silent); local != nil || err != nil ||
		s.Asked("GET /"+weights) != 2 {
		t.Error(local, err)
	}
}
