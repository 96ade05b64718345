package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/models/clip"
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// fullBackbones are the image towers of the backbones of Table S5.
var fullBackbones = map[string]clip.VisionArch{"rn50": clip.RN50, "rn101": clip.RN101, "vit-b32": clip.VisionB32,
	"vit-b16": clip.VisionB16}

// fullTowers returns the towers of Table S5's backbones and of ViT-L/14; an empty name is vit-b32.
func fullTowers(name string) (clip.TextArch, clip.VisionArch, error) {
	text, vision := clip.TextB, fullBackbones[cmp.Or(name, "vit-b32")]
	if name == "vit-l14" {
		text, vision = clip.TextL, clip.VisionL14
	}

	if text.EmbedDim = vision.EmbedDim; vision.Width == 0 {
		return text, vision, fmt.Errorf("image tower %q is not known; take rn50, rn101, vit-b32, vit-b16 or vit-l14",
			name)
	}

	return text, vision, nil
}

// oneBlock is a text tower with almost no cost, whose prompts have CLIP's width.
var oneBlock = clip.TextArch{Width: 512, Layers: 1, Heads: 8, MLP: 64, Context: 77, EmbedDim: 512}

// Targets of the project: the time of a round with its test, as a multiple of the training time, and a client's
// overhead in a round, in seconds of the processor.
const (
	wantEvaluation = 1.4
	wantOwn        = 0.002
)

// Experiment measures whole experiments. First it runs rounds of Table S5's protocol (FedAPPR) that test all clients in
// every round. Class lists replace the protocol's classes by the first list, and an image tower replaces its backbones.
// Then it measures the overhead per client by the number of clients (growth). Quick measures one text tower of one
// block, with fewer clients and rounds.
func Experiment(ctx context.Context, m *Measurement) error {
	if m.Workers == 0 {
		m.Workers = runtime.NumCPU()
	}

	protocol := tableS5()
	protocol.rounds = 1 + cmp.Or(m.Rounds, 3)
	if len(m.Classes) > 0 {
		protocol.classes = m.lists[0].classes.Names()
	}

	if err := m.rounds(ctx, protocol); err != nil {
		return err
	}

	debug.FreeOSMemory()
	return m.growth(ctx)
}

// experimentTowers returns the backbones of the clients.
func (m *Measurement) experimentTowers() ([]*tower, error) {
	if m.Quick {
		t, err := randomTower("one-block", oneBlock, clip.VisionArch{}, m.dir)
		return []*tower{t}, err
	}

	var out []*tower
	names := slices.Sorted(maps.Keys(fullBackbones))
	if m.Image != "" {
		names = []string{m.Image}
	}

	for _, name := range names {
		m.Progress("random weights", len(out), len(names))
		text, vision, err := fullTowers(name)
		if err != nil {
			return nil, err
		}

		t, err := randomTower(name, text, vision, filepath.Join(m.dir, name))
		if err != nil {
			return nil, err
		}

		if len(m.Only) > 0 {
			t.tokens = nil // methods put words beside class names
		}

		out = append(out, t)
	}

	m.Progress("random weights", len(out), len(out))
	return out, nil
}

// phaseNames are the names of phases.
var phaseNames = []string{"training", "statistics", "evaluation", "server", "messages", "disk"}

// phases returns the parts of a round that took so many seconds with its checkpoint, which counts as disk.
func phases(rec record.Record, seconds float64) []float64 {
	p := rec.Phases
	return []float64{p.Training, p.Statistics, p.Evaluation, p.Server, p.Messages, p.Disk + max(0, seconds-rec.Seconds)}
}

