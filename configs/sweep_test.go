package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methodtest"
	"promptfed/runtime/convert"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
)

const grid = `
name: table
seed: 9
method: promptfl
options: {tokens: 4, init_std: 0.5}
train: {rounds: 5, lr: 0.1}
data: {set: synthetic, generator: {classes: [star, heart]}}
sweep:
  seeds: [1, 2]
  axes:
    - name: method
      points:
        - {label: PromptFL, set: {method: promptfl}}
        - {label: FedPHA (ours), set: {method: fedpha, options: {projector: eq9}, train: {lr: 0.2, batch: 8}}}
    - {name: tokens, key: train.epochs, values: [1, 2.0, 3]}
  points: {method: {FedPHA (ours): {train.momentum: 0.5, train.lr: 0.25}}}
  skip:
    - {method: PromptFL, tokens: ["2.0", 3]}
card:
  paper: P
  item: Table 1
  title: T
  rows: [method]
  columns: [tokens]
  numbers:
    by: [method, tokens]
    values:
      PromptFL: {1: [91.2, 0.3], Average: 80}
      FedPHA (ours): {2.0: 70.5}
smoke:
  set: {train.rounds: 2, options.init_std: 0.25, backbones: [tiny-vit-b16]}
  points: {method: {FedPHA (ours): {train.lr: 0.4, options.ratio: 0.6}}}
  keep: {method: PromptFL}
  seeds: [7]
`

func sweep(t *testing.T, text string, o SweepOptions) *Sweep {
	t.Helper()
	s, err := LoadSweep(file(t, text), o)
	goldentest.NoError(t, err)
	return s
}

// yamlOf returns the text of sweep.yaml.
func yamlOf(t *testing.T, s *Sweep) []byte {
	t.Helper()
	text, err := s.YAML()
	goldentest.NoError(t, err)
	return text
}

// planOf returns the text of sweep.json.
func planOf(t *testing.T, s *Sweep) []byte {
	t.Helper()
	text, err := s.Plan().JSON()
	goldentest.NoError(t, err)
	return text
}

func folders(s *Sweep) string {
	return strings.Join(convert.Slice(s.Cells, func(c Cell) string { return c.Folder }), " ")
}

// The grid is written down by hand: the first axis varies slowest, the seed fastest; entries of skip are left out.
func TestGrid(t *testing.T) {
	s := sweep(t, grid, SweepOptions{})
	want := "promptfl/1/seed-1 promptfl/1/seed-2 fedpha-ours/1/seed-1 fedpha-ours/1/seed-2 fedpha-ours/2.0/seed-1 " +
		"fedpha-ours/2.0/seed-2 fedpha-ours/3/seed-1 fedpha-ours/3/seed-2"
	if got := folders(s); got != want {
		t.Errorf("cells %s\nwant  %s", got, want)
	}
	if s.Name != "table" || s.Smoke || !slices.Equal(s.Seeds, []uint64{1, 2}) {
		t.Errorf("%s, smoke %v, seeds %v", s.Name, s.Smoke, s.Seeds)
	}
	first, last := s.Cells[0], s.Cells[7]
	if c := first.Config; c.Method != "promptfl" || fmt.Sprint(c.Options) != "map[init_std:0.5 tokens:4]" ||
		c.Train.LR != 0.1 || c.Seed != 1 || c.Train.Epochs != 1 {
		t.Errorf("first cell: %+v", c)
	}
	if c := last.Config; c.Method != "fedpha" || fmt.Sprint(c.Options) != "map[projector:eq9]" || c.Train.LR != 0.25 ||
		c.Train.Momentum != 0.5 || c.Train.Batch != 8 || c.Train.Rounds != 5 || c.Seed != 2 || c.Train.Epochs != 3 {
		t.Errorf("last cell: %+v", c)
	}
	if last.Labels["method"] != "FedPHA (ours)" || last.Labels["tokens"] != "3" {
		t.Errorf("labels %v", last.Labels)
	}
}

// A file among methods is a point with its content and the name in it; two of that name have the names of their files.
// A missing file is an error that names it.
func TestMethodOfAFileInAGrid(t *testing.T) {
	text := "name: a\nmethod: promptfl\ndata: {set: synthetic}\noptions: {tokens: 4}\n"
	s := sweep(t, text, SweepOptions{Grid: []string{"method=promptfl,../federation/methods/fromfile/example.onnx"}})
	if got := folders(s); got != "promptfl/seed-1 example/seed-1" {
		t.Errorf("cells %s", got)
	}
	content := fmt.Sprint(s.Cells[1].Config.Options["file"])
	if c := s.Cells[1].Config; c.Method != "onnx" || c.Options["tokens"] != 4 || !strings.HasPrefix(content, "data:") {
		t.Errorf("%s, tokens %v, file %.20s", c.Method, c.Options["tokens"], content)
	}
	params := []fromfile.Parameter{{Name: "p", Owner: "shared",
		Tensor: fromfile.Tensor{Shape: []fromfile.Size{{Sym: "D"}}}}}
	mine, err := methodtest.ONNXFile(fromfile.Metadata{Name: "Mine", Parameters: params},
		func(g *graph.Graph) []graph.Output {
			x := g.Input("image", graph.Float, graph.Shape{graph.Sym("B"), graph.Sym("D")})
			hand := g.Input("hand", graph.Float, graph.Shape{graph.Sym("C"), graph.Sym("D")})
			z := x.Mul(g.Input("param/p", graph.Float, graph.Shape{graph.Sym("D")})).MatMul(hand.Transpose(1, 0))
			return []graph.Output{{Name: "logits", Node: z}, {Name: "loss", Node: z.Mean()}}
		})
	goldentest.NoError(t, err)
	one, two := filepath.Join(t.TempDir(), "one.onnx"), filepath.Join(t.TempDir(), "two.onnx")
	for _, path := range []string{one, two} {
		filetest.Write(t, path, mine)
	}
	s = sweep(t, text, SweepOptions{Grid: []string{"method=" + one + "," + two}})
	for i, label := range []string{"Mine", "two"} {
		if c := s.Cells[i]; c.Labels["method"] != label {
			t.Errorf("cell %d is %s, want %s", i, c.Labels["method"], label)
		}
	}
	alone, err := Open(file(t, text), []string{"method=onnx", "options={file: " + two + "}"})
	if got := methods.Called(alone.Method, alone.Options); err != nil || got != "Mine" {
		t.Errorf("a run of two.onnx has the method %s, %v", got, err)
	}
	_, err = LoadSweep(file(t, text), SweepOptions{Grid: []string{"method=none.onnx"}})
	goldentest.WantError(t, err, "axis method", "none.onnx")
}

