package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// parts are the parts of ComparePyTorch: steps of a text prompt and of an image prompt, and features of images.
var parts = []string{"text", "image", "features"}

// Largest difference of two gradients in float32 that stand for the same step.
const sameGradient = 1e-3

// rivals are the processes of step_torch.py, one for each mode: a capture fails where torch.compile ran before.
type rivals struct {
	start    func() (*opponent, error)
	byMode   map[string]*opponent
	deadline time.Time
	slow     time.Duration // limit of a command where torch.compile runs
}

// prepared returns the process of a rival's mode with the workload open and the rival's form warmed up, and the limit
// of its next command. A process that no longer answers is replaced.
func (r *rivals) prepared(rival *rival, duel *duel, opening string) (*opponent, time.Duration, error) {
	opponent, limit := r.byMode[rival.mode], time.Minute
	if rival.mode == "compiled" {
		limit = r.slow
	}

	if limit = min(limit, time.Until(r.deadline)); limit <= 0 {
		return nil, 0, errors.New("no time left")
	}

	if opponent == nil || opponent.dead {
		var err error
		if opponent, err = r.start(); err != nil {
			return nil, 0, err
		}
		r.byMode[rival.mode] = opponent
	}

	if workload := duel.name + opening; opponent.workload != workload {
		if _, err := opponent.within(limit, opening); err != nil {
			return nil, 0, err
		}
		opponent.workload, opponent.forms = workload, nil
	}

	if !slices.Contains(opponent.forms, rival.form) {
		if _, err := opponent.within(limit, "prepare "+rival.what()); err != nil {
			return nil, 0, err
		}
		opponent.forms = append(opponent.forms, rival.form)
	}

	return opponent, limit, nil
}

// step returns the seconds of a step of a rival.
func (r *rivals) step(rival *rival, duel *duel, opening string) (seconds float64, err error) {
	process, limit, err := r.prepared(rival, duel, opening)
	if err != nil {
		return 0, err
	}

	said, err := process.within(limit, "step "+rival.what())
	if err == nil {
		_, err = fmt.Sscan(said, &seconds)
	}

	return seconds, err
}

func (r *rivals) close() {
	for _, p := range r.byMode {
		p.close()
	}
}

// rival is a form of a duel's workload that PyTorch runs in a mode.
type rival struct {
	contestant
	form, mode string
	differ     float64 // its gradient or features, from those of the reference
}

// what names the rival in commands of step_torch.py.
func (r *rival) what() string { return r.form + " " + r.mode }

// ComparePyTorch measures workloads and the same ones in PyTorch, of tools/golden/step_torch.py, in turns, on the same
// random weights, prompts and images: on the CPU the step of a text prompt, on a device also FedPHA's step of two, that
// of an image prompt and features of images, in several precisions and in all forms and modes of PyTorch. Quick leaves
// out most that needs torch.compile, and begins nothing after 200 seconds on a device. What fails or takes too long
// stands in the tables. The PyTorch side runs in Options.Python. The working folder must be a checkout of the source.
func ComparePyTorch(ctx context.Context, m *Measurement) error {
	if m.Backbone != nil {
		return errors.New("--against measures random weights: leave --backbone out")
	}

	if i := slices.IndexFunc(m.Only, func(part string) bool { return !slices.Contains(parts, part) }); i >= 0 {
		return fmt.Errorf("--only %s: the parts are %s", m.Only[i], strings.Join(parts, ", "))
	}

	if len(m.Only) == 0 {
		m.Only = parts
	}

	if len(m.Classes) == 0 && m.Session.OnDevice() && !m.Quick {
		m.lists = sets
	}

	if m.images == nil {
		m.images, m.precisions = fullBackbones, []string{"float32", "tf32", "bfloat16"}
	}

	if !m.Session.OnDevice() {
		m.precisions = []string{"float32"}
	}

	device := "cpu"
	theirs := &rivals{byMode: map[string]*opponent{}, deadline: time.Now().Add(time.Hour), slow: 10 * time.Minute}
	if m.Session.OnDevice() {
		m.threads = m.threads[:1]
		theirs.slow = 4 * time.Minute
	}

	if m.Session.OnDevice() && m.Quick {
		theirs.deadline, theirs.slow = time.Now().Add(200*time.Second), 70*time.Second
	}

	if m.Session.Provider == ort.CUDA {
		device = fmt.Sprint("cuda:", m.Session.Device)
	}

	theirs.start = func() (*opponent, error) { return startOpponent(ctx, opponents["pytorch"], m.Python, device) }
	defer theirs.close()
	first, err := theirs.start()
	if err != nil {
		return err
	}

	theirs.byMode["eager"] = first
	results := m.table([]string{"workload", "threads", "precision", "ours ms (min-max)", "PyTorch's best",
		"ms (min-max)", "ours / PyTorch", "images/s", "PyTorch", "gradients differ"},
		"times are medians of synchronised runs; \"ours / PyTorch\" is the median of ratios within a turn; "+
			"differences, also of features, are from PyTorch's first form, eager in float32")

	all := m.table([]string{"workload", "threads", "precision", "form", "mode", "ms (min-max)", "gradients differ"})
	for _, duel := range m.duels() {
		if m.Progress("weights and inputs", 0, 1); time.Now().Before(theirs.deadline) {
			if err := duel.ready(); err != nil {
				return fmt.Errorf("%s: %w", duel.name, err)
			}
		}

		m.Progress("weights and inputs", 1, 1)
		for _, threads := range m.threads {
			for _, precision := range m.precisions {
				ours, rows, err := m.duel(ctx, duel, precision, threads, theirs)
				if err != nil {
					return err
				}
				duel.report(ours, rows, precision, threads, results, all, &m.Report)
			}
		}
	}

	m.Title = fmt.Sprintf("steps and features against those written by hand in PyTorch %s, on %s; %d cores, %s",
		first.Version, cmp.Or(first.Device, device), runtime.NumCPU(), platform())
	return nil
}

