package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/models/synthetic"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
)

// oneTower lists methods with shared tensors of the size of the image tower or of features.
var oneTower = []string{"cocoop", "fedapt", "fedclip", "fedlora", "fedmgp", "fedmvp", "fedpr", "fedtpg", "fedvpt",
	"ivlp", "maple", "pfeddc", "promptsrc", "trip"}

// trained runs one round of a method on two clients, with two of the bundled backbones where it can, and returns the
// run's configuration and folder.
func trained(t *testing.T, method string, with ...string) (experiment.Config, string) {
	t.Helper()
	return trainedWith(t, method, func(*experiment.Config) {}, with...)
}

// trainedWith is trained with some changed settings.
func trainedWith(t *testing.T, method string, change func(*experiment.Config), with ...string) (experiment.Config,
	string) {
	t.Helper()
	c := experiment.Defaults()
	c.Name, c.Method, c.With, c.Backbones = "small", method, with, []string{"tiny-vit-b16", "tiny-vit-b32"}
	if slices.Contains(oneTower, method) {
		c.Backbones = c.Backbones[:1]
	}
	if method == "fedotp" { // otherwise a score depends on the other images in the batch
		c.Options = map[string]any{"stop": "pair"}
	}
	c.Data.Set = "synthetic"
	c.Data.Generator = sets.Generator{Classes: []string{"circle", "square", "star", "house"},
		Domains: []string{"cartoon"}, Train: 4, Test: 2, Size: 40}
	c.Synthetic.Set, c.Synthetic.Generator, c.Synthetic.Epochs = "synthetic", c.Data.Generator, 1
	c.Partition.Clients, c.Train.Rounds, c.Train.LR = 2, 1, 0.05
	c.Runtime.Cache = filepath.Join(cache, "features")
	change(&c)
	b := federated(t, c)
	set := b.Settings()
	set.Dir = t.TempDir()
	enginetest.Run(t, b.Experiment, set)
	return b.Task.Protocol.Config, set.Dir
}

// federated opens the federation of a configuration.
func federated(t *testing.T, c experiment.Config) *experiment.Federation {
	t.Helper()
	task, err := experiment.Open(t.Context(), c, nil)
	goldentest.NoError(t, err)
	f, err := experiment.Federate(t.Context(), task, nil)
	goldentest.NoError(t, err)
	return f
}

var cache string // of features, one for all tests

func TestMain(m *testing.M) { datatest.Main(m, &cache) }

// testImages returns images of odd sizes, small and large, tall and wide, grey, with alpha, and real ones if present.
func testImages(t *testing.T) []data.Example {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	var paths []string
	save := func(img image.Image) {
		paths = append(paths, filetest.PNG(t, filepath.Join(dir, fmt.Sprint(len(paths), ".png")), img))
	}
	for i, size := range [][2]int{{64, 64}, {201, 147}, {33, 150}, {250, 19}, {13, 9}, {1, 1}} {
		img, err := synthetic.Draw(synthetic.Classes()[i], synthetic.Domains()[i%3], uint64(i), max(4, size[0],
			size[1]))
		goldentest.NoError(t, err)
		box := image.Rect(0, 0, size[0], size[1])
		rgb, grey, alpha := image.NewRGBA(box), image.NewGray(box), image.NewNRGBA(box)
		for _, to := range []draw.Image{rgb, grey, alpha} {
			draw.Draw(to, box, img, image.Point{}, draw.Src)
		}
		for y := range size[1] {
			for x := range size[0] {
				p := alpha.NRGBAAt(x, y)
				alpha.SetNRGBA(x, y, color.NRGBA{p.R, p.G, p.B, byte(r.IntN(256))})
			}
		}
		save(rgb)
		save(grey)
		save(alpha)
	}
	real, _ := filepath.Glob("../../../shared/data/pacs/*/dog/0000.jpg")
	list, err := data.Files(append(paths, real...))
	goldentest.NoError(t, err)
	return list
}