// Base, then points, then smoke.set, then --set, then the seed.
func TestSweepPrecedence(t *testing.T) {
	t.Setenv("PROMPTFED_TRAIN_BATCH", "16") // changes only the base
	s := sweep(t, grid, SweepOptions{Smoke: true, Sets: []string{"train.rounds=3", "train.lr=0.3"}})
	if got := folders(s); got != "promptfl/1/seed-7" || !s.Smoke {
		t.Fatalf("cells %s, smoke %v", got, s.Smoke)
	}
	if c := s.Cells[0].Config; c.Train.Rounds != 3 || c.Train.LR != 0.3 || c.Train.Batch != 16 ||
		fmt.Sprint(c.Options) != "map[init_std:0.25 tokens:4]" || c.Seed != 7 {
		t.Errorf("%+v", c)
	}
	if len(s.Hidden) != 0 {
		t.Errorf("hidden: %q", s.Hidden)
	}
	s = sweep(t, grid, SweepOptions{Sets: []string{"train.lr=0.3"}})
	if len(s.Hidden) != 1 || !strings.Contains(s.Hidden[0], "train.lr") || !strings.Contains(s.Hidden[0],
		"axis method") {
		t.Errorf("hidden: %q", s.Hidden)
	}
	s = sweep(t, grid, SweepOptions{Smoke: true, Keep: map[string][]string{"method": {"FedPHA (ours)"},
		"tokens": {"3"}}, Seeds: []uint64{4}})
	if got := folders(s); got != "fedpha-ours/3/seed-4" {
		t.Errorf("cells %s", got)
	}
	if c := s.Cells[0].Config; c.Train.Batch != 8 || fmt.Sprint(c.Options) != "map[init_std:0.25 projector:eq9 "+
		"ratio:0.6]" || c.Train.Rounds != 2 || c.Train.LR != 0.4 || c.Train.Momentum != 0.5 {
		t.Errorf("%+v", c)
	}
}

// A file without axes is one run for each seed; without sections, one run.
func TestSweepOfOne(t *testing.T) {
	if s := sweep(t, "data: {set: synthetic}\nsweep: {seeds: [3, 4]}", SweepOptions{}); folders(s) != "seed-3 seed-4" {
		t.Error(folders(s))
	}
	s := sweep(t, "name: x\nseed: 5\ndata: {set: synthetic}", SweepOptions{Sets: []string{"seed=6"}})
	if folders(s) != "seed-6" || s.Cells[0].Config.Seed != 6 || s.Card != nil {
		t.Error(folders(s))
	}
}

// A key with indices changes elements of a list of the base or of an earlier point.
func TestPlacesOfLists(t *testing.T) {
	text := `
method: fedpha
data: {set: synthetic}
options: {local_tokens: [4, 4, 4, 4]}
sweep:
  axes:
    - {name: a, key: "options.local_tokens[0, 2]", values: [8, 16]}
    - {name: b, points: [{label: one, set: {"options.local_tokens[1]": 9, "backbones[0]": x}},
        {label: all, set: {options.local_tokens: [1, 2]}}]}
`
	s := sweep(t, text, SweepOptions{Sets: []string{"options.local_tokens[1]=7"}})
	var got []string
	for _, c := range s.Cells {
		got = append(got, fmt.Sprintf("%s %s %v %v", c.Labels["a"], c.Labels["b"], c.Config.Options["local_tokens"],
			c.Config.Backbones))
	}
	want := "8 one [8 7 8 4] [x], 8 all [1 7] [tiny-vit-b16], 16 one [16 7 16 4] [x], 16 all [1 7] [tiny-vit-b16]"
	if is := strings.Join(got, ", "); is != want {
		t.Errorf("%s\nwant %s", is, want)
	}
	if len(s.Hidden) != 1 {
		t.Errorf("hidden: %q", s.Hidden)
	}
	c, err := Open(file(t, text), []string{"options.local_tokens[3]=5"})
	if err != nil || fmt.Sprint(c.Options["local_tokens"]) != "[4 4 4 5]" {
		t.Errorf("%v, %v", c.Options, err)
	}
	for set, say := range map[string]string{"options.local_tokens[4]=5": "length of the list is 4",
		"options.local_tokens[x]=5": "no such index",
		"options.lengths[0]=5":      "list options.lengths has no value", "name[0]=5": "list name has no value"} {
		_, err := Open(file(t, text), []string{set})
		goldentest.WantError(t, err, "--set", set[:strings.Index(set, "=")], say)
	}
}

