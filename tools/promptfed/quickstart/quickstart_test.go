package quickstart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/experiment"
	"promptfed/runtime/filetest"
)

// images writes n files into each folder.
func images(n int, folders ...string) []string {
	var out []string
	for _, f := range folders {
		for i := range n {
			out = append(out, fmt.Sprintf("%s/%03d.png", f, i))
		}
	}
	return out
}

// Each of the four layouts of the README, and a list, gives a configuration that can be opened and partitioned. The
// partition depends on the domains, if there are any, and on the number of images: of 100 images in a class folder 80
// are for training, and a client gets 40.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		name             string
		files            []string
		changes          []string
		layout, kind     string
		clients, classes int
	}{
		{"classes", images(100, "cat", "dog"), nil, "CLASS/", "dirichlet", 4, 2},
		{"domains", images(100, "photo/cat", "photo/dog", "art/cat", "art/dog"), nil, "DOMAIN/CLASS/",
			"domain-dirichlet", 4, 2},
		{"few in each domain", images(20, "photo/cat", "photo/dog", "art/cat", "art/dog"), nil, "DOMAIN/CLASS/",
			"domain-dirichlet", 2, 2},
		{"splits", append(images(50, "train/cat", "train/dog", "train/cow"), images(20, "test/cat", "test/dog",
			"test/cow")...), nil, "SPLIT/CLASS/", "dirichlet", 3, 3},
		{"splits of domains", append(images(50, "train/a/cat", "train/a/dog", "train/b/cat", "train/b/dog"),
			images(20, "test/a/cat", "test/a/dog", "test/b/cat", "test/b/dog")...), nil, "SPLIT/DOMAIN/CLASS/",
			"domain-dirichlet", 4, 2},
		{"few images", images(10, "cat", "dog"), nil, "CLASS/", "", 2, 2},
		{"the command line's choice", images(100, "cat", "dog"), []string{"partition.kind=iid", "partition.clients=3"},
			"CLASS/", "iid", 3, 2},
		{"both readings", append(images(20, "train/cat", "train/dog"), images(20, "extra/cat", "extra/dog")...),
			[]string{"data.layout=domains"}, "DOMAIN/CLASS/", "", 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := datatest.Tree(t, c.files...)
			p, err := For(root, c.changes)
			if err != nil {
				t.Fatal(err)
			}
			path := filetest.Write(t, filepath.Join(t.TempDir(), "x.yaml"), p.Text)
			conf, err := configs.Open(path, nil) // the values of the file
			if err != nil {
				t.Fatal(err)
			}
			s, err := sets.Open(conf.Data.Config)
			if err != nil {
				t.Fatal(err)
			}
			parts, err := partition.Split(conf.Partition, s, 0, conf.Seed)
			if err != nil || len(parts) != c.clients || len(s.Classes) != c.classes || s.Layout != c.layout ||
				c.kind != "" && conf.Partition.Kind != c.kind {
				t.Errorf("%v: %d clients by %s, %d classes, %s", err, len(parts), conf.Partition.Kind, len(s.Classes),
					s.Layout)
			}
			if !strings.Contains(p.Found, "layout "+c.layout) || !strings.HasPrefix(p.Parts, conf.Partition.Kind) {
				t.Errorf("says %q and %q", p.Found, p.Parts)
			}
			sweep, err := configs.LoadSweep(path, configs.SweepOptions{})
			if err != nil || len(sweep.Cells) != 5 {
				t.Errorf("the comparison: %v", err)
			}
		})
	}
}