// open opens a classifier until the end of the test.
func open(t *testing.T, c experiment.Config, dir string, choice Choice) *Classifier {
	t.Helper()
	f, err := Open(c, dir, choice)
	goldentest.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// predictionsOf returns the predictions of an exported file for images.
func predictionsOf(t *testing.T, path string, list []data.Example) (*File, []Prediction) {
	t.Helper()
	file, err := OpenFile(path, ort.Options{})
	goldentest.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	got, err := file.Predict(context.Background(), list)
	goldentest.NoError(t, err)
	return file, got
}

// The exported file of every method has the predictions of predict. The first method has both clients and both forms of
// pixels, the others have one of each in turn: preprocessing is the same for all methods. Without PROMPTFED_TEST_SOAK,
// every ninth method is exported.
func TestExportIsPredict(t *testing.T) {
	list := testImages(t)
	for i, e := range methods.Table() {
		if i == 1 {
			list = list[:6]
		}
		if !busytest.Part(i, 9) {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			name, with := e.Name, []string(nil)
			if e.Wrapper() {
				name, with = experiment.Defaults().Method, []string{e.Name}
			}
			c, dir := trained(t, name, with...)
			for client, form := range []string{PixelsUint8, PixelsFloat} {
				if i > 0 && client != i%2 {
					continue
				}
				f := open(t, c, dir, Choice{Client: client})
				want, err := f.Predict(context.Background(), list)
				goldentest.NoError(t, err)
				path := filepath.Join(dir, form+".onnx")
				if _, err := f.Export(context.Background(), form, path); err != nil {
					t.Fatal(err)
				}
				file, got := predictionsOf(t, path, list)
				if !slices.Equal(file.Classes(), f.Classes()) || len(got) != len(want) {
					t.Fatalf("classes %v for %v, %d predictions for %d", file.Classes(), f.Classes(), len(got),
						len(want))
				}
				worst := 0.0
				for i, p := range want {
					for k, v := range p.Probabilities {
						worst = max(worst, math.Abs(float64(v-got[i].Probabilities[k])))
					}
				}
				if !(worst < 1e-5) {
					t.Errorf("%s: probabilities differ by %g", form, worst)
				}
			}
		})
	}
}

// The exported file stands alone, has standard operators, names its origin, and has the same bytes at any time.
func TestExportStandsAlone(t *testing.T) {
	c, dir := trained(t, "fedpha", "fedprox")
	path := filepath.Join(dir, "c.onnx")
	var first []byte
	fact := open(t, c, dir, Choice{Client: 1})
	fact.Data = DataSet{"synthetic", "d1"}
	for range 2 {
		size, err := fact.Export(context.Background(), PixelsUint8, path)
		goldentest.NoError(t, err)
		b := filetest.Read(t, path)
		if int64(len(b)) != size || first != nil && string(first) != string(b) {
			t.Errorf("%d bytes, said to be %d, or not those of the last time", len(b), size)
		}
		first = b
	}
	f, err := graph.ReadFile(path)
	goldentest.NoError(t, err)
	if onnx.HasExternal(f.Proto) {
		t.Error("weights lie outside")
	}
	for _, n := range f.Proto.Graph.Node {
		if n.Domain != "" {
			t.Errorf("%s of %s", n.OpType, n.Domain)
		}
	}
	for _, v := range append(f.Proto.Graph.Input, f.Proto.Graph.Output...) {
		if v.DocString == "" {
			t.Errorf("%s is not described", v.Name)
		}
	}
	meta := map[string]string{}
	for _, p := range f.Proto.MetadataProps {
		meta[p.Key] = p.Value
	}
	records, err := record.Records(dir)
	if err != nil || len(records) != 1 {
		t.Fatal(err, records)
	}
	b, err := findNamed("tiny-vit-b32", c)
	goldentest.NoError(t, err)
	accuracy, _ := json.Marshal(records[0].Evaluation.PerClient[1])
	for key, want := range map[string]string{"task": "image-classification",
		MetaClasses: `["circle","square","star","house"]`,
		"backbone":  "tiny-vit-b32", "backbone_sha256": b.Digest(), "method": "fedpha", "with": `["fedprox"]`,
		"run": "small", "data": "synthetic", "data_sha256": "d1", "evaluation": "personal",
		"client": "1", "clients": "2", "rounds": "1", "seed": "1", "accuracy": string(accuracy),
		"accuracy_round": "1", "input": inputLayouts[PixelsUint8]} {
		if meta[key] != want {
			t.Errorf("%s is %q, expected %q", key, meta[key], want)
		}
	}
	var options map[string]any
	if err := json.Unmarshal([]byte(meta["options"]), &options); err != nil || options["global_tokens"] != 16.0 ||
		options["fedprox"] == nil {
		t.Errorf("options %v: %v", options, err)
	}
	if meta["promptfed"] == "" || !strings.Contains(meta["preprocess"], `"size":64`) {
		t.Errorf("version %q, preprocessing %q", meta["promptfed"], meta["preprocess"])
	}
}