// The example of docs/sweeps.md is a sweep: beta 0.5 alone for PromptFL, all three for FedPHA, three seeds.
func TestExampleOfTheDocument(t *testing.T) {
	doc := filetest.Read(t, "../docs/sweeps.md")
	_, text, _ := strings.Cut(string(doc), "```yaml\n")
	text, _, ok := strings.Cut(text, "```")
	if !ok {
		t.Fatal("no example")
	}
	if s := sweep(t, text, SweepOptions{}); len(s.Cells) != 12 {
		t.Errorf("cells %s", folders(s))
	}
	if s := sweep(t, text, SweepOptions{Smoke: true}); folders(s) != "promptfl/0.5/seed-1 fedpha/0.5/seed-1" {
		t.Errorf("cells %s", folders(s))
	}
}

// The reader of configurations reads the base of a sweep file.
func TestLoadReadsTheBase(t *testing.T) {
	c, err := Open(file(t, grid), []string{"train.lr=0.7"})
	if err != nil || c.Name != "table" || c.Seed != 9 || c.Train.LR != 0.7 || c.Train.Batch != 32 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A card names the evaluation of its numbers, by label, also after a round trip through sweep.yaml and sweep.json.
func TestCardViews(t *testing.T) {
	s := sweep(t, strings.Replace(grid, "  numbers:", "  views: {default: unsaid, by: method, labels: {FedPHA "+
		"(ours): personal}, why: section 3}\n  numbers:", 1),
		SweepOptions{})
	plan, err := parsePlan("sweep.json", planOf(t, s))
	goldentest.NoError(t, err)
	for from, c := range map[string]*PaperTable{"file": s.Card, SweepYAML: sweep(t, string(yamlOf(t, s)),
		SweepOptions{Still: true}).Card, PlanFile: plan.Card} {
		for label, want := range map[string]string{"FedPHA (ours)": ViewPersonal, "PromptFL": ViewNotStated,
			"": ViewNotStated} {
			if got := c.View(map[string]string{"method": label, "tokens": "1"}); got != want {
				t.Errorf("%s: view of %q is %q, want %s", from, label, got, want)
			}
		}
	}
	var none *PaperTable
	if none.View(nil) != "" || sweep(t, grid, SweepOptions{}).Card.View(map[string]string{"method": "PromptFL"}) != "" {
		t.Error("a view that no card gives")
	}
	if text, err := sweep(t, grid, SweepOptions{}).YAML(); err != nil || strings.Contains(string(text), "why:") {
		t.Errorf("%v: a card without views gets some:\n%s", err, text)
	}
}

// A card may show several metrics side by side. Metrics that no table shows, and unknown metrics, are errors.
func TestCardMetrics(t *testing.T) {
	with := func(columns, metrics string) string {
		return strings.NewReplacer("  numbers:", "  metrics: "+metrics+"\n  numbers:", "  columns: [tokens]",
			"  columns: ["+columns+"]").Replace(grid)
	}
	s := sweep(t, with("tokens, metric", "[set:base, hm]"), SweepOptions{})
	plan, err := parsePlan("sweep.json", planOf(t, s))
	if err != nil || !slices.Equal(plan.Card.Metrics, []string{"set:base", "hm"}) {
		t.Errorf("%v, %+v", err, plan.Card)
	}
	for text, word := range map[string]string{with("tokens", "[hm]"): "add metric to card.rows or card.columns",
		with("tokens, metric", "[hmm]"): "unknown metric \"hmm\"", with("tokens, metric",
			"[]"): "unknown axis \"metric\""} {
		if _, err := LoadSweep(file(t, text), SweepOptions{}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not say %q", err, word)
		}
	}
}

// Figures of kind pca may have a panel for each class, others may not. A note says three things.
func TestCardPanelsAndNotes(t *testing.T) {
	const note = "paper: Ten., here: Two., why: Time., keys: [train.rounds]"
	with := func(lines string) string { return strings.Replace(grid, "  numbers:", lines+"\n  numbers:", 1) }
	s := sweep(t, with("  figures: [{kind: pca, panel: class}]\n  differs: [{"+note+"}]\n"+
		"  left_out: [{what: a, why: b}]"), SweepOptions{})
	if got := s.Card.Differs[0].String(); got != "The paper: Ten. Here: Two. Why: Time." {
		t.Error(got)
	}
	for lines, word := range map[string]string{
		"  figures: [{kind: curves, panel: class}]":  "unknown axis \"class\"",
		"  differs: [{paper: Ten., here: Two.}]":     "card.differs: entry 1: paper, here and why may not be empty",
		"  differs: [Two rounds.]":                   "card.differs",
		"  left_out: [{what: a, why: b}, {what: a}]": "card.left_out: entry 2",
	} {
		_, err := LoadSweep(file(t, with(lines)), SweepOptions{})
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not say %q", err, word)
		}
	}
}

