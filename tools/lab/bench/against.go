package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// torchScript is the hand-written training step in PyTorch.
const torchScript = "tools/golden/step_torch.py"

// ComparePyTorch measures the step and the PyTorch step of torchScript in turns, on the same random weights, prompts
// and images. The PyTorch step runs in the given Python interpreter. The working folder must be a checkout of the
// source, or lie below one.
func ComparePyTorch(ctx context.Context, o Options, python string) (r Report, err error) {
	o, lists, err := o.complete()
	if err != nil {
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
	results := Table{Columns: []string{"classes", "threads", "step ms (min-max)", "PyTorch", "ms (min-max)",
		"ours faster", "gradients differ"},
		Notes: []string{"times are medians; \"faster\" is the median of ratios within a turn"}}
	version := ""
	for _, set := range lists {
		for _, threads := range o.Threads {
			if version, err = o.against(ctx, t, set, threads, python, script, &results); err != nil {
				return r, fmt.Errorf("%s, %d threads: %w", set.name, threads, err)
			}
		}
	}
	r.Title = fmt.Sprintf("the step against one written by hand in PyTorch %s: shared prefix, no padding; %d cores, %s",
		version, runtime.NumCPU(), platform())
	r.Tables = []Table{results}
	return r, nil
}

func (o Options) against(ctx context.Context, t *tower, set classSet, threads int, python, script string,
	results *Table) (version string, err error) {
	var open opened
	defer open.close(&err)
	session, classes := o.session(threads), set.classes.Names()
	s := open.step(promptFL(t, classes, session, nil))
	if open.err != nil {
		return "", open.err
	}
	if err := s.export(t); err != nil {
		return "", err
	}
	torch, err := startTorch(ctx, python, script, t.dir, threads)
	if err != nil {
		return "", err
	}
	open.add(torch.close, nil)
	want, err := gradient(ctx, t, classes, session)
	if err != nil {
		return "", err
	}
	got, err := torch.gradient(filepath.Join(t.dir, "gradient"), want.Shape)
	if err != nil {
		return "", err
	}
	differ := distance(got, want)
	if differ > 1e-3 {
		return "", fmt.Errorf("the gradients of the two steps differ by %.1g: they are not the same step", differ)
	}
	all := []*contestant{&s.contestant}
	for _, mode := range slices.Sorted(slices.Values(torch.Modes)) {
		all = append(all, &contestant{what: mode, run: func(context.Context) error { return torch.ask(mode) }})
	}
	if err := o.steps(ctx, fmt.Sprintf("%s, threads %d", set.name, threads), all...); err != nil {
		return "", err
	}
	for _, c := range all[1:] {
		results.add(set.name, threads, s.timing(), c.what, c.timing(), factor(ratio(c, all[0])), scientific(differ))
	}
	return torch.Version, nil
}

// export writes the inputs of a step, except the tower's weights, for torchScript.
func (s *step) export(t *tower) error {
	m, lengths, ids := tensor.Map{}, []int64{}, []int{t.sos}
	for _, class := range s.set.IDs {
		ids = append(ids, class...)
		lengths = append(lengths, int64(len(class)))
	}
	tokens, err := t.Embed(ids)
	if err != nil {
		return err
	}
	w := t.text().Width
	var rows []int
	for i := range s.client.Train.Len() {
		rows = append(rows, i)
	}
	batch, err := s.client.Train.Batch(rows, nil)
	if err != nil {
		return err
	}
	m["ctx"], m["image"], m["label"] = s.order.Shared["ctx"], batch["image"], batch["label"]
	m["start"], m["suffix"] = tensor.Of(tokens[:w], 1, w), tensor.Of(tokens[w:], len(ids)-1, w)
	m["lengths"] = tensor.OfInts(lengths, len(lengths))
	m["scale"] = tensor.Of([]float32{float32(t.LogitScale)}, 1)
	m["heads"] = tensor.OfInts([]int64{int64(t.text().Heads)}, 1)
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
	if err == nil {
		_, err = binary.Decode(raw, binary.LittleEndian, g.Data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not a gradient %v: %w", file, shape, err)
	}
	return g, nil
}

func (p *torch) close() error {
	p.in.Close()
	p.cmd.Wait()
	return nil
}
