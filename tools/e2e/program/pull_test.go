package program

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/hub/hubtest"
	"promptfed/runtime/filetest"
)

// A run whose configuration names a model of the hub fetches it, once, and records where it came from. Later runs need
// no network and write the same bytes; pull, doctor and inspect name the model and its licence.
func TestPull(t *testing.T) {
	s := hubtest.New(t, "../../../models/bundle/converted/testdata/huggingface")
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "caches"))
	t.Setenv("HF_ENDPOINT", s.Hub.URL)
	for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"} {
		t.Setenv(name, "")
	}
	config := filetest.Write(t, filepath.Join(dir, "small.yaml"), strings.ReplaceAll(small, "BUNDLE", "hf:ORG/NAME"))
	s.NeedsToken = true
	_, errText, code := call("run", config, "--out", filepath.Join(dir, "none"))
	if code != failed || strings.Count(errText, "\n") != 1 || !strings.Contains(errText, "accept the terms") {
		t.Errorf("exit %d: %s", code, errText)
	}
	t.Setenv("HF_TOKEN", hubtest.Token)
	const origin = "ORG/NAME at " + hubtest.Commit + ", licence: mit"
	_, errText, code = call("run", config, "--out", filepath.Join(dir, "a"))
	if code != done || !strings.Contains(errText, "note: ORG--NAME: "+origin) {
		t.Fatalf("exit %d: %s", code, errText)
	}
	if len(s.Leaked) > 0 {
		t.Errorf("the token was sent to another host: %v", s.Leaked)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	mustRun(t, "run", config, "--out", filepath.Join(dir, "b"))
	for _, name := range []string{"config.yaml", "experiment.json", "data.json", "prompts.safetensors"} {
		if !bytes.Equal(read(t, dir, "a", name), read(t, dir, "b", name)) {
			t.Errorf("%s differs", name)
		}
	}
	var p struct {
		Backbones []map[string]string
	}
	if err := json.Unmarshal(read(t, dir, "a", "provenance.json"), &p); err != nil || len(p.Backbones) != 1 ||
		p.Backbones[0]["revision"] != hubtest.Commit || p.Backbones[0]["source"] != "ORG/NAME" ||
		len(p.Backbones[0]["digest"]) != 64 {
		t.Errorf("%v, %v", p, err)
	}
	t.Setenv("HF_HUB_OFFLINE", "")
	for want, out := range map[string]string{
		"from " + origin + "\nin a configuration: backbones: [hf:ORG/NAME]": mustRun(t, "pull", "ORG/NAME"),
		"ORG--NAME (ORG/NAME at 0123456789ab)":                              mustRun(t, "doctor"),
		origin:                                                              mustRun(t, "inspect", "hf:ORG/NAME"),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	if n := s.Asked("GET /model.safetensors"); n != 1 {
		t.Errorf("the weights were fetched %d times", n)
	}
	image := filepath.Join(dir, "image.png")
	drawImage(t, image, 1)
	mustRun(t, "predict", filepath.Join(dir, "a"), "--client", "0", image)
}