func TestCardNumbers(t *testing.T) {
	c := sweep(t, grid, SweepOptions{Smoke: true}).Card
	for _, n := range []struct {
		method, tokens string
		mean, std      float64
		hasStd, ok     bool
	}{
		{"PromptFL", "1", 91.2, 0.3, true, true}, {"PromptFL", "Average", 80, 0, false, true}, {"FedPHA (ours)", "2.0",
			70.5, 0, false, true},
		{"PromptFL", "3", 0, 0, false, false}, {"CoOp", "1", 0, 0, false, false},
	} {
		mean, std, hasStd, ok := c.Number(map[string]string{"method": n.method, "tokens": n.tokens})
		if mean != n.mean || std != n.std || hasStd != n.hasStd || ok != n.ok {
			t.Errorf("%+v: %v %v %v %v", n, mean, std, hasStd, ok)
		}
	}
	if _, _, _, ok := c.Number(map[string]string{"method": "PromptFL"}); ok {
		t.Error("a number for a row")
	}
	var none *PaperTable
	if _, _, _, ok := none.Number(nil); ok {
		t.Error("a number without a card")
	}
	one := sweep(t, "data: {set: synthetic}\ncard: {numbers: {values: 3.5}}", SweepOptions{}).Card
	if mean, _, _, ok := one.Number(nil); !ok || mean != 3.5 {
		t.Error("the one number of a card without axes")
	}
	domain := sweep(t, "data: {set: synthetic}\ncard: {columns: [domain], numbers: {by: [domain], "+
		"values: {art: 1, Average: 2}}}", SweepOptions{}).Card
	if mean, _, _, ok := domain.Number(map[string]string{"domain": "art"}); !ok || mean != 1 {
		t.Error("a number of a domain")
	}
}