// rounds measures rounds of a protocol.
func (m *Measurement) rounds(ctx context.Context, protocol protocol) error {
	if len(m.Only) > 0 && m.Only[0] != protocol.method {
		protocol.method, protocol.options = m.Only[0], nil
	}

	towers, err := m.experimentTowers()
	if err != nil {
		return err
	}

	experiment, err := protocol.experiment(towers)
	if err != nil {
		return err
	}

	experiment.Training.Memory = m.Memory
	results := m.table(append(append([]string{"seconds of round"}, phaseNames...), "together"))
	row := func(name string, values []float64) {
		cells := []any{name}
		for _, v := range values {
			cells = append(cells, Number{v, "%.2f"})
		}
		results.add(cells...)
	}

	var measured [][]float64 // the phases of each round after the first, and their sum
	var published publishedCost
	trained, largest, began := 0, int64(0), time.Now()
	_, err = engine.Run(ctx, experiment, engine.Settings{Client: client.Settings{Session: m.Session},
		Dir: filepath.Join(m.dir, "run"), Workers: m.Workers, Encode: true,
		OnRound: func(rec record.Record) {
			seconds := time.Since(began).Seconds()
			began = time.Now()
			values := append(phases(rec, seconds), seconds)
			if row(fmt.Sprint(rec.Round+1), values); rec.Round > 0 {
				measured = append(measured, values)
				published.count(experiment, rec.Clients, protocol.batch)
			}
			trained, largest = len(rec.Clients), max(largest, resident())
			m.Progress("rounds of "+protocol.method, rec.Round+1, protocol.rounds)
		}})

	if err != nil {
		return err
	}

	middle := make([]float64, len(phaseNames)+1)
	for i := range middle {
		all := convert.Slice(measured, func(values []float64) float64 { return values[i] })
		middle[i] = median(all)
	}

	row("median", middle)
	training, evaluation := middle[0], middle[2]
	multiple := 1 + evaluation/training
	results.Notes = []string{"round 1 compiles and is not in the median; disk is states of clients and the checkpoint",
		fmt.Sprintf("a round with its test takes %.2f times its training; %d MB resident", multiple,
			megabytes(largest))}
	names := convert.Slice(towers, func(t *tower) string { return t.Name() })
	m.Title = fmt.Sprintf("Table S5's protocol (FedAPPR) on random examples: %d clients, %d train in a round and "+
		"all are tested, %d classes, %d images; %s; random weights of %s; %d workers", protocol.clients, trained,
		len(protocol.classes), protocol.images, protocol.method, strings.Join(names, ", "), m.Workers)

	m.atMost("a round with its test, in times of its training", wantEvaluation, multiple)
	return m.published(ctx, towers, published, protocol.classes, training, evaluation)
}

// publishedCost counts the work of rounds in public code, where every batch runs through both towers: a row for each
// round, of batches through the text tower and of images through each image tower.
type publishedCost struct{ training, evaluation []map[string]int }

// textTower is the key of batches through the text tower.
const textTower = ""

func (c *publishedCost) count(experiment *spec.Experiment, trained []int, batch int) {
	training, evaluation := map[string]int{}, map[string]int{}
	add := func(to map[string]int, at *spec.Client, images int) {
		to[textTower] += (images + batch - 1) / batch
		to[at.Backbone.Name()] += images
	}

	for _, id := range trained {
		add(training, experiment.Clients[id], experiment.Clients[id].Train.Len())
	}

	for _, k := range experiment.Clients {
		add(evaluation, k, k.Test.Len())
	}

	c.training, c.evaluation = append(c.training, training), append(c.evaluation, evaluation)
}

// imagesAtOnce is the number of images in one timed run of an image tower.
const imagesAtOnce = 8

// published estimates the time of the same rounds when every batch runs through both towers, as in public code, in the
// same ONNX Runtime. The estimate multiplies measured step times. ours are the medians of our training and evaluation.
func (m *Measurement) published(ctx context.Context, towers []*tower, cost publishedCost, classes []string, training,
	evaluation float64) (err error) {
	session := m.session(m.Workers) // one client at a time, on all cores
	plain := towers[len(towers)-1].asPlain()
	plain.tokens = named
	few := classes[:quickClasses]
	scale := float64(len(classes)) / float64(len(few))
	var open opened
	defer open.close(&err)
	step := open.step(promptFL(plain, few, session, nil))
	in := method.Draw(seed, 0, "ctx", []int{tokens, plain.text().Width}, promptStd)
	g := graph.New()
	out, err := plain.Text(g, few, []method.Prompt{{Ctx: g.Input("ctx", graph.Float, graph.Static(in.Shape...))}})
	if err != nil {
		return err
	}

	session.WeightsDir = plain.dir
	test := open.products(compile("test", out[0], tensor.Map{"ctx": in}, 0, session))
	step.scale, test.scale = scale, scale
	all := []*contestant{&step.contestant, &test.contestant}
	for _, t := range towers {
		if t.Bundle.Vision.Width > 0 {
			session.WeightsDir = t.dir
			v := clip.Vision{VisionArch: t.Bundle.Vision}
			image := open.products(pixelsThrough(v, t.weights, imagesAtOnce, session))
			image.what = t.Name()
			all = append(all, &image.contestant)
		}
	}

	if open.err != nil {
		return open.err
	}

	if err := m.interleave(ctx, "published form", 1, 3, all...); err != nil {
		return err
	}

	table := m.table([]string{"published form, reckoned from its steps", "s", "times ours"},
		fmt.Sprintf("in the same ONNX Runtime on %d threads", m.Workers))
	for _, phase := range []struct {
		what   string
		text   *contestant
		counts []map[string]int
		ours   float64
	}{{"training of a round", all[0], cost.training, training},
		{"evaluation of a round", all[1], cost.evaluation, evaluation}} {
		var seconds []float64
		for _, n := range phase.counts {
			s := float64(n[textTower]) * median(phase.text.seconds)
			for _, image := range all[2:] {
				s += float64(n[image.what]) * median(image.seconds) / imagesAtOnce
			}
			seconds = append(seconds, s)
		}
		table.add(phase.what, Number{median(seconds), "%.3g"}, Number{median(seconds) / phase.ours, "%.0f"})
	}

	table.add("text tower for a training step", Number{median(all[0].seconds), "%.3g"}, "")
	table.add("text tower for a test batch", Number{median(all[1].seconds), "%.3g"}, "")
	for _, c := range all[2:] {
		table.add("an image through "+c.what, Number{median(c.seconds) / imagesAtOnce, "%.3g"}, "")
	}

	return nil
}

