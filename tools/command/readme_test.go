package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"promptfed/federation/datatest"
	"promptfed/tools/proctest"
)

// short is put behind what trains, so that the walk takes seconds.
const short = " --set train.rounds=1"

// walked says how a line of the README that calls the program is followed, by how it begins: what stands there for a
// placeholder, and what is put behind it. No line is left out but those that need what nobody has at hand, with the
// reason.
var walked = []struct{ line, with, why string }{
	{"sweep configs/papers/fedpha/table-2.yaml --set data.root=DATA", "", "the sets of the papers"},
	{"sweep configs/papers/fedpha/table-2.yaml --smoke", short + " --keep method=PromptFL --seeds 1", ""},
	{"report runs/fedpha-table-2", "", ""},
	{"run configs/real/pacs.yaml --set data.root=PACS", short, ""},
	{"run configs/real/digits.yaml", "", "the sets themselves"},
	{"run configs/real/cifar10.yaml", "", "the set itself"},
	{"run --images IMAGES --set method", short, ""},
	{"run --images IMAGES", short, ""},
	{"init IMAGES", "", ""},
	{"run configs/real/pacs.yaml --images IMAGES", short, ""},
	{"convert ViT-B-16.pt", "", "OpenAI's checkpoint"},
	{"convert FOLDER", "", ""},
	{"check bundles/vit-b16", "", ""},
	{"run CONFIG --set backbones=[vit-b16]", short + " --out runs/mine", ""},
	{"certs certs --clients 2", "", ""},
	{"serve experiment.yaml", " --listen ADDRESS" + short, ""},
	{"join tls://SERVER:4222", "", ""},
	{"predict runs/join-default-0", "", ""},
	{"export runs/pacs", "", ""},
	{"ui", "", "it serves until it is stopped"},
}

// A new user goes through the README from top to bottom, in a folder of his own, and every command that it shows works
// as it stands there.
func TestREADME(t *testing.T) {
	root := datatest.Module(t)
	text := string(read(t, root, "README.md"))
	home := t.TempDir()
	for link, to := range map[string]string{"configs": "configs", "docs": "docs"} {
		if err := os.Symlink(filepath.Join(root, to), filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	folderOf := func(name string, parts ...[]string) string {
		paths := []string{name}
		for _, part := range parts {
			var next []string
			for _, p := range paths {
				for _, n := range part {
					next = append(next, filepath.Join(p, n))
				}
			}
			paths = next
		}
		for i, p := range paths {
			if err := os.MkdirAll(filepath.Join(home, filepath.Dir(p)), 0o755); err != nil {
				t.Fatal(err)
			}
			drawImage(t, filepath.Join(home, p), i)
		}
		return name
	}
	files := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%02d.png", i))
		}
		return out
	}
	address := proctest.FreeAddress(t, "127.0.0.1")
	words := strings.NewReplacer("SERVER:4222", address, "SERVER", "127.0.0.1", "ADDRESS", address,
		"IMAGES", folderOf("photos", []string{"train", "test"}, []string{"cat", "dog"}, files(40)),
		"root=PACS", "root="+folderOf("PACS", []string{"art_painting", "cartoon", "photo", "sketch"}, []string{"dog",
			"elephant", "giraffe", "guitar", "horse", "house", "person"}, files(20)),
		"CONFIG", "images.yaml", "FOLDER", filepath.Join(root, "models/bundle/converted/testdata/huggingface"),
		"IMAGE...", "photos/test/cat/00.png")
	if err := os.WriteFile(filepath.Join(home, "experiment.yaml"), []byte("method: promptfl\noptions: {tokens: 4}\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Chdir(home)
	seen := map[string]bool{}
	var served []*process
	command := regexp.MustCompile(`(?m)^    (?:bin/)?promptfed (.*?)(?:\s+#.*)?$`)
	for _, m := range command.FindAllStringSubmatch(text, -1) {
		line := m[1]
		found := false
		for _, w := range walked {
			if found || !strings.HasPrefix(line, w.line) {
				continue
			}
			found, seen[w.line] = true, true
			if w.why != "" {
				continue
			}
			args := strings.Fields(words.Replace(line + w.with))
			switch args[0] {
			case "serve":
				served = append(served, start(t, args...))
				continue
			case "join": // both clients, as the README says of each
				second := strings.Replace(strings.Join(args, " "), "--client 0", "--client 1", 1)
				for _, p := range append(served, start(t, args...), start(t, strings.Fields(second)...)) {
					p.ends(t)
				}
				continue
			case "convert": // the README has three that leave the same folder
				os.RemoveAll("bundles")
			}
			if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
				t.Fatalf("promptfed %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
		if !found {
			t.Errorf("nobody followed %q: give it a line in walked", line)
		}
	}
	for _, w := range walked {
		if !seen[w.line] {
			t.Errorf("the README has no %q any more", w.line)
		}
	}
	for _, left := range []string{"runs/photos/report.html", "runs/photos/promptfl/seed-1/provenance.json",
		"runs/fedotp/seed-3/summary.json", "runs/own/report.html", "images.yaml", "classifier.onnx",
		"runs/pacs/plots/accuracy.png"} {
		if _, err := os.Stat(left); err != nil {
			t.Error(err)
		}
	}
}
