package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/record"
	"promptfed/models/clip"
	"promptfed/runtime/ort"
)

// growth measures the overhead of clients beside ONNX Runtime for 100 to 100,000 clients, of which 100 train in a
// round: a text tower of one block of CLIP's width, one worker, state on disk and every message encoded. The first
// round compiles, and the last one tests all clients.
func (o Options) growth(ctx context.Context, dir string, r *Report) error {
	w := workload{Cohort: 100, Train: 12, Test: 4, Batch: 64, Rounds: 22, TestEvery: 1000}
	counts := []int{100, 1000, 10_000, 100_000}
	if o.Quick {
		w.Cohort, w.Rounds, counts = 20, 6, []int{100, 1000}
	}
	at := filepath.Join(dir, "growth")
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	t, err := randomTower("one-block", oneBlock, clip.VisionArch{}, at)
	if err != nil {
		return err
	}
	table := Table{Columns: []string{"clients", "s to round 2", "ms of a round (min-max)", "ms of a turn's rest",
		"of the processor", "heap MB", "resident MB", "s of round with test"},
		Notes: []string{fmt.Sprintf("%d clients train in a round, with a text tower of one block, one worker; the "+
			"rest of a turn is beside ONNX Runtime and has its share of the server; memory is before the round with "+
			"the test of all clients", w.Cohort)}}
	largest := 0.0
	for _, n := range counts {
		w.Clients = n
		own, err := o.cost(ctx, w, t, filepath.Join(at, fmt.Sprint(n)), &table)
		if err != nil {
			return fmt.Errorf("%d clients: %w", n, err)
		}
		largest = max(largest, own)
	}
	r.Tables = append(r.Tables, table)
	r.target("processor time of a client and round beside computing, in seconds", wantOwn, largest, largest <= wantOwn)
	return nil
}

// cost adds a row to the table of growth. It returns the seconds of the processor of a turn beside ONNX Runtime.
func (o Options) cost(ctx context.Context, w workload, t *tower, dir string, table *Table) (own float64, err error) {
	began := time.Now()
	e, err := w.experiment(t)
	if err != nil {
		return 0, err
	}
	var m runtime.MemStats
	var first float64
	var seconds, rest, processor []float64
	native, outside, memory := ort.NativeTime(), ort.GoTime(), int64(0)
	_, err = engine.Run(ctx, e, engine.Settings{Client: client.Settings{Session: o.session(1)}, Dir: dir, Workers: 1,
		Encode: true, OnRound: func(rec record.Record) {
			took, inside, beside := time.Since(began), ort.NativeTime()-native, ort.GoTime()-outside
			switch rec.Round + 1 {
			case 1:
				first = took.Seconds()
			case w.Rounds:
				seconds = append(seconds, took.Seconds())
			default:
				seconds = append(seconds, took.Seconds())
				rest = append(rest, (took-inside).Seconds()/float64(w.Cohort))
				processor = append(processor, beside.Seconds()/float64(w.Cohort))
			}
			if rec.Round+2 == w.Rounds {
				runtime.GC()
				runtime.ReadMemStats(&m)
				memory = resident()
			}
			o.Progress(fmt.Sprint(w.Clients, " clients"), rec.Round+1, w.Rounds)
			began, native, outside = time.Now(), ort.NativeTime(), ort.GoTime()
		}})
	if err != nil {
		return 0, err
	}
	last := len(seconds) - 1
	if own = median(processor); own <= 0 { // the system reports no processor time
		own = median(rest)
	}
	table.add(w.Clients, tenths(first), summary(seconds[:last]), Number{1e3 * median(rest), "%.2f"},
		Number{1e3 * own, "%.2f"}, megabytes(int64(m.HeapAlloc)), megabytes(memory), tenths(seconds[last]))
	return own, nil
}
