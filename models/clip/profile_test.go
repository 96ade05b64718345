package clip_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

func TestProfile(t *testing.T) {
	if os.Getenv("CLIP_PROFILE") == "" {
		t.Skip("CLIP_PROFILE is not set")
	}
	n, _ := strconv.Atoi(os.Getenv("CLIP_PROFILE"))
	detail := os.Getenv("CLIP_PROFILE_DETAIL") != ""
	w := writeFormula(t, t.TempDir(), clip.TextB.Shapes())
	for _, set := range []struct {
		name    string
		classes clip.NamedClasses
	}{{"cifar10", clip.CIFAR10}, {"cifar100", clip.CIFAR100}} {
		if c := os.Getenv("CLIP_PROFILE_SET"); c != "" && c != set.name {
			continue
		}
		s, err := clip.NewSuffixes(set.classes.Names(), set.classes.Suffixes(), clip.StartID, clip.TextB.Width,
			embedding(clip.TextB.Width))
		if err != nil {
			t.Fatal(err)
		}
		for _, threads := range []int{1, 2} {
			if c := os.Getenv("CLIP_PROFILE_THREADS"); c != "" && c != fmt.Sprint(threads) {
				continue
			}
			dir := t.TempDir()
			o := ort.Options{IntraThreads: threads, Prepack: true, Profile: filepath.Join(dir, "step")}
			cheap := textStep(t, w, s, 1, false, o)
			rows := 17
			for _, ids := range s.IDs {
				rows += len(ids)
			}
			o.Profile = filepath.Join(dir, "gemm")
			bare, bareFLOPs := gemm(t, w, rows, o)
			best, bestBare := math.Inf(1), math.Inf(1)
			for range n {
				best = min(best, cheap.run(t).Seconds())
				bestBare = min(bestBare, bare.run(t).Seconds())
			}
			cheap.s.Close()
			bare.s.Close()
			flops := clip.Text{TextArch: clip.TextB}.StepFLOPs(s, prompted(graph.New(), 1, 512, tensor.Map{}))
			t.Logf("%s threads %d rows %d: best step %.1f ms, bare %.1f ms, of GEMM %.1f %%", set.name, threads, rows,
				1e3*best, 1e3*bestBare, 100*(flops/best)/(bareFLOPs/bestBare))
			report(t, dir, "step", detail)
			report(t, dir, "gemm", detail)
		}
	}
}

type event struct {
	Cat, Name string
	Dur       float64
	Ts        float64
	Args      map[string]any
}

func report(t *testing.T, dir, prefix string, detail bool) {
	files, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var events []event
	if err := json.Unmarshal(raw, &events); err != nil {
		t.Fatal(err)
	}
	type node struct {
		op, shape string
		d         []float64
		order     int
	}
	nodes := map[string]*node{}
	var runs []float64
	for _, e := range events {
		if e.Name == "SequentialExecutor::Execute" {
			runs = append(runs, e.Dur)
		}
		name, ok := strings.CutSuffix(e.Name, "_kernel_time")
		if e.Cat != "Node" || !ok {
			continue
		}
		n := nodes[name]
		if n == nil {
			n = &node{op: e.Args["op_name"].(string), shape: shapes(e.Args["input_type_shape"]) + " -> " +
				shapes(e.Args["output_type_shape"]), order: len(nodes)}
			nodes[name] = n
		}
		n.d = append(n.d, e.Dur)
	}
	slices.Sort(runs)
	low := func(d []float64) float64 { slices.Sort(d); return d[len(d)/5] }
	type sum struct {
		key string
		n   int
		t   float64
	}
	sums, all := map[string]*sum{}, 0.0
	for _, n := range nodes {
		key := n.op
		if detail {
			key += " " + n.shape
		}
		if sums[key] == nil {
			sums[key] = &sum{key: key}
		}
		v := low(n.d)
		sums[key].n++
		sums[key].t += v
		all += v
	}
	t.Logf("%s: %d nodes, sum of low %.2f ms; run low %.2f ms", prefix, len(nodes), all/1e3, runs[len(runs)/5]/1e3)
	for _, k := range slices.SortedFunc(maps.Values(sums), func(a, b *sum) int { return cmp.Compare(b.t, a.t) }) {
		if k.t > all/1000 {
			t.Logf("  %7.2f ms %4.1f %% %4d %s", k.t/1e3, 100*k.t/all, k.n, k.key)
		}
	}
}

func shapes(v any) string {
	s := ""
	list, _ := v.([]any)
	for _, x := range list {
		for _, d := range x.(map[string]any) {
			s += fmt.Sprint(d)
		}
		s += " "
	}
	return s
}
