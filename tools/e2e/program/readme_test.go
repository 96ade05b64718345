package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// short is appended to commands that train, so that the walk takes seconds.
const short = " --set train.rounds=1"

// readmeSteps are the lines of the README that the test changes. It skips only lines that need data or programs that
// nobody has by default.
var readmeSteps = []step{
	{"sweep configs/papers/fedpha/table-2.yaml --set data.root=DATA", "", "the sets of the papers"},
	{"sweep configs/papers/fedpha/table-2.yaml --smoke", short + " --keep method=PromptFL --seeds 1", ""},
	{"run configs/real/pacs.yaml --set data.root=PACS", short, ""},
	{"run configs/real/digits.yaml", "", "the sets themselves"},
	{"run configs/real/cifar10.yaml", "", "the set itself"},
	{"run --images IMAGES", short, ""},
	{"run configs/real/pacs.yaml --images IMAGES", short, ""},
	{"convert ViT-B-16.pt", "", "OpenAI's checkpoint"},
	{"pull clip-vit-base-patch16", "", "the hub; TestPull has a server of its own"},
	{"run CONFIG --set backbones=[vit-b16]", short + " --out runs/mine", ""},
	{"serve experiment.yaml", " --listen ADDRESS" + short, ""},
	{"ui", " --port 0", ""},
}

// A new user follows the README from top to bottom in an empty folder, and every command works as printed.
func TestREADME(t *testing.T) {
	root := goldentest.Module(t)
	w := walker(t, readmeSteps)
	for link, to := range map[string]string{"configs": "configs", "docs": "docs"} {
		goldentest.NoError(t, os.Symlink(filepath.Join(root, to), link))
	}
	files := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%02d.png", i))
		}
		return out
	}
	address := busytest.Address(t, "127.0.0.1")
	w.words = strings.NewReplacer("SERVER:8443", address, "SERVER", "127.0.0.1", "ADDRESS", address,
		"IMAGES", drawFolder(t, "photos", []string{"train", "test"}, []string{"cat", "dog"}, files(20)),
		"root=PACS", "root="+drawFolder(t, "PACS", []string{"art_painting", "cartoon", "photo", "sketch"},
			[]string{"dog", "elephant", "giraffe", "guitar", "horse", "house", "person"}, files(10)),
		"CONFIG", "images.yaml", "FOLDER", filepath.Join(root, "models/bundle/converted/testdata/huggingface"),
		"IMAGE...", "photos/test/cat/00.png")
	filetest.Write(t, "experiment.yaml", "method: promptfl\noptions: {tokens: 4}\n")
	command := regexp.MustCompile(`(?m)^    (?:bin/)?(promptfed .*?)(?:\s+#.*)?$`)
	for _, m := range command.FindAllStringSubmatch(string(read(t, root, "README.md")), -1) {
		if strings.HasPrefix(m[1], "promptfed convert") { // the README has three commands with the same folder
			os.RemoveAll("bundles")
		}
		w.follow(m[1])
		if strings.HasPrefix(m[1], "promptfed join") { // the README says it about each client
			w.follow(strings.Replace(m[1], "--client 0", "--client 1", 1))
		}
	}
	w.ends()
	for _, left := range []string{"runs/photos/report.html", "runs/photos/promptfl/seed-1/provenance.json",
		"runs/fedotp/fedotp/seed-3/summary.json", "runs/fedotp/zero-shot/seed-3/summary.json", "runs/own/report.html",
		"images.yaml", "classifier.onnx", "global.onnx", "classifiers/client-1.onnx", "runs/pacs/plots/accuracy.png"} {
		if _, err := os.Stat(left); err != nil {
			t.Error(err)
		}
	}
}

// A user follows the tutorial as printed, on the photographs and sketches of PACS if they are available, and on noise
// otherwise. With PACS the output contains the printed lines, up to the digits of numbers.
func TestTutorial(t *testing.T) {
	root := goldentest.Module(t)
	page := string(read(t, root, "docs", "tutorial.md"))
	python := ""
	if exec.Command("python3", "-c", "import numpy, onnxruntime, PIL").Run() != nil {
		python = "no Python with onnxruntime and Pillow"
	}
	const few = " --set train.rounds=5" // the page shows means over five rounds
	steps := []step{
		{"make build", "", "the test has built it"},
		{"pull", "", "the hub; TestPull has a server of its own"},
		{"run photos.yaml", few, ""},
		{"sweep photos.yaml", few, ""},
		{"ui", " --port 0", ""},
		{"serve", " --listen ADDRESS", ""},
		{"python3 classify.py", "", python},
	}
	if _, err := exec.LookPath("curl"); err != nil {
		steps = append(steps, step{"curl", "", "no curl"})
	}
	pacs := filepath.Join(root, "..", "shared", "data", "pacs")
	_, err := os.Stat(pacs)
	real := err == nil
	w := walker(t, steps)
	const here = "127.0.0.1:" // with the ports that README.md names
	address := busytest.Address(t, "127.0.0.1")
	w.words = strings.NewReplacer(here+"8443", address, "ADDRESS", address,
		here+"8080", busytest.Address(t, "127.0.0.1"), "ViT-B-16.pt --vocab bpe_simple_vocab_16e6.txt.gz",
		filepath.Join(root, "models/bundle/converted/testdata/huggingface")) // a small one in place of OpenAI's
	for site, domain := range map[string]string{"north": "photo", "south": "sketch"} {
		if real {
			goldentest.NoError(t, os.CopyFS(filepath.Join("photos", site), os.DirFS(filepath.Join(pacs, domain))))
			continue
		}
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprintf("%04d.png", i))
		}
		drawFolder(t, "photos", []string{site}, []string{"dog", "elephant", "giraffe", "guitar", "horse", "house",
			"person"}, names)
	}
	said := ""
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		kind, text := m[1], m[2]
		switch kind {
		case "sh":
			said = w.follow(text)
			t.Logf("%s%s", text, said)
		case "text":
			if said == "" {
				said = w.wait()
				t.Logf("%s", said)
			}
			if real && said != "" {
				shown(t, text, said)
			}
		default: // a file, whose name is in its first line
			first, _, _ := strings.Cut(text, "\n")
			filetest.Write(t, strings.TrimPrefix(first, "# "), text)
		}
	}
	w.ends()
}

// shown checks that a page's lines are in the output of a command, in their order, ignoring numbers and the width of
// tables. A line that ends with three points is a prefix.
func shown(t *testing.T, page, said string) {
	t.Helper()
	plain := func(text string) []string {
		text = regexp.MustCompile(`[-−]?\d+(\.\d+)?`).ReplaceAllString(text, "0")
		text = regexp.MustCompile(`\*|(?m)^[ \t]+|[ \t]+$`).ReplaceAllString(text, "")
		return strings.Split(regexp.MustCompile(`--+|[ \t]+`).ReplaceAllString(strings.TrimSpace(text), " "), "\n")
	}
	lines := plain(said)
	for _, want := range plain(page) {
		begin, cut := strings.CutSuffix(want, "...")
		at := slices.IndexFunc(lines, func(line string) bool {
			return line == want || cut && strings.HasPrefix(line, begin)
		})
		if at < 0 {
			t.Errorf("the page shows\n%s\nwhich is not, or not there, in\n%s", want, said)
			return
		}
		lines = lines[at+1:]
	}
}
