package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/models/clip"
	"promptfed/runtime/ort"
)

const (
	methodRounds  = 5
	warmUpRounds  = 2 // one compiles; the next takes back the memory that the measurement of memory freed
	methodClients = 2
)

// Methods measures a client's training of one step with every base method, and with every wrapper over promptfl, on the
// first class list and full-size towers with random weights, or with Quick on towers of one and two blocks.
func Methods(ctx context.Context, m *Measurement) error {
	threads, classes := m.firstThreads(), m.lists[0].classes.Names()
	m.Session, m.Workers = m.session(threads), max(1, m.Workers)
	image := cmp.Or(m.Image, "vit-b32")
	text, vision, err := fullTowers(image)
	if m.Quick {
		image, text, err = "two blocks", oneBlock, nil
		text.EmbedDim = 64 // the axes of ggtpc take seconds of 512 dimensions
		vision = clip.VisionArch{Width: 64, Layers: 2, Heads: 2, Patch: 32, Image: 64, EmbedDim: text.EmbedDim}
	}

	if err != nil {
		return err
	}

	todo := methods.Table()
	if len(m.Only) > 0 {
		todo = nil
	}

	for _, name := range m.Only {
		d, err := methods.Find(name)
		if err != nil {
			return err
		}
		todo = append(todo, d)
	}

	tower, err := randomTower("random", text, vision, m.dir)
	if err != nil {
		return err
	}

	tower.tokens = nil // methods put words beside class names
	m.Title = fmt.Sprintf("a client's turn of one step: %d images, %d classes, random weights of a text tower of "+
		"width %d and %s, %d threads, %s", batch, len(classes), text.Width, image, threads, platform())
	results := m.table([]string{"method", "ms (min-max)", "products", "backbone MB", "worker MB",
		"beside products, of the turn"}, "times are medians, with ONNX Runtime's profiler; "+
		"shares are without it; products are matrix products and convolutions; a method with + is a wrapper, over "+
		"promptfl; other is outside ONNX Runtime; backbone MB are there once for all workers, worker MB in each")

	for i, d := range todo {
		m.Progress("methods", i, len(todo))
		name := d.Name
		if d.Wrapper() {
			name = "+ " + name
		}

		row, share, err := m.method(ctx, tower, d, classes, filepath.Join(m.dir, d.Name))
		if ctx.Err() != nil {
			return ctx.Err()
		}

		if err != nil {
			results.add(name, "not measured: "+err.Error())
			continue
		}

		results.add(append([]any{name}, row...)...)
		if share < wantProducts && !m.Quick {
			m.atLeast("share of products of "+name+", in percent", wantProducts, share)
		}
	}

	m.Progress("methods", len(todo), len(todo))
	return nil
}

// method measures one method. It returns a row without the method's name, and the percent of the time in products.
func (o Options) method(ctx context.Context, tower *tower, d layer.Def, classes []string, profile string) (row []any,
	share float64, err error) {
	protocol := protocol{method: d.Name, classes: classes, clients: methodClients, participation: 1, batch: batch,
		rounds: methodRounds, testEvery: methodRounds}
	if d.Wrapper() {
		protocol.method, protocol.with = "promptfl", []string{d.Name}
	}

	experiment, err := protocol.describe()
	if err != nil {
		return nil, 0, err
	}

	experiment.Training.Memory = o.Memory
	if len(experiment.Method.Params(tower.Task())) == 0 {
		return nil, 0, errors.New("it learns nothing")
	}

	drawn, reads := examples{}, experiment.Reads(tower)
	random := func(client int, name string) *spec.Features {
		return drawn.of(tower.Task(), client, name, inTurn(len(protocol.classes)), reads)
	}
	for i := range methodClients {
		experiment.Clients = append(experiment.Clients, &spec.Client{ID: i, Backbone: tower, Train: random(i, "train"),
			Test: random(i, "test")})
	}

	if methods.NeedsSynthetic(experiment.Method) {
		experiment.Synthetic = &spec.Synthetic{Backbone: tower, Epochs: 1, Data: random(-1, "synthetic")}
	}

	before, err := held()
	if err != nil {
		return nil, 0, err
	}

	session := o.Session
	session.Profile = profile
	var turns []float64 // between the starts of two trainings of one step
	var between int64   // memory that stays resident between trainings, once for any number of workers
	var unheld error
	done, last := 0, time.Now()
	enough, stop := context.WithCancel(ctx) // before the test, whose sessions would enter the profile
	defer stop()
	var mu sync.Mutex
	timed := func(i message.Instruction, _ int) {
		mu.Lock()
		defer mu.Unlock()
		seconds := time.Since(last).Seconds()
		if i.Kind == message.Train {
			if done++; done > methodClients*warmUpRounds {
				turns = append(turns, seconds)
			} else if done <= methodClients {
				var err error
				between, err = held()
				unheld = errors.Join(unheld, err)
				resetPeak()
			}
			if done == methodClients*methodRounds {
				stop()
			}
		}

		last = time.Now()
	}

	_, err = engine.Run(enough, experiment, engine.Settings{Client: client.Settings{Session: session, PrefixBytes: -1},
		Workers: o.Workers, OnTurn: timed})
	if unheld != nil || err != nil && !(errors.Is(err, context.Canceled) && done == methodClients*methodRounds) {
		return nil, 0, errors.Join(unheld, err)
	}

	worker := max(0, peakResident()-between) / int64(o.Workers)
	spent, profiler, left, err := readProfiles(profile, methodRounds, warmUpRounds)
	if err != nil {
		return nil, 0, err
	}

	total := -profiler
	for _, t := range turns {
		total += t * float64(o.Workers)
	}

	share, operators := shares(spent, total)
	if session.WithProvider().Provider == ort.CUDA || len(left) > 0 {
		names := strings.Join(slices.Sorted(maps.Keys(left)), " ")
		operators = append(operators, "left to the CPU: "+cmp.Or(names, "none"))
	}

	return []any{summary(turns), percent(share), megabytes(max(0, between-before)), megabytes(worker),
		strings.Join(operators, ", ")}, share, nil
}

// shares divides the seconds of trainings among operators. It returns the percent in matrix products and convolutions,
// and the three slowest other operators. Other is the time outside ONNX Runtime.
func shares(spent map[string]float64, total float64) (products float64, slowest []string) {
	multiplying, all := inProducts(spent)
	percents := map[string]float64{"other": max(0, 100*(1-all/total))}
	for op, seconds := range spent {
		if !multiplies[op] {
			percents[op] = 100 * seconds / total
		}
	}

	order := slices.SortedFunc(maps.Keys(percents), func(a, b string) int {
		return cmp.Or(cmp.Compare(percents[b], percents[a]), cmp.Compare(a, b))
	})
	for _, op := range order[:min(3, len(order))] {
		slowest = append(slowest, fmt.Sprintf("%s %.0f %%", op, percents[op]))
	}

	return 100 * multiplying / total, slowest
}