// A name may contain characters that are special in YAML, in folder names or in comments.
func TestOddNames(t *testing.T) {
	root := filepath.Join(t.TempDir(), "my \"photos\": #1\nüber.d")
	if err := os.Rename(datatest.Tree(t, images(20, "cat", "dog")...), root); err != nil {
		t.Fatal(err)
	}
	p, err := For(root, []string{"method=fedotp"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := configs.OpenText("x", p.Text, nil)
	if err != nil || l.Data.Root != root || l.Method != "fedotp" || l.Check() != nil || l.Name != "my-photos-1-über" {
		t.Errorf("%v: name %q, root %q, method %s", err, l.Name, l.Data.Root, l.Method)
	}
}

// A requested method is compared with hand-written prompts on the same images. Changes of images, clients and tests on
// the command line apply to both. Changes of the method and its training apply to the method alone, because
// hand-written prompts would refuse them.
func TestMethodBesideZeroShot(t *testing.T) {
	root := datatest.Tree(t, images(20, "cat", "dog")...)
	changes := []string{"method=promptfl", "with=[fedprox, dp]", "options={tokens: 3}", "options.mu=0.5",
		"train.lr=0.3", "train.rounds=7", "seed=4", "partition.clients=3", "sampling=poisson", "participation=0.5",
		"eval.last=2", "eval.embeddings=9"}
	p, err := For(root, changes)
	if err != nil {
		t.Fatal(err)
	}
	s, err := configs.ParseSweep("x", p.Text, configs.SweepOptions{Sets: p.Changes})
	if err != nil || len(s.Cells) != 2 {
		t.Fatalf("%v in\n%s", err, p.Text)
	}
	hand, own := s.Cells[0].Config, s.Cells[1].Config
	if s.Cells[0].Labels["method"] != "zero-shot" || hand.Method != "zeroshot" ||
		len(hand.With)+len(hand.Options) > 0 || hand.Sampling != "fixed" ||
		s.Cells[1].Labels["method"] != "PromptFL + fedprox + dp" || own.Method != "promptfl" ||
		len(own.With) != 2 || own.Options["tokens"] != 3 || own.Options["mu"] != 0.5 || own.Train.LR != 0.3 ||
		own.Sampling != "poisson" || own.Eval.Embeddings != 9 || hand.Eval.Embeddings != 0 || len(s.Hidden) > 0 {
		t.Errorf("%+v\n%+v", hand, own)
	}
	for _, c := range []experiment.Config{hand, own} {
		if c.Seed != 4 || c.Train.Rounds != 7 || c.Partition.Clients != 3 || c.Eval.Last != 2 || c.Data.Root != root {
			t.Errorf("%+v", c)
		}
	}
	p, err = For(root, []string{"method=zeroshot"})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = configs.ParseSweep("x", p.Text, configs.SweepOptions{Sets: p.Changes}); err != nil ||
		len(s.Cells) != 1 {
		t.Errorf("hand-written prompts alone: %v", err)
	}
}

// A requested method has prompts of four tokens, which keep PromptFL above zero-shot (docs/evaluation.md), unless the
// command line says otherwise. A method without such an option keeps its defaults.
func TestShortPrompts(t *testing.T) {
	root := datatest.Tree(t, images(20, "cat", "dog")...)
	for want, changes := range map[string][]string{
		"tokens 4":                           {"method=promptfl"},
		"tokens 16":                          {"method=promptfl", "options.tokens=16"},
		"global_tokens 4, local_tokens [4]":  {"method=fedpha"},
		"global_tokens 4, local_tokens [16]": {"method=fedpha", "options.local_tokens=[16]"},
		"":                                   {"method=fedclip"},
	} {
		p, err := For(root, changes)
		if err != nil {
			t.Fatal(err)
		}
		s, err := configs.ParseSweep("x", p.Text, configs.SweepOptions{Sets: p.Changes})
		if err != nil || len(s.Cells) != 2 {
			t.Fatalf("%v: %v in\n%s", changes, err, p.Text)
		}
		c := s.Cells[1].Config
		var got []string
		for _, name := range []string{"global_tokens", "local_tokens", "tokens"} {
			if value, ok := c.Options[name]; ok {
				got = append(got, fmt.Sprint(name, " ", value))
			}
		}
		if strings.Join(got, ", ") != want || c.Check() != nil || c.Train.LR != 0.005 {
			t.Errorf("%v: %q, want %q; %v, rate %v", changes, got, want, c.Check(), c.Train.LR)
		}
	}
}

func TestKind(t *testing.T) {
	for want, files := range map[string][]string{"folder": {"cat/1.png"}, "list": {"list.csv", "x/1.png"},
		"parquet": {"data/train-0.parquet"}} {
		if got, err := Kind(datatest.Tree(t, files...)); err != nil || got != want {
			t.Errorf("%v is %q, %v", files, got, err)
		}
	}
}
