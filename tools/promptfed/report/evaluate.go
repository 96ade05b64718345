package report

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "embed"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/experiment"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/net/wait"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/ort"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
	"promptfed/tools/promptfed/cli"
)

// protocol is the sweep of tasks that a method is evaluated on, without seeds and method.
//
//go:embed evaluate.yaml
var protocol []byte

// protocolVersion changes when the score is computed in another way from the same runs.
const protocolVersion = 1

// budgets are the sizes of the protocol, in seeds. They are named after a time that is enough on two cores for methods
// that cost a few times as much as PromptFL; the time decides nothing that is computed.
var budgets = map[string]int{"30s": 1, "1m": 2, "5m": 10, "30m": 60}

// Bounds of a method.
const (
	overBudget   = 10 // times the budget, on budgetCores
	budgetCores  = 2
	maxStepBytes = 2 << 30 // StepBytes
)

// evaluation is the score of a method: the mean, over pairs of runs with equal task and seed, of the difference of
// validation accuracies between the method and PromptFL, with its 95 % interval.
type evaluation struct {
	Protocol string         `json:"protocol"` // VERSION/BUDGET
	Digest   string         `json:"digest"`   // of all that the scores of other methods depend on too
	Numerics string         `json:"numerics"` // digest of numerics.Fingerprint
	Method   string         `json:"method"`   // SHA-256 of the file
	Score    float64        `json:"score"`
	Low      float64        `json:"low"`
	High     float64        `json:"high"`
	Runs     []evaluatedRun `json:"runs"`
}

// evaluatedRun is a pair of runs.
type evaluatedRun struct {
	Task     string  `json:"task"`
	Seed     uint64  `json:"seed"`
	Accuracy float64 `json:"accuracy"` // mean over clients, on their validation images
	PromptFL float64 `json:"promptfl"`
}

func evaluateCommand() *cobra.Command {
	var path string
	var sets []string
	budget := "5m"
	command := &cobra.Command{Use: "evaluate --method FILE [--budget 30s|1m|5m|30m]", Args: cli.Exactly(0),
		Short: "score a method of an ONNX file on validation images, for programs that search for methods"}
	command.Flags().StringVar(&path, "method", "", "the method, an ONNX `FILE`")
	command.Flags().StringVar(&budget, "budget", budget,
		"`SIZE` of the protocol: 30s (without an interval), 1m, 5m or 30m")
	command.Flags().StringArrayVar(&sets, "set", nil, "change a key below runtime, as in runtime.workers=1")
	result := cli.AddJSON(command, evaluation{})
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		seeds, ok := budgets[budget]
		if !ok || path == "" {
			return cli.Needed("evaluate", "--method FILE, and --budget 30s, 1m, 5m or 30m")
		}

		machine, err := cli.RuntimeOnly(sets)
		if err != nil {
			return err
		}

		content, err := atomicfile.ReadAtMost(path, layer.MaxFile)
		if err != nil {
			return cli.Usage(err)
		}

		o := configs.SweepOptions{Still: true}
		for s := range seeds {
			o.Seeds = append(o.Seeds, uint64(s+1))
		}

		sweep, err := configs.ParseSweep("evaluate.yaml", protocol, o)
		if err != nil {
			return err
		}

		limit, err := time.ParseDuration(budget)
		if err != nil {
			return err
		}

		late := cli.OverTime(fmt.Errorf("%s has no score: it takes more than %d times %s", path, overBudget, budget))
		ctx, cancel := context.WithCancelCause(cmd.Context())
		defer cancel(nil)
		stopAfter(ctx, overBudget*budgetCores*limit, func() { cancel(late) })
		run := evaluator{cells: sweep.Cells, machine: machine.Runtime,
			file: layer.EmbedFile(filepath.Base(path), content)}
		out, err := run.evaluate(ctx)
		if context.Cause(ctx) == late {
			return late
		} else if err != nil {
			return fmt.Errorf("%s has no score: %w", path, err)
		}

		out.Protocol = fmt.Sprintf("%d/%s", protocolVersion, budget)
		out.Method = layer.Digest(content)
		return result.Print(out, out.text())
	}

	return command
}

// stopAfter calls stop once the process has taken some processor time, unless ctx ends before. What else the machine
// does counts only where the system does not report processor time.
func stopAfter(ctx context.Context, most time.Duration, stop func()) {
	began, processor := time.Now(), ort.ProcessorTime()
	over := func() bool {
		if processor == 0 {
			return budgetCores*time.Since(began) > most
		}
		return ort.ProcessorTime()-processor > most
	}

	if over() {
		stop()
		return
	}

	go func() {
		for !over() && wait.For(ctx, 100*time.Millisecond) == nil {
		}
		stop()
	}()
}