func TestSweepErrors(t *testing.T) {
	t.Setenv("PROMPTFED_DATA_SET", "synthetic")
	axis := "{name: a, key: train.lr, values: [0.1, 0.2]}"
	in := func(axes, rest string) string { return "sweep: {axes: [" + axes + "]" + rest + "}\n" }
	for _, c := range []struct {
		text string
		o    SweepOptions
		say  []string
	}{
		{"swep: {}", SweepOptions{}, []string{"unknown key swep"}},
		{"sweep: {axis: []}", SweepOptions{}, []string{"sweep.axis", "did you mean sweep.axes?"}},
		{in("{name: a, key: train.lr, value: [1]}", ""), SweepOptions{}, []string{"sweep.axes[0].value", "values"}},
		{in("{name: a, points: [{label: x, sets: {}}]}", ""), SweepOptions{}, []string{"sweep.axes[0].points[0].sets",
			"label, set"}},
		{in("3", ""), SweepOptions{}, []string{"sweep.axes[0]", "expected keys"}},
		{in("{name: a}", ""), SweepOptions{}, []string{"axis a", "no points"}},
		{in("{name: a, values: [1]}", ""), SweepOptions{}, []string{"axis a", "no key"}},
		{in("{name: a, key: train.lr, values: [[1]]}", ""), SweepOptions{}, []string{"single"}},
		{in("{name: a, key: train.lr, values: [1], points: [{label: x}]}", ""), SweepOptions{}, []string{"axis a",
			"one of these forms"}},
		{in("{key: train.lr, values: [1]}", ""), SweepOptions{}, []string{"sweep.axes[0]", "no name"}},
		{in("{name: seed, key: train.lr, values: [1]}", ""), SweepOptions{}, []string{"seed", "another name"}},
		{in("{name: metric, key: train.lr, values: [1]}", ""), SweepOptions{}, []string{"metric", "another name"}},
		{in("{name: a, key: seed, values: [1]}", ""), SweepOptions{}, []string{"sweep.seeds"}},
		{in(axis+","+axis, ""), SweepOptions{}, []string{"two axes", "a"}},
		{in("{name: a, points: [{label: x}, {label: x}]}", ""), SweepOptions{}, []string{"axis a", `two points`,
			`"x"`}},
		{in("{name: a, points: [{set: {}}]}", ""), SweepOptions{}, []string{"point 1 has no label"}},
		{in("{name: a, points: [{label: Average}]}", ""), SweepOptions{}, []string{"Average"}},
		{in(`{name: a, points: [{label: "x\ny"}]}`, ""), SweepOptions{}, []string{`"x\ny"`, "one line"}},
		{in(`{name: "a\ny", points: [{label: x}]}`, ""), SweepOptions{}, []string{`"a\ny"`, "one line"}},
		{in("{name: a, points: [{label: y, set: {'options.x[0]': 1}}]}", ""), SweepOptions{}, []string{"cell y/seed-1",
			"options.x[0]", "has no value"}},
		{in("{name: a, points: [{label: '?'}]}", ""), SweepOptions{}, []string{"folder"}},
		{in("{name: a, points: [{label: plots}]}", ""), SweepOptions{}, []string{"plots", "report"}},
		{in("{name: a, points: [{label: A b}, {label: a-B}]}", ""), SweepOptions{}, []string{"two cells",
			"a-b/seed-1"}},
		{in(axis, ", seeds: []"), SweepOptions{}, []string{"sweep.seeds", "empty"}},
		{in(axis, ", seeds: [1, 1]"), SweepOptions{}, []string{"seed 1", "twice"}},
		{in(axis, ", seeds: [-1]"), SweepOptions{}, []string{"-1"}},
		{in(axis, ", skip: [{b: x}]"), SweepOptions{}, []string{"sweep.skip[0]", "matches nothing", `"b"`}},
		{in(axis, ", skip: [{a: 0.3}]"), SweepOptions{}, []string{"sweep.skip[0]", "matches nothing", "0.3",
			"0.1, 0.2"}},
		{in(axis, ", skip: [{}]"), SweepOptions{}, []string{"sweep.skip[0]"}},
		{in(axis, ", skip: [{a: [0.1, 0.2]}]"), SweepOptions{}, []string{"leaves no cell"}},
		{in(axis, ", points: {b: {x: {name: y}}}"), SweepOptions{}, []string{"sweep.points", `"b"`, "use a"}},
		{in(axis, ", set: {options: {x: 1}}, points: {a: {0.2: {options.y: x}}}"), SweepOptions{},
			[]string{"sweep.points", "options.y", "sweep.set"}},
		{in(axis, "") + "card: {control: x}", SweepOptions{}, []string{"card.control", `"x"`}},
		{in(axis, "") + "smoke: {keep: {a: 0.3}}", SweepOptions{}, []string{"smoke.keep", "0.3", "0.1, 0.2"}},
		{in(axis, "") + "smoke: {keep: {b: 0.3}}", SweepOptions{}, []string{"smoke.keep", `"b"`, "use a"}},
		{in(axis, "") + "smoke: {seeds: []}", SweepOptions{}, []string{"smoke.seeds", "empty"}},
		{in(axis, "") + "smoke: {round: 1}", SweepOptions{}, []string{"smoke.round", "keep, points, seeds, set"}},
		{in(axis, "") + "smoke: {points: {a: {0.3: {name: x}}}}", SweepOptions{}, []string{"smoke.points", "0.3",
			"0.1, 0.2"}},
		{in(axis, "") + "smoke: {set: {options: {x: 1}}, points: {a: {0.2: {options.y: x}}}}", SweepOptions{},
			[]string{"smoke.points", "options.y", "smoke.set"}},
		{in(axis, ""), SweepOptions{Smoke: true}, []string{"smoke", "--smoke"}},
		{in(axis, ""), SweepOptions{Keep: map[string][]string{"a": {"x"}}}, []string{"--keep", `"x"`, "0.1, 0.2"}},
		{in(axis, ""), SweepOptions{Sets: []string{"train.foo=1"}}, []string{"train.foo"}},
		{in("{name: a, points: [{label: x}, {label: y, set: {train.foo: 1}}]}", ""), SweepOptions{},
			[]string{"cell y/seed-1", "train.foo", "lr"}},
		{in("{name: a, points: [{label: x}, {label: y, set: {train.rounds: 0}}]}", ""), SweepOptions{},
			[]string{"cell y/seed-1", "rounds"}},
		{in("{name: a, points: [{label: x}, {label: y, set: {method: fedfoo}}]}", ""), SweepOptions{},
			[]string{"cell y/seed-1", "fedfoo"}},
		{in("{name: a, points: [{label: x}, {label: y, set: {options.foo: 1}}]}", ""), SweepOptions{},
			[]string{"cell y/seed-1", "foo"}},
		{in(axis+",{name: b, key: train.epochs, values: [1, 2, 3]}", ""), SweepOptions{most: 5},
			[]string{"more than 5 cells"}},
		{"sweep: {seeds: [1, 2, 3, 4, 5, 6]}", SweepOptions{most: 5}, []string{"more than 5 cells"}},
		{in(axis, "") + "card: {row: [a]}", SweepOptions{}, []string{"card.row", "rows"}},
		{in(axis, "") + "card: {rows: [b]}", SweepOptions{}, []string{"card.rows", `"b"`, "domain, set or a"}},
		{in(axis, "") + "card: {rows: [a], columns: [a]}", SweepOptions{}, []string{`"a"`, "twice"}},
		{in(axis, "") + "card: {rows: [a, domain], columns: [metric], metrics: [last, f1]}", SweepOptions{},
			[]string{"axes domain and metric", "no number for both"}},
		{in(axis, "") + "card: {metric: accuraci}", SweepOptions{}, []string{"card.metric", "docs/evaluation.md"}},
		{in(axis, "") + "card: {metric: 'domain:'}", SweepOptions{}, []string{"card.metric", "unknown metric"}},
		{in(axis, "") + "card: {average: rows}", SweepOptions{}, []string{"card.average", "row, column or both"}},
		{in(axis, "") + "card: {views: {why: x}}", SweepOptions{}, []string{"card.views.default",
			"global, personal or unsaid"}},
		{in(axis, "") + "card: {views: {default: local, why: x}}", SweepOptions{}, []string{"card.views.default",
			`"local"`}},
		{in(axis, "") + "card: {views: {default: unsaid}}", SweepOptions{}, []string{"card.views.why", "missing"}},
		{in(axis, "") + "card: {views: {default: unsaid, by: a, why: x}}", SweepOptions{}, []string{"card.views",
			"both or neither"}},
		{in(axis, "") + "card: {views: {default: unsaid, by: b, labels: {x: global}, why: x}}", SweepOptions{},
			[]string{"card.views.by", `"b"`}},
		{in(axis, "") + "card: {views: {default: unsaid, by: a, labels: {0.3: global}, why: x}}", SweepOptions{},
			[]string{"card.views.labels.0.3", "0.1, 0.2"}},
		{in(axis, "") + "card: {views: {default: unsaid, by: a, labels: {0.1: own}, why: x}}", SweepOptions{},
			[]string{"card.views.labels.0.1", `"own"`}},
		{in(axis, "") + "card: {views: {view: unsaid}}", SweepOptions{}, []string{"card.views.view", "default"}},
		{in(axis, "") + "card: {numbers: {unit: percents}}", SweepOptions{}, []string{"card.numbers.unit", "percent"}},
		{in(axis, "") + "card: {numbers: {by: [b]}}", SweepOptions{}, []string{"card.numbers.by", `"b"`}},
		{in(axis, "") + "card: {numbers: {by: [a], values: {0.3: 1}}}", SweepOptions{}, []string{"card.numbers.values",
			`"0.3"`, "0.1, 0.2, Average"}},
		{in(axis, "") + "card: {numbers: {by: [a], values: {0.1: {0.2: 1}}}}", SweepOptions{},
			[]string{"card.numbers.values.0.1", "number is expected"}},
		{in(axis, "") + "card: {numbers: {by: [a], values: 3}}", SweepOptions{}, []string{"labels of axis a"}},
		{in(axis, "") + "card: {numbers: {by: [a], values: {0.1: [1, 2, 3]}}}", SweepOptions{}, []string{"3 numbers"}},
		{in(axis, "") + "card: {numbers: {by: [a], values: {0.1: .nan}}}", SweepOptions{}, []string{"NaN"}},
		{in(axis, "") + "card: {numbers: {by: [a], values: {0.1: [1, -2]}}}", SweepOptions{}, []string{"-2"}},
		{in(axis, "") + "card: {numbers: {by: [a], values: {0.1: high}}}", SweepOptions{}, []string{"high"}},
		{in(axis, "") + "card: {numbers: {by: [a], values: {0.1: }}}", SweepOptions{}, []string{"number is expected"}},
		{in(axis, "") + "card: {no_numbers: why, numbers: {by: [a], values: {0.1: 1}}}", SweepOptions{},
			[]string{"no_numbers"}},
		{in(axis, "") + "card: {figures: [{kind: pie}]}", SweepOptions{}, []string{"figure 1", "pie", "curves"}},
		{in(axis, "") + "card: {figures: [{kind: curves, x: a}]}", SweepOptions{}, []string{"figure 1", "x", `"a"`,
			"bytes or time"}},
		{in(axis, "") + "card: {metric: \"bytes-to:\"}", SweepOptions{}, []string{"card.metric", "unknown metric"}},
		{in(axis, ""), SweepOptions{Sets: []string{"train.lr=0.3"}},
			[]string{"--set train.lr: axis a sets this key", "--keep a=LABEL"}},
		{in("{name: a, points: [{label: x, set: {options: {tokens: 4}}}, {label: y, set: {options: {tokens: 8}}}]}",
			""),
			SweepOptions{Sets: []string{"options.tokens=2"}}, []string{"--set options.tokens: axis a sets this key"}},
		{in(axis, "") + "card: {figures: [{}]}", SweepOptions{}, []string{"figure 1", "kind is missing"}},
		{in(axis, "") + "card: {figures: [{kind: heatmap, x: b}]}", SweepOptions{}, []string{"figure 1", "x", `"b"`}},
		{"a: &x {b: *x}", SweepOptions{}, []string{"anchor"}},
	} {
		_, err := LoadSweep(file(t, c.text), c.o)
		goldentest.WantError(t, err, append(c.say, "c.yaml")...)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than one line: %v", c.text, err)
		}
	}
	_, err := LoadSweep(filepath.Join(t.TempDir(), "none.yaml"), SweepOptions{})
	goldentest.WantError(t, err, "none.yaml")
	big := filetest.Write(t, filepath.Join(t.TempDir(), "big.yaml"), make([]byte, maxFile+1))
	_, err = LoadSweep(big, SweepOptions{})
	goldentest.WantError(t, err, "big.yaml", "bytes")
}

