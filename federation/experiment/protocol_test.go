package experiment

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/metrics"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// smallConfig returns a quick experiment on synthetic images.
func smallConfig(method string) Config {
	c := Defaults()
	c.Method = method
	c.Data.Set = "synthetic"
	c.Data.Generator = sets.Generator{Classes: []string{"circle", "square", "star", "house"},
		Domains: []string{"cartoon", "photo"}, Train: 3, Test: 2, Size: 32}
	c.Partition.Clients, c.Train.Rounds, c.Train.LR, c.Train.Batch = 3, 2, 0.05, 8
	c.Runtime.Cache = filepath.Join(cache, "features")
	return c
}

var cache string // of features, one for all tests

func TestMain(m *testing.M) { datatest.Main(m, &cache) }

func open(t *testing.T, c Config) *Federation {
	t.Helper()
	f, err := opened(taskOf(t, c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// taskOf opens the task of a configuration, without features.
func taskOf(t *testing.T, c Config) *Task {
	t.Helper()
	task, err := Open(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// dataOf opens the data of a configuration.
func dataOf(t *testing.T, c Config) *Data {
	t.Helper()
	d, err := OpenData(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// opened computes the features of a task.
func opened(t *Task, err error) (*Federation, error) {
	if err != nil {
		return nil, err
	}
	return Federate(context.Background(), t, nil)
}

func finish(t *testing.T, b *Federation) *engine.Result {
	t.Helper()
	return enginetest.Run(t, b.Experiment, b.Settings())
}

func refuses(t *testing.T, c Config, words ...string) {
	t.Helper()
	_, err := Open(context.Background(), c, nil)
	if err == nil {
		t.Fatalf("accepted; want an error with %q", words)
	}
	goldentest.Contains(t, err.Error(), words...)
}

// TestCentralised: one client with the examples of all equals a federation of one client with all examples.
func TestCentralised(t *testing.T) {
	c := smallConfig("promptfl")
	c.Train.Centralised = true
	b := open(t, c)
	first, second := len(b.Task.Data.trainedOn(0)), len(b.Task.Data.trainedOn(1))
	if got := len(b.Task.Clients().Clients[0].Train); got != 4 || first != 24 || second != 8 {
		t.Errorf("client 0 trains on %d examples of %d classes, client 1 has %d", first, got, second)
	}
	all := finish(t, b)
	for _, r := range all.Records {
		if !slices.Equal(r.Clients, []int{0}) || len(r.Evaluation.PerClient) != 3 {
			t.Errorf("round %d: %v trained, %d tested", r.Round, r.Clients, len(r.Evaluation.PerClient))
		}
	}
	one := smallConfig("promptfl")
	one.Partition.Clients = 1
	alone := finish(t, open(t, one))
	for i, v := range alone.Prompts["shared/ctx"].Data {
		if all.Prompts["shared/ctx"].Data[i] != v {
			t.Fatalf("element %d is %g, and %g of one client with all examples", i, all.Prompts["shared/ctx"].Data[i],
				v)
		}
	}
	if math.Abs(all.Summary.Weighted-alone.Summary.Last) > 1e-12 {
		t.Errorf("%g of all test examples are right, and %g", all.Summary.Weighted, alone.Summary.Last)
	}
	c.Backbones = []string{"tiny-vit-b16", "tiny-vit-b32"}
	refuses(t, c, "train.centralised", "several backbones")
	c = smallConfig("coop")
	c.Train.Centralised = true
	refuses(t, c, "train.centralised", "promptfl")
}

// TestOtherSets: a separate evaluation set has its own classes.
func TestOtherSets(t *testing.T) {
	c := smallConfig("promptfl")
	c.Train.Rounds = 1
	c.Eval.Sets = []string{"synthetic"}
	b := open(t, c)
	if len(b.Experiment.EvaluationSets) != 1 || len(b.Experiment.EvaluationSets[0].Classes) <= 4 {
		t.Fatalf("%d evaluation sets, %d classes", len(b.Experiment.EvaluationSets),
			len(b.Experiment.EvaluationSets[0].Classes))
	}
	g := finish(t, b).Summary.EvaluationSets["synthetic"]
	want := 2 * 2 * len(b.Experiment.EvaluationSets[0].Classes)
	if g.Examples != want || g.Evaluation.Accuracy() <= 0 || g.Evaluation.Accuracy() != *g.Global {
		t.Errorf("%+v of %d images", g, want)
	}
	c.Eval.Sets = []string{"atlantis"}
	refuses(t, c, "eval.sets", "atlantis")
	c.Eval.Sets = []string{"synthetic", "synthetic"}
	refuses(t, c, "eval.sets: synthetic occurs twice; list every set once")
}

// TestTestOnlySet: clients are tested on a set without training images, with the class names of its own folders. They
// cannot train on it unless its images are divided.
func TestTestOnlySet(t *testing.T) {
	names := ""
	for i := range 1000 {
		names += fmt.Sprintf("n%08d class %d\n", i, i)
	}
	root := datatest.Write(t, datatest.Tree(t, "imagenet-rendition/imagenet-r/n00000003/1.png",
		"imagenet-rendition/imagenet-r/n00000001/1.png", "imagenet-rendition/imagenet-r/n00000001/2.png"),
		map[string]string{"imagenet/classnames.txt": names})
	c := smallConfig("promptfl")
	c.Train.Rounds, c.Eval.Sets, c.Eval.SetsRoot = 1, []string{"imagenet-r"}, root
	b := open(t, c)
	if e := b.Experiment.EvaluationSets[0]; !slices.Equal(e.Classes, []string{"class 1", "class 3"}) ||
		e.Test["tiny-vit-b16"].Len() != 3 {
		t.Errorf("%q, %d images", e.Classes, e.Test["tiny-vit-b16"].Len())
	}
	c = smallConfig("promptfl")
	c.Data.Set, c.Data.Root = "imagenet-r", root
	refuses(t, c, "data.set: imagenet-r has test images only", "eval.sets", "data.split: pooled")
}

// TestBaseToNew: of five classes the first three are trained. The other two are an evaluation set, as classes 0 and 1,
// and the test images of all clients another one. The test computes the harmonic means from the formulas of BaseToNew.
func TestBaseToNew(t *testing.T) {
	c := smallConfig("promptfl")
	c.Data.Generator.Classes = []string{"circle", "square", "star", "house", "fish"}
	c.Data.Classes, c.Train.Rounds = "base", 1
	b := open(t, c)
	classes, other := b.Experiment.Classes, b.Experiment.EvaluationSets
	if !slices.Equal(classes, []string{"circle", "square", "star"}) || len(other) != 2 || other[0].Name != "base" ||
		other[0].Classes != nil || !slices.Equal(other[1].Classes, []string{"house", "fish"}) {
		t.Fatalf("%v, %+v", classes, other)
	}
	s := finish(t, b).Summary
	g, base := s.EvaluationSets["new"], s.EvaluationSets["base"]
	if g.Examples != 2*2*2 || g.Evaluation.Accuracy() <= 0 || base.Examples != 2*2*3 || base.Answered != nil {
		t.Errorf("new %+v, base %+v", g, base)
	}
	for _, x := range []struct {
		got        *metrics.Generalisation
		l, b, n    float64
		evaluation string
	}{{s.BaseToNew.Global, *s.Global, *base.Global, *g.Global, "global"}, {s.BaseToNew.Personal, *s.Personal,
		*base.Personal, *g.Personal, "personal"}} {
		want := metrics.Generalisation{Local: x.l, Base: x.b, New: x.n, HM: 2 * x.b * x.n / (x.b + x.n),
			HM3: 3 / (1/x.l + 1/x.b + 1/x.n)}
		if math.Abs(x.got.HM-want.HM)+math.Abs(x.got.HM3-want.HM3) > 1e-12 || x.got.Local != x.l || x.got.Base != x.b ||
			x.got.New != x.n {
			t.Errorf("%s: %+v, want %+v", x.evaluation, *x.got, want)
		}
	}
	// All clients share one prompt and one backbone, so that base is the accuracy of all their test images together.
	if math.Abs(*base.Global-s.Evaluations.Global.Values[metrics.Weighted]) > 1e-12 {
		t.Errorf("%g of the base images are right, and %g of the clients'", *base.Global,
			s.Evaluations.Global.Values[metrics.Weighted])
	}
	c.Method = "pfedprompt"
	b = open(t, c)
	_, err := engine.Run(context.Background(), b.Experiment, b.Settings())
	if err == nil || !strings.Contains(err.Error(), "evaluation set new") {
		t.Errorf("a method that classifies with its own examples was examined on other classes: %v", err)
	}
}

// TestLeaveOneDomainOut: nobody trains or is tested on the domain. All its images are an evaluation set.
func TestLeaveOneDomainOut(t *testing.T) {
	c := smallConfig("promptfl")
	c.Partition.LeaveOut, c.Partition.Kind, c.Partition.Clients = []string{"photo"}, "domain", 1
	c.Train.Rounds = 1
	b := open(t, c)
	r := finish(t, b)
	if len(b.Task.Data.Parts) != 1 || b.Task.Data.Parts[0].Domain != "cartoon" || len(b.Task.Data.trainedOn(0)) != 12 {
		t.Errorf("%+v", b.Task.Data.Parts)
	}
	if g := r.Summary.EvaluationSets["photo"]; g.Examples != 4*(3+2) {
		t.Errorf("%+v", g)
	}
	if _, ok := r.Summary.Evaluation.PerDomain["photo"]; ok {
		t.Error("the domain was tested as a client's")
	}
	c.Data.Set, c.Data.Root = "folder", datatest.Tree(t, "base/a/1.png", "base/b/1.png", "photo/a/1.png",
		"photo/a/2.png", "photo/b/1.png", "photo/b/2.png")
	c.Partition.LeaveOut = []string{"base"}
	refuses(t, c, "partition.leave_out: base is the name", "rename the domain's folder")
}

// TestBrokenImagesOfEvaluationSets: with corrupt: skip, unreadable images are left out of evaluation sets too, of the
// run's own classes and of other sets, and counted.
func TestBrokenImagesOfEvaluationSets(t *testing.T) {
	root := datatest.Tree(t, "train/ant/1.png", "train/bee/1.png", "test/ant/1.png", "test/bee/1.png", "test/bee/2.png")
	filetest.Write(t, filepath.Join(root, "test", "bee", "2.png"), "broken")
	c := smallConfig("promptfl")
	c.Data.Set, c.Data.Root, c.Data.Classes, c.Data.Corrupt = "folder", root, "base", data.Skip
	c.Partition.Clients, c.Eval.Sets = 1, []string{"folder"}
	b := open(t, c)
	if n := b.Task.Data.Info.LeftOut; n != 2 { // 2.png, of the run's set and of the other one
		t.Errorf("%d images left out", n)
	}
	for i, want := range []int{1, 1, 2} { // ant alone, bee alone, then both classes
		rows := b.Experiment.EvaluationSets[i].Test["tiny-vit-b16"]
		if rows.Len() != want {
			t.Errorf("evaluation set %s has %d images, want %d", b.Experiment.EvaluationSets[i].Name, rows.Len(), want)
		}
	}
}