// growth measures the overhead of clients beside ONNX Runtime for 100 to 100,000 clients, of which 100 train in a
// round: a text tower of one block of CLIP's width, one worker, state on disk and every message encoded. The first
// round compiles, and the last one tests all clients.
func (m *Measurement) growth(ctx context.Context) error {
	workload := workload{Cohort: 100, Train: 12, Test: 4, Batch: 64, Rounds: 22, TestEvery: 1000}
	counts := []int{100, 1000, 10_000, 100_000}
	if m.Quick {
		workload.Cohort, workload.Rounds, counts = 20, 6, []int{100, 1000}
	}

	at := filepath.Join(m.dir, "growth")
	tower, err := randomTower("one-block", oneBlock, clip.VisionArch{}, at)
	if err != nil {
		return err
	}

	table := m.table([]string{"clients", "s to round 2", "ms of a round (min-max)", "ms of a turn's rest",
		"of the processor", "heap MB", "resident MB", "s of round with test"},
		fmt.Sprintf("%d clients train in a round, with a text tower of one block, one worker; the "+
			"rest of a turn is beside ONNX Runtime and has its share of the server; memory is before the round with "+
			"the test of all clients", workload.Cohort))

	largest := 0.0
	for _, n := range counts {
		workload.Clients = n
		own, err := m.cost(ctx, workload, tower, filepath.Join(at, fmt.Sprint(n)), table)
		if err != nil {
			return fmt.Errorf("%d clients: %w", n, err)
		}
		largest = max(largest, own)
	}

	m.atMost("processor time of a client and round beside computing, in seconds", wantOwn, largest)
	return nil
}

// cost adds a row to the table of growth. It returns the seconds of the processor of a turn beside ONNX Runtime.
func (o Options) cost(ctx context.Context, workload workload, t *tower, dir string, table *Table) (own float64,
	err error) {
	began := time.Now()
	experiment, err := workload.experiment(t)
	if err != nil {
		return 0, err
	}

	var heap runtime.MemStats
	var first float64
	var seconds, rest, processor []float64
	native, outside, memory := ort.NativeTime(), ort.GoTime(), int64(0)
	_, err = engine.Run(ctx, experiment, engine.Settings{Client: client.Settings{Session: o.session(1)}, Dir: dir,
		Workers: 1,
		Encode:  true, OnRound: func(rec record.Record) {
			took, inside, beside := time.Since(began), ort.NativeTime()-native, ort.GoTime()-outside
			switch rec.Round + 1 {
			case 1:
				first = took.Seconds()
			case workload.Rounds:
				seconds = append(seconds, took.Seconds())
			default:
				seconds = append(seconds, took.Seconds())
				rest = append(rest, (took-inside).Seconds()/float64(workload.Cohort))
				processor = append(processor, beside.Seconds()/float64(workload.Cohort))
			}

			if rec.Round+2 == workload.Rounds {
				runtime.GC()
				runtime.ReadMemStats(&heap)
				memory = resident()
			}

			o.Progress(fmt.Sprint(workload.Clients, " clients"), rec.Round+1, workload.Rounds)
			began, native, outside = time.Now(), ort.NativeTime(), ort.GoTime()
		}})

	if err != nil {
		return 0, err
	}

	last := len(seconds) - 1
	if own = median(processor); own <= 0 { // the system reports no processor time
		own = median(rest)
	}

	table.add(workload.Clients, tenths(first), summary(seconds[:last]), Number{1e3 * median(rest), "%.2f"},
		Number{1e3 * own, "%.2f"}, megabytes(int64(heap.HeapAlloc)), megabytes(memory), tenths(seconds[last]))
	return own, nil
}
