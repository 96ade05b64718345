//go:build linux

package ort_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// variants are session options that differ from the defaults: one thread, arena, all optimisations, no prepacking.
var variants = []struct {
	name    string
	options ort.Options
}{
	{"default", ort.Options{}},
	{"prepack", ort.Options{Prepack: true}},
	{"no arena", ort.Options{NoArena: true}},
	{"optimization extended", ort.Options{OptLevel: ort.OptExtended}},
	{"optimization basic", ort.Options{OptLevel: ort.OptBasic}},
	{"optimization none", ort.Options{OptLevel: ort.OptNone}},
	{"threads 2", ort.Options{IntraThreads: 2}},
	{"threads 2, spinning", ort.Options{IntraThreads: 2, Spinning: true}},
}

// BenchmarkOptions runs one graph with every variant and logs a table: time to open, private memory after a run, and
// time of a run relative to the default (the median over turns; in each turn all variants run once). ORT_BENCH_MODEL
// names the ONNX file, ORT_BENCH_SIZE the size of its open dimensions (8), ORT_BENCH_TURNS the number of turns (7).
func BenchmarkOptions(b *testing.B) {
	path := os.Getenv("ORT_BENCH_MODEL")
	if path == "" {
		b.Skip("ORT_BENCH_MODEL names no file")
	}
	number := func(name string, def int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
			return n
		}
		return def
	}
	size, turns := number("ORT_BENCH_SIZE", 8), number("ORT_BENCH_TURNS", 7)
	sessions := make([]*ort.Session, len(variants))
	opened, memory, times := make([]time.Duration, len(variants)), make([]float64, len(variants)), make([][]float64,
		len(variants))
	for range b.N {
		for i, v := range variants {
			before := private(b)
			begin := time.Now()
			s, err := ort.Open(path, v.options)
			goldentest.NoError(b, err)
			defer s.Close()
			sessions[i], opened[i] = s, time.Since(begin)
			run(b, s, noise(s, size))
			memory[i] = private(b) - before
		}
		in := noise(sessions[0], size)
		for range turns {
			for i, s := range sessions {
				begin := time.Now()
				run(b, s, in)
				times[i] = append(times[i], time.Since(begin).Seconds())
			}
		}
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "options\topen ms\tprivate MiB\trun ms\tof default")
	for i, v := range variants {
		ratios := make([]float64, len(times[i]))
		for k, t := range times[i] {
			ratios[k] = t / times[0][k]
		}
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%.1f\t%.2f\n", v.name, opened[i].Milliseconds(), memory[i], 1e3*middle(times[i]),
			middle(ratios))
	}
	w.Flush()
	_, version, err := ort.Library()
	goldentest.NoError(b, err)
	b.Logf("%s, open dimensions %d, ONNX Runtime %s\n%s", path, size, version, table.String())
}

func middle(x []float64) float64 { return slices.Sorted(slices.Values(x))[len(x)/2] }

func noise(s *ort.Session, open int) tensor.Map {
	r := rand.New(rand.NewPCG(1, 2))
	in := tensor.Map{}
	for _, p := range s.Inputs() {
		shape := make([]int, len(p.Shape))
		for i, d := range p.Shape {
			if shape[i] = open; d.Size >= 0 {
				shape[i] = d.Size
			}
		}
		if p.IsInt() {
			in[p.Name] = tensor.OfInts(make([]int64, tensor.Size(shape)), shape...)
			continue
		}
		t := tensor.New(shape...)
		for i := range t.Data {
			t.Data[i] = float32(r.NormFloat64())
		}
		in[p.Name] = t
	}
	return in
}