// evaluator evaluates a method on the cells of the protocol.
type evaluator struct {
	cells   []configs.Cell
	machine experiment.Runtime
	file    layer.File
}

func (e evaluator) evaluate(ctx context.Context) (out evaluation, err error) {
	known := []string{fmt.Sprint(protocolVersion, len(e.cells))}
	for _, c := range e.cells { // refuses a file before anything is trained
		if c.Seed != e.cells[0].Seed {
			continue
		}

		if _, err := e.open(ctx, c, e.file); err != nil {
			return out, cli.AsUsage(err)
		}

		t, err := e.open(ctx, c, fromfile.Example)
		if err != nil {
			return out, err
		}

		id, err := t.Identity(ctx, nil)
		if err != nil {
			return out, err
		}

		numbers, err := t.Numerics()
		if err != nil {
			return out, err
		}

		known, out.Numerics = append(known, id.Fingerprint), numbers.Digest()
	}

	out.Digest = layer.Digest([]byte(strings.Join(known, "\n")))
	last, err := results.ParseMetric(metrics.Last)
	if err != nil {
		return out, err
	}

	const axis, promptFL = "method", "PromptFL"
	var groups []*results.Group
	for _, c := range e.cells {
		pair := evaluatedRun{Task: c.Labels["task"], Seed: c.Seed}
		run := func(name string, file layer.File) (accuracy float64, err error) {
			r := &results.Run{State: results.Done, Seed: c.Seed}
			if r.Rounds, err = e.run(ctx, c, file); err != nil {
				return 0, fmt.Errorf("task %s, seed %d: %w", pair.Task, c.Seed, err)
			}
			groups = append(groups, &results.Group{Labels: map[string]string{axis: name, "task": pair.Task},
				Runs: []*results.Run{r}})
			accuracy, _ = last.Value(r)
			return accuracy, nil
		}

		if pair.Accuracy, err = run("", e.file); err != nil {
			return out, err
		}

		if pair.PromptFL, err = run(promptFL, fromfile.Example); err != nil {
			return out, err
		}

		out.Runs = append(out.Runs, pair)
	}

	c := results.Compare(groups, axis, promptFL, last, results.OverRuns)[0]
	out.Score, out.Low, out.High = c.Difference, c.Low, c.High
	return out, nil
}

// open opens a cell with a method, without test images.
func (e evaluator) open(ctx context.Context, c configs.Cell, file layer.File) (*experiment.Task, error) {
	c.Config.Runtime, c.Config.Options = e.machine, map[string]any{"file": string(file)}
	task, err := experiment.OpenValidation(ctx, c.Config, nil)
	if err != nil {
		return nil, err
	}

	bytes, err := task.StepBytes()
	if err == nil && bytes > maxStepBytes {
		err = fmt.Errorf("on task %s its scores and loss have values of %.1f GiB; at most %d GiB are allowed",
			c.Labels["task"], bytes/(1<<30), maxStepBytes>>30)
	}

	return task, err
}

// run runs a cell with a method, in memory.
func (e evaluator) run(ctx context.Context, c configs.Cell, file layer.File) ([]results.Round, error) {
	t, err := e.open(ctx, c, file)
	if err != nil {
		return nil, err
	}

	f, err := experiment.Federate(ctx, t, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	return inMemory(ctx, f, f.Settings())
}

func (e evaluation) text() string {
	rows := [][]string{{"task", "accuracy", "PromptFL", "difference"}}
	for list := e.Runs; len(list) > 0; {
		n := len(list)
		if i := slices.IndexFunc(list, func(r evaluatedRun) bool { return r.Task != list[0].Task }); i > 0 {
			n = i
		}
		var accuracy, promptFL float64
		for _, r := range list[:n] {
			accuracy, promptFL = accuracy+100*r.Accuracy/float64(n), promptFL+100*r.PromptFL/float64(n)
		}
		rows = append(rows, []string{list[0].Task, fmt.Sprintf("%.2f", accuracy), fmt.Sprintf("%.2f", promptFL),
			fmt.Sprintf("%+.2f", accuracy-promptFL)})
		list = list[n:]
	}

	interval := ""
	if !math.IsNaN(e.Low) {
		interval = fmt.Sprintf(", 95 %% interval %+.4f to %+.4f", e.Low, e.High)
	}

	return fmt.Sprintf("%s\nscore %+.4f%s; protocol %s %.12s, numerics %.12s\n", tables.PlainText(rows, 1), e.Score,
		interval, e.Protocol, e.Digest, e.Numerics)
}