// duel measures a workload on both sides, in one precision.
func (o Options) duel(ctx context.Context, duel *duel, precision string, threads int, theirs *rivals) (ours *rival,
	all []*rival, err error) {
	var open opened
	defer open.close(&err)
	label := fmt.Sprintf("%s, %s, threads %d", duel.name, precision, threads)
	o.Progress(label, 0, 1)
	ours = &rival{differ: math.NaN()}
	session := o.session(threads)
	session.Precision = precision
	var refused error
	if time.Now().After(theirs.deadline) {
		refused = errors.New("no time left")
	}

	var got *tensor.Tensor
	if refused == nil {
		var c *contestant
		if c, got, refused = duel.ours(ctx, session, &open); refused == nil {
			ours.contestant = *c
		}
	}

	for range warmUps + 1 {
		if refused == nil {
			_, refused = ours.once(ctx)
		}
	}

	ours.failed = refused
	like := cmp.Or(got, duel.want)
	opening := fmt.Sprintf("open %s %s %d %s", duel.tower, precision, threads, duel.dir)
	for _, form := range duel.forms {
		for _, mode := range o.modes(duel, form, precision) {
			rival := &rival{form: form, mode: mode, differ: math.NaN()}
			rival.own = func() (float64, error) { return theirs.step(rival, duel, opening) }
			var process *opponent
			if process, _, rival.failed = theirs.prepared(rival, duel, opening); rival.failed == nil && like != nil {
				rival.failed = duel.compare(rival, process, precision, like.Shape)
			}
			all = append(all, rival)
		}
	}

	if ours.failed == nil && duel.want != nil {
		ours.differ = distance(got, duel.want)
	}

	if ours.failed == nil && precision == "float32" && ours.differ > sameGradient {
		ours.failed = fmt.Errorf("the results of the two sides differ by %.1g: they are not the same", ours.differ)
	}

	o.Progress(label, 1, 1)
	rounds, runs := 3, 3
	if o.Session.OnDevice() || !o.Quick {
		runs = 6
	}

	contestants := []*contestant{&ours.contestant}
	for _, r := range all {
		contestants = append(contestants, &r.contestant)
	}

	return ours, all, o.bursts(ctx, label, rounds, runs, contestants...)
}

// modes returns the modes in which PyTorch runs a form of a workload.
func (o Options) modes(d *duel, form, precision string) []string {
	switch {
	case !o.Session.OnDevice():
		return []string{"eager", "compiled"}
	case !o.Quick:
		return []string{"eager", "graph", "compiled"}
	case d.compiles && form == d.forms[0] && precision == "float32":
		return []string{"eager", "graph", "compiled"}
	}

	return []string{"eager", "graph"}
}

// compare sets the difference of a rival's result, of a shape, from the reference. The first result in float32 is the
// reference.
func (d *duel) compare(rival *rival, p *opponent, precision string, shape []int) error {
	got, err := p.tensor("result "+rival.what(), filepath.Join(d.dir, "result"), shape)
	if err != nil {
		return err
	}

	if d.want == nil && precision == "float32" {
		d.want = got
	}

	if d.want != nil {
		rival.differ = distance(got, d.want)
	}

	return nil
}

// report adds a row of a workload to results, one for each rival to all, and a target.
func (d *duel) report(ours *rival, rivals []*rival, precision string, threads int, results, all *Table,
	report *Report) {
	var best, than *rival
	faster := func(a, b *rival) *rival {
		if a == nil || median(b.seconds) < median(a.seconds) {
			return b
		}
		return a
	}

	for _, rival := range append([]*rival{ours}, rivals...) {
		cells := []any{d.name, threads, precision, cmp.Or(rival.form, "ours"), rival.mode}
		if rival.failed != nil {
			all.add(append(cells, "not measured: "+rival.failed.Error(), "")...)
			continue
		}
		all.add(append(cells, rival.timing(), scientific(rival.differ))...)
		if rival == ours {
			continue
		}
		best = faster(best, rival)
		if d.than == "" || d.than == rival.mode {
			than = faster(than, rival)
		}
	}

	row := []any{d.name, threads, precision, "not measured", "none", "", "", "", "", ""}
	rate := func(x *rival) Number { return Number{float64(d.images) / median(x.seconds), "%.0f"} }
	if ours.failed == nil {
		row[3], row[7], row[9] = ours.timing(), rate(ours), scientific(ours.differ)
	}

	if best != nil {
		row[4], row[5], row[8] = best.form+", "+best.mode, best.timing(), rate(best)
	}

	if ours.failed == nil && best != nil {
		row[6] = Number{ratio(&ours.contestant, &best.contestant), "%.2f"}
	}

	results.add(row...)
	if want := d.wanted[precision]; want > 0 && ours.failed == nil && than != nil {
		got := ratio(&ours.contestant, &than.contestant)
		report.atMost(fmt.Sprintf("%s, %s: time over PyTorch's %s", d.name, precision, cmp.Or(d.than, "best")), want,
			got)
	}
}