// The points of an axis may be in a file beside the sweep, and the resolved sweep contains them.
func TestAxisOfFile(t *testing.T) {
	path := file(t, "data: {set: synthetic}\nsweep: {axes: [{name: method, file: points.yaml}]}\n"+
		"card: {rows: [method]}\n")
	points := filepath.Join(filepath.Dir(path), "points.yaml")
	write := func(text string) {
		filetest.Write(t, points, text)
	}
	write("- {label: A, set: {method: promptfl}}\n- {label: B, set: {method: fedpha, train.lr: 0.5}}\n")
	s, err := LoadSweep(path, SweepOptions{})
	goldentest.NoError(t, err)
	if len(s.Cells) != 2 || s.Cells[1].Config.Method != "fedpha" || s.Cells[1].Config.Train.LR != 0.5 ||
		s.Cells[1].Labels["method"] != "B" {
		t.Errorf("%+v", s.Cells)
	}
	text := yamlOf(t, s)
	again, err := ParseSweep("elsewhere.yaml", text, SweepOptions{})
	if err != nil || len(again.Cells) != 2 || strings.Contains(string(text), "points.yaml") {
		t.Errorf("%v\n%s", err, text)
	}
	for text, words := range map[string][]string{
		"- {label: A, sets: {}}": {"points.yaml", "sets", "{label, set}"}, "label: A": {"points.yaml", "{label, set}"},
		"- {set: {}}": {"axis method", "point 1 has no label"},
	} {
		write(text)
		_, err := LoadSweep(path, SweepOptions{})
		goldentest.WantError(t, err, words...)
	}
	if err := os.Remove(points); err != nil {
		t.Fatal(err)
	}
	_, err = LoadSweep(path, SweepOptions{})
	goldentest.WantError(t, err, "axis method", points)
	_, err = LoadSweep(file(t, "sweep: {axes: [{name: a, file: x, key: train.lr}]}"), SweepOptions{})
	goldentest.WantError(t, err, "axis a", "file, and points or values")
}

