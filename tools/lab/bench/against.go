package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// torchScript is the hand-written training step in PyTorch.
const torchScript = "tools/golden/step_torch.py"

// PyTorchReport compares the training step with a hand-written step in PyTorch. The two take turns. Times are in
// seconds.
type PyTorchReport struct {
	Torch   string          `json:"torch"` // version
	Results []PyTorchResult `json:"results"`
}

// PyTorchResult is the result for one class list and one number of threads.
type PyTorchResult struct {
	Classes string             `json:"classes"`
	Threads int                `json:"threads"`
	Step    Timing             `json:"step"`
	Torch   map[string]Timing  `json:"pytorch"` // by mode: eager, compile
	Ratio   map[string]float64 `json:"ratio"`   // PyTorch's time divided by the step's time
	// GradientError is the largest difference between the two gradients, divided by the largest entry.
	GradientError float64 `json:"gradient_error"`
}

// ComparePyTorch measures the step and the PyTorch step of torchScript in turns, on the same random weights, prompts
// and images. The PyTorch step runs in the given Python interpreter. The working folder must be a checkout of the
// source, or lie below one.
func ComparePyTorch(ctx context.Context, o Options, python string) (r PyTorchReport, err error) {
	if o, err = o.complete(); err != nil {
		return r, err
	}
	if o.Backbone != nil {
		return r, errors.New("--against measures random weights: leave --backbone out")
	}
	script, err := filepath.Abs(torchScript)
	if err == nil {
		_, err = os.Stat(script)
	}
	if err != nil {
		return r, fmt.Errorf("%w: run promptfed bench --against in a checkout of promptfed", err)
	}
	t, remove, err := openTower(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	for _, name := range o.Classes {
		for _, threads := range o.Threads {
			res, version, err := o.against(ctx, t, find(name), threads, python, script)
			if err != nil {
				return r, fmt.Errorf("%s, %d threads: %w", name, threads, err)
			}
			r.Torch, r.Results = version, append(r.Results, res)
		}
	}
	return r, nil
}

func (o Options) against(ctx context.Context, t tower, set, threads int, python, script string) (r PyTorchResult,
	version string, err error) {
	var open closer
	defer func() { err = errors.Join(err, open.close()) }()
	session := o.Session
	session.IntraThreads = threads
	classes := sets[set].classes.Names()
	s, err := promptFL(t, classes, o.Tokens, session, nil)
	if err != nil {
		return r, "", err
	}
	open.add(s.close)
	if err := s.export(t); err != nil {
		return r, "", err
	}
	torch, err := startTorch(ctx, python, script, t.dir, threads)
	if err != nil {
		return r, "", err
	}
	open.add(torch.close)
	want, err := gradients(ctx, t, classes, o.Tokens, session)
	if err != nil {
		return r, "", err
	}
	got, err := torch.gradient(filepath.Join(t.dir, "gradient"), want.Shape)
	if err != nil {
		return r, "", err
	}
	r = PyTorchResult{Classes: sets[set].name, Threads: threads, Torch: map[string]Timing{},
		Ratio: map[string]float64{}, GradientError: distance(got, want)}
	if r.GradientError > 1e-3 {
		return r, "", fmt.Errorf("the gradients of the two steps differ by %.1g: they are not the same step",
			r.GradientError)
	}
	ours := &contestant{what: "step", run: s.run}
	all := []*contestant{ours}
	for _, mode := range torch.Modes {
		all = append(all, &contestant{what: "PyTorch " + mode,
			run: func(context.Context) error { return torch.ask(mode) }})
	}
	if err := o.interleave(ctx, fmt.Sprintf("%s, threads %d", r.Classes, threads), all...); err != nil {
		return r, "", err
	}
	r.Step = summary(ours.seconds)
	for i, mode := range torch.Modes {
		r.Torch[mode], r.Ratio[mode] = summary(all[i+1].seconds), ratio(all[i+1], ours)
	}
	return r, torch.Version, nil
}

// export writes the inputs of a step, except the tower's weights, for torchScript.
func (s *step) export(t tower) error {
	m, lengths := tensor.Map{}, []int64{}
	var ids []int
	for _, class := range s.set.IDs {
		ids = append(ids, class...)
		lengths = append(lengths, int64(len(class)))
	}
	start, err := t.embed([]int{t.sos})
	if err != nil {
		return err
	}
	suffix, err := t.embed(ids)
	if err != nil {
		return err
	}
	n := s.client.Train.Len()
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	batch, err := s.client.Train.Batch(rows, nil)
	if err != nil {
		return err
	}
	m["ctx"], m["image"], m["label"] = s.order.Shared["ctx"], batch["image"], batch["label"]
	m["start"], m["suffix"] = tensor.Of(start, 1, t.text.Width), tensor.Of(suffix, len(ids), t.text.Width)
	m["lengths"] = tensor.OfInts(lengths, len(lengths))
	m["scale"], m["heads"] = tensor.Of([]float32{float32(t.scale)}, 1), tensor.OfInts([]int64{int64(t.text.Heads)}, 1)
	return safetensors.WriteFile(filepath.Join(t.dir, "step.safetensors"), m, nil)
}

// torch is a process of torchScript.
type torch struct {
	Version string   `json:"torch"`
	Modes   []string `json:"modes"`

	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr strings.Builder
}

func startTorch(ctx context.Context, python, script, dir string, threads int) (*torch, error) {
	p := &torch{cmd: exec.CommandContext(ctx, python, script, dir, strconv.Itoa(threads))}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("--against %s: %w", python, err)
	}
	p.out = bufio.NewReader(out)
	line, err := p.answer()
	if err == nil {
		err = json.Unmarshal([]byte(line), p)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// answer reads the next line from the process.
func (p *torch) answer() (string, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.cmd.Wait()
		last := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
		return "", fmt.Errorf("%s: %s: PyTorch and NumPy must be installed for it", strings.Join(p.cmd.Args[:2], " "),
			last[len(last)-1])
	}
	return line, nil
}

// ask sends one command to the process.
func (p *torch) ask(what string) error {
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		return err
	}
	_, err := p.answer()
	return err
}

// gradient returns the gradient of the prompt, which the process writes to a file.
func (p *torch) gradient(file string, shape []int) (*tensor.Tensor, error) {
	if err := p.ask("gradient " + file); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(file)
	g := tensor.New(shape...)
	if err == nil && len(raw) != 4*len(g.Data) {
		err = fmt.Errorf("%s holds %d bytes, not a gradient %v", file, len(raw), shape)
	}
	if err != nil {
		return nil, err
	}
	for i := range g.Data {
		g.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return g, nil
}

func (p *torch) close() error {
	p.in.Close()
	p.cmd.Wait()
	return nil
}

// Table returns the report as text.
func (r PyTorchReport) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the step against one written by hand in PyTorch %s: shared prefix, no padding; %d cores, "+
		"%s/%s\n\n", r.Torch, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "classes\tthreads\tstep ms (min-max)\tPyTorch\tms (min-max)\tours faster\tgradients differ")
	for _, x := range r.Results {
		for _, mode := range slices.Sorted(maps.Keys(x.Torch)) {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%.2fx\t%.0e\n", x.Classes, x.Threads, ms(x.Step), mode,
				ms(x.Torch[mode]), x.Ratio[mode], x.GradientError)
		}
	}
	w.Flush()
	fmt.Fprintln(&b, "times are medians; \"faster\" is the median of ratios within a turn")
	return b.String()
}

// Missed returns no targets, because PyTorch's time depends on how PyTorch was built.
func (PyTorchReport) Missed() []Target { return nil }