// With eval.select: best-val a classifier is that of the selected round, and so are the accuracy and the rounds in its
// metadata. With far too long a step the first round of this run is better than its last.
func TestExportSaysTheSelectedRound(t *testing.T) {
	c, dir := trainedWith(t, "promptfl", func(c *experiment.Config) {
		c.Train.Rounds, c.Train.LR, c.Data.ValShare = 4, 5, 0.5
		c.Data.Generator.Train, c.Data.Generator.Test, c.Data.Generator.Difficulty = 16, 16, 1
		c.Eval.Select, c.Eval.Every = experiment.BestVal, 1
	})
	path := filepath.Join(dir, "c.onnx")
	exported := open(t, c, dir, Choice{Global: true, Client: 0})
	if _, err := exported.Export(context.Background(), PixelsUint8, path); err != nil {
		t.Fatal(err)
	}
	f, err := graph.ReadFile(path)
	goldentest.NoError(t, err)
	meta := map[string]string{}
	for _, p := range f.Proto.MetadataProps {
		meta[p.Key] = p.Value
	}
	var s record.Summary
	b, err := os.ReadFile(filepath.Join(dir, record.SummaryFile))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	records, e := record.Records(dir)
	if err = errors.Join(err, e); err != nil || len(records) != 4 {
		t.Fatal(err, len(records))
	}
	at := s.Selected
	if at == 3 || records[at].Evaluation.PerClient[0] == records[3].Evaluation.PerClient[0] {
		t.Fatalf("round %d is selected: the test cannot tell it from the last", at)
	}
	accuracy, _ := json.Marshal(records[at].Evaluations.Global.PerClient[0])
	if meta["accuracy"] != string(accuracy) || meta["accuracy_round"] != fmt.Sprint(at+1) ||
		meta["rounds"] != fmt.Sprint(at+1) {
		t.Errorf("accuracy %s of round %s after %s rounds, expected %s of round %d", meta["accuracy"],
			meta["accuracy_round"], meta["rounds"], accuracy, at+1)
	}
	// Without a selection the last round counts. Fine-tuning changes classifiers of clients alone.
	exported.config.Eval.Select, exported.config.Eval.FineTune = "last", 1
	facts, err := exported.About()
	accuracy, _ = json.Marshal(records[3].Evaluations.Global.PerClient[0])
	if !slices.Contains(facts, Fact{"rounds", "4"}) || !slices.Contains(facts, Fact{"accuracy", string(accuracy)}) {
		t.Errorf("%v, %v, expected 4 rounds and accuracy %s", facts, err, accuracy)
	}
	filetest.Write(t, filepath.Join(dir, record.RoundsFile), `{"format":9,"round":0}`+"\n")
	_, err = exported.metadata(PixelsUint8)
	goldentest.WantError(t, err, record.RoundsFile)
}

// A failure leaves the earlier files and nothing else.
func TestExportLeavesNoHalfFile(t *testing.T) {
	c, dir := trained(t, "zeroshot")
	out := t.TempDir()
	path := filetest.Write(t, filepath.Join(out, "c.onnx"), "old")
	for _, x := range []struct {
		pixels, out string
		word        string
	}{{"bytes", path, "uint8 or float"}, {PixelsUint8, filepath.Join(out, "none", "c.onnx"), "cannot write"}} {
		_, err := open(t, c, dir, Choice{}).Export(context.Background(), x.pixels, x.out)
		if err == nil || !strings.Contains(err.Error(), x.word) {
			t.Errorf("error %v, expected one with %q", err, x.word)
		}
	}
	for k, word := range map[int]string{2: "clients 0 to 1", -1: "clients 0 to 1"} {
		_, err := Open(c, dir, Choice{Client: k})
		goldentest.WantErrorOf(t, fmt.Sprint("client ", k), err, word)
	}
	_, err := Open(c, out, Choice{})
	goldentest.WantError(t, err, "finished run")
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("%q: %v", b, err)
	}
	if list, _ := os.ReadDir(out); len(list) != 1 {
		t.Errorf("%v", list)
	}
}