// The output of YAML makes the same cells, and CheckSame names other differences.
func TestResolvedSweep(t *testing.T) {
	o := SweepOptions{Smoke: true, Sets: []string{"options={tokens: 3}", "options.init_std=0.75", "runtime.workers=3"},
		Keep:  map[string][]string{"method": {"PromptFL", "FedPHA (ours)"}},
		Seeds: []uint64{8, 9}}
	text := strings.ReplaceAll(strings.ReplaceAll(grid, "method: fedpha, options: {projector: eq9}", "method: coop"),
		"options.ratio: 0.6", "data: {generator: {train: 3}}")
	s := sweep(t, text, o)
	if got := fmt.Sprint(s.Cells[0].Config.Options); got != "map[init_std:0.75 tokens:3]" {
		t.Errorf("options %s", got)
	}
	b := yamlOf(t, s)
	dir := t.TempDir()
	filetest.Write(t, filepath.Join(dir, SweepYAML), b)
	t.Setenv("PROMPTFED_TRAIN_MOMENTUM", "0.5")
	all := func(string) bool { return true }
	if changed, err := s.CheckSame(dir, all); err != nil || changed != nil {
		t.Error(changed, err)
	}
	again := sweep(t, string(b), SweepOptions{Still: true})
	if folders(again) != folders(s) || again.Card == nil || !again.Smoke {
		t.Errorf("%s\n%s", folders(again), b)
	}
	for i, c := range s.Cells {
		if got, want := fmt.Sprintf("%+v", again.Cells[i]), fmt.Sprintf("%+v", c); got != want {
			t.Errorf("%s\n%s", got, want)
		}
	}
	for _, c := range []struct {
		change func(o *SweepOptions)
		text   string
		say    []string
	}{
		{func(o *SweepOptions) { o.Seeds = []uint64{8} }, text, []string{"seed-9 has results there", "not planned"}},
		{func(o *SweepOptions) { o.Smoke = false }, text, []string{"smoke"}},
		{func(o *SweepOptions) { o.Sets = append(o.Sets, "name=other") }, text, []string{"table", "other"}},
		{func(o *SweepOptions) { o.Keep = nil }, text, []string{"fedpha-ours/1/seed-8 has results there"}},
		{func(o *SweepOptions) { o.Sets = append(o.Sets, "train.rounds=4") }, text, []string{"promptfl/1/seed-8",
			"train.rounds is 2 there, 4 now"}},
		{func(o *SweepOptions) { o.Sets = append(o.Sets, "options.tokens=4") }, text, []string{
			"options.tokens is 3 there, 4 now"}},
		{func(o *SweepOptions) {}, strings.ReplaceAll(text, `tokens: ["2.0", 3]`, "tokens: [3]"), nil},
		{func(o *SweepOptions) { o.Sets = append(o.Sets, "runtime.workers=4") }, text, nil},
		{func(o *SweepOptions) {}, strings.ReplaceAll(text, "91.2", "92.1"), nil},
	} {
		o := o
		o.Sets = slices.Clone(o.Sets)
		c.change(&o)
		o.Still = true
		if _, err := sweep(t, c.text, o).CheckSame(dir, all); len(c.say) == 0 && err != nil {
			t.Error(err)
		} else if len(c.say) > 0 {
			goldentest.WantError(t, err, append(c.say, "cannot resume")...)
		}
	}
	// Cells without results may change.
	o.Sets, o.Still = append(o.Sets, "options.tokens=4"), true
	other := sweep(t, text, o)
	changed, err := other.CheckSame(dir, func(folder string) bool { return false })
	if err != nil || strings.Join(changed, " ") != folders(other) {
		t.Errorf("%v %v, want %s", changed, err, folders(other))
	}
	other = sweep(t, "name: table\ndata: {set: synthetic}\nsweep: {axes: [{name: rate, key: train.lr, values: "+
		"[0.1]}]}\nsmoke: {}\n", SweepOptions{Smoke: true})
	_, err = other.CheckSame(dir, all)
	goldentest.WantError(t, err, "axes method (PromptFL, FedPHA (ours))", "rate (0.1) now")
	filetest.Write(t, filepath.Join(dir, SweepYAML), "x: [")
	_, err = s.CheckSame(dir, all)
	goldentest.WantError(t, err, "cannot resume: "+dir, "use another --out")
}

// sweep.json reads as it was written. Cells outside the folder are an error.
func TestPlan(t *testing.T) {
	dir := t.TempDir()
	s := sweep(t, grid, SweepOptions{})
	b := planOf(t, s)
	for _, part := range []string{`"folder": "promptfl/1/seed-1"`, `"no_numbers"`, `"1": [`, `"Average": 80`} {
		if strings.Contains(string(b), part) != (part != `"no_numbers"`) {
			t.Errorf("%s: %s", part, b)
		}
	}
	path := filetest.Write(t, filepath.Join(dir, PlanFile), b)
	p, err := ReadPlan(dir)
	goldentest.NoError(t, err)
	if again, err := p.JSON(); err != nil || string(again) != string(b) {
		t.Errorf("%v\n%s\n%s", err, again, b)
	}
	if mean, std, _, ok := p.Card.Number(map[string]string{"method": "PromptFL", "tokens": "1"}); !ok || mean != 91.2 ||
		std != 0.3 {
		t.Error("the card lost a number")
	}
	for text, say := range map[string]string{"{": "promptfed sweep", `{"cells":[{"folder":"../x"}]}`: "../x",
		`{"axes":[{"name":"a","labels":["x"]}],"cells":[{"folder":"y","labels":{"a":"y"}}]}`: `"y"`} {
		_, err := parsePlan(path, []byte(text))
		goldentest.WantError(t, err, "sweep.json", say)
	}
	_, err = ReadPlan(t.TempDir())
	goldentest.WantError(t, err, "sweep.json")
}

// Any file is a sweep with distinct folders below one folder, which is the same after writing and reading, or an error
// in one line.
func FuzzSweep(f *testing.F) {
	f.Add([]byte(grid))
	f.Add([]byte(text))
	f.Add([]byte("sweep: {axes: [{name: a, key: options, values: [{x: 1}]}], set: {options: {a: {b: [1]}}, " +
		"options.a.b: 2}}"))
	f.Add([]byte("x: &a {k: 1}\nsweep: {axes: [{name: a, points: [{label: 0x10, set: {<<: *a}}]}]}\ncard: {numbers: " +
		"{by: [a], values: {0x10: [1e3, .5]}}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o := SweepOptions{most: 40, Still: true, Smoke: strings.Contains(string(b), "smoke")}
		s, err := ParseSweep("f.yaml", b, o)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, c := range s.Cells {
			if !filepath.IsLocal(c.Folder) || seen[c.Folder] || len(c.Labels) != len(s.Axes) {
				t.Errorf("cell %+v", c)
			}
			seen[c.Folder] = true
		}
		text := yamlOf(t, s)
		again, err := ParseSweep("g.yaml", text, SweepOptions{most: 40, Still: true})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if folders(again) != folders(s) || again.Name != s.Name {
			t.Fatalf("%s\n%s\n%s", folders(s), folders(again), text)
		}
		for i, c := range s.Cells {
			if got, want := fmt.Sprintf("%+v", again.Cells[i].Config), fmt.Sprintf("%+v", c.Config); got != want {
				t.Fatalf("%s\n%s", got, want)
			}
		}
		if j, err := s.Plan().JSON(); err != nil {
			t.Fatal(err)
		} else if _, err := parsePlan("sweep.json", j); err != nil {
			t.Fatalf("%v\n%s", err, j)
		}
	})
}

// Any sweep.json is a plan that is the same after writing and reading, or an error in one line.
func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{"name":"x","axes":[{"name":"a","labels":["b"]}],"seeds":[1],
		"cells":[{"folder":"b/seed-1","labels":{"a":"b"},"seed":1}]}`))
	f.Add([]byte(`{"card":{"rows":["a"],"numbers":{"by":["a"],"values":{"b":[1,2],"c":3}}},"cells":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePlan("sweep.json", b)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		once, err := p.JSON()
		goldentest.NoError(t, err)
		again, err := parsePlan("sweep.json", once)
		if err != nil {
			t.Fatalf("%v\n%s", err, once)
		}
		if twice, err := again.JSON(); err != nil || string(twice) != string(once) {
			t.Fatalf("%v\n%s\n%s", err, once, twice)
		}
	})
}

// A file of a single run with an axis of the command line has one cell for each value; two axes make all combinations.
func TestGridOfTheCommandLine(t *testing.T) {
	const run = "name: x\nmethod: promptfl\ndata: {set: synthetic}\n"
	s := sweep(t, run, SweepOptions{Grid: []string{"train.lr=0.01,0.05", "method=promptfl,coop"}})
	if got := folders(s); got != "0.01/promptfl/seed-1 0.01/coop/seed-1 0.05/promptfl/seed-1 0.05/coop/seed-1" {
		t.Error(got)
	}
	if c := s.Cells[3]; c.Config.Train.LR != 0.05 || c.Config.Method != "coop" || c.Labels["lr"] != "0.05" {
		t.Errorf("%+v", c)
	}
	s = sweep(t, run, SweepOptions{Grid: []string{"partition.kind=iid", "attack.kind=scaled", "partition.seed=3"}})
	if l := s.Cells[0].Labels; l["kind"] != "iid" || l["attack.kind"] != "scaled" || l["partition.seed"] != "3" {
		t.Errorf("labels %v", l)
	}
	for grid, say := range map[string]string{"train.lr": "--grid train.lr: expected key=value,value",
		"=1": "expected key", "train.lr=[": "expected key", "train.lr=": "expected key",
		"train.rounds=010,020": "010 begins with 0",
		"train.lrr=1":          "did you mean train.lr?", "train.lr=fast": "number"} {
		_, err := LoadSweep(file(t, run), SweepOptions{Grid: []string{grid}})
		goldentest.WantError(t, err, say)
	}
}
