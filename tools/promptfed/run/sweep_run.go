package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/oneline"
	"promptfed/runtime/ort"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/distributed"
	"promptfed/tools/promptfed/progress"
	"promptfed/tools/promptfed/runfolder"
	"promptfed/tools/promptfed/signals"
)

// runSweep runs the unfinished cells of a sweep.
func runSweep(ctx context.Context, sweep *configs.Sweep, flags flags) error {
	others, err := distributed.OpenCluster(ctx, flags.cluster)
	if err != nil {
		return err
	}
	defer others.Close()

	dir := cmp.Or(flags.out, filepath.Join(cli.RunsFolder, sweep.Name))
	mine := flags.array.Cells(sweep.Cells)
	every, own := unfinished(dir, sweep.Cells), unfinished(dir, mine)
	if flags.use.Force { // which removes the results of finished cells
		every, own = sweep.Cells, mine
	}

	if err := checkRoots(every); err != nil {
		return err
	}

	if err := precheck(ctx, own); err != nil {
		return err
	}

	release, err := claimSweep(sweep, dir, flags.use)
	if err != nil {
		return err
	}
	defer release()

	todo := unfinished(dir, mine)
	if others != nil {
		flags.jobs = 1
	}

	jobs, workers := share(flags.jobs, todo, runtime.GOMAXPROCS(0))
	run := &sweepRun{dir: dir, failed: map[string]string{}, show: progress.NewSweep(sweep, len(mine)-len(todo), todo,
		jobs), cells: training{use: runfolder.Use{Resume: true, Cell: true}, log: flags.log, workers: workers,
		beside: workers > 0, cluster: others, outputs: flags.outputs}}
	err = run.run(ctx, todo, jobs)
	run.show.Close()
	if ctx.Err() != nil {
		return cli.Stopped(ctx)
	}

	if err != nil {
		return fmt.Errorf("%w; the remaining cells were not run: free some space and add --resume to continue", err)
	}

	var text strings.Builder
	out := cli.Report{Folder: dir}
	waiting := 0 // cells of other parts
	if flags.array.Of > 0 {
		for _, c := range unfinished(dir, sweep.Cells) {
			if !runfolder.Has(runfolder.CellDir(dir, c.Folder), runfolder.ErrorFile) && run.failed[c.Folder] == "" {
				waiting++
			}
		}
	}

	if waiting > 0 {
		fmt.Fprintf(&text, "part %s: %s done in %s, %d of other parts are not; the last part writes the report, as "+
			"does promptfed report %s\n", &flags.array, experiment.CountInWords(len(mine)-len(run.failed),
			"cell"), dir, waiting, dir)
	} else if len(run.failed) < len(mine) {
		if out, err = flags.outputs.Report([]string{dir}, dir); err == nil {
			text.WriteString(out.Text(flags.view))
		}
	}

	for _, line := range byReason(run.failed) {
		fmt.Fprintln(&text, "failed:", line)
	}

	n := len(run.failed)
	if n == 0 && err == nil && waiting == 0 {
		fmt.Fprintf(&text, "%s in %s; %s shows them\n", experiment.CountInWords(len(sweep.Cells), "cell"), dir,
			out.Page)
	}

	for _, cell := range slices.Sorted(maps.Keys(run.failed)) {
		out.Failed = append(out.Failed, cli.FailedCell{Cell: cell, Reason: run.failed[cell]})
	}

	out.WaitingCells = waiting
	err = errors.Join(flags.result.Print(out, text.String()), err)
	if n > 0 {
		return errors.Join(fmt.Errorf("%d of %d cells failed; --resume tries them again", n, len(mine)), err)
	}

	return err
}

// unfinished returns the cells that are not finished.
func unfinished(dir string, cells []configs.Cell) []configs.Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c configs.Cell) bool {
		return finished(runfolder.CellDir(dir, c.Folder), c.Config)
	})
}

// share returns the number of cells that run at a time, and the number of clients that train at a time in a cell whose
// configuration does not set it; 0 stands for all processors. The cells share the processors. On a GPU one cell runs at
// a time, because the memory that cells need together is unknown.
func share(jobs int, cells []configs.Cell, processors int) (int, int) {
	most, gpu := 1, false
	for _, c := range cells {
		most, gpu = max(most, c.Config.Runtime.Workers), gpu || c.Config.Runtime.Provider != ort.CPU
	}

	if jobs == 0 {
		jobs = max(1, processors/most)
		if gpu {
			jobs = 1
		}
	}

	jobs = max(1, min(jobs, len(cells)))
	if jobs == 1 {
		return jobs, 0
	}

	return jobs, max(1, processors/jobs)
}

// sweepRun runs cells concurrently. It keeps one line for each failed cell and nothing for the others.
type sweepRun struct {
	dir      string
	cells    training // of each cell, but for its folder
	show     *progress.Sweep
	features progress.FeatureLocks

	mu     sync.Mutex
	failed map[string]string // reasons by the folders of cells
}

// byReason returns a line for each reason, with the first of the cells that failed for it.
func byReason(failed map[string]string) []string {
	cells := map[string][]string{}
	for _, folder := range slices.Sorted(maps.Keys(failed)) {
		cells[failed[folder]] = append(cells[failed[folder]], folder)
	}

	var out []string
	for why, folders := range cells {
		line := folders[0]
		if n := len(folders) - 1; n > 0 {
			line += " and " + experiment.CountInWords(n, "more cell")
		}
		out = append(out, line+": "+why)
	}

	slices.Sort(out)
	return out
}

// checkRoots refuses cells all of which need a folder of images that does not exist.
func checkRoots(cells []configs.Cell) error {
	root := ""
	for _, c := range cells {
		root = c.Config.Data.Root
		if _, err := os.Stat(root); root == "" || c.Config.Data.Set == "synthetic" || err == nil {
			return nil
		}
	}

	if root == "" {
		return nil
	}

	return cli.Usagef("data.root: %s does not exist, and no cell can run without it: give the folder of the data sets "+
		"with --set data.root=DIR (docs/datasets.md), or try the grid on drawn images with --smoke", root)
}

// precheck refuses a sweep with cells that cannot run, in one line for each reason.
func precheck(ctx context.Context, cells []configs.Cell) error {
	var p experiment.Prechecker
	failed := map[string]string{}
	for _, c := range cells {
		if ctx.Err() != nil {
			return cli.Stopped(ctx)
		}
		if err := p.Check(c.Config); err != nil {
			failed[c.Folder] = oneline.Text(err.Error())
		}
	}

	if len(failed) == 0 {
		return nil
	}

	return fmt.Errorf("%s; nothing was started: correct them, or leave them out with --keep or sweep.skip",
		strings.Join(byReason(failed), "; "))
}

// run runs cells, up to jobs at a time. After a failed cell it continues; after a full disk it stops.
func (r *sweepRun) run(ctx context.Context, cells []configs.Cell, jobs int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(jobs)
	for _, cell := range cells {
		group.Go(func() error {
			if ctx.Err() != nil || signals.FromContext(ctx).Asked() {
				return nil
			}

			err := r.cell(ctx, cell)
			switch {
			case err == nil:
				return nil
			case full(err):
				return fmt.Errorf("cell %s: %w", cell.Folder, err)
			case ctx.Err() != nil || signals.FromContext(ctx).Asked() && errors.Is(err, context.Canceled):
				return nil
			}

			line := oneline.Text(err.Error())
			r.mu.Lock()
			r.failed[cell.Folder] = line
			r.mu.Unlock()
			r.show.Failed(cell, line)
			return r.note(cell, line)
		})
	}

	return group.Wait()
}

// note writes the error of a cell into the folder of the cell.
func (r *sweepRun) note(c configs.Cell, line string) error {
	dir := runfolder.CellDir(r.dir, c.Folder)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, runfolder.ErrorFile), atomicfile.Bytes([]byte(line+"\n")))
	}

	if full(err) {
		return err
	}

	return nil // the command prints the error of the cell in any case
}

// full reports whether an error would also stop other cells from writing files: a full disk or quota, a limit on file
// sizes, or a read-only file system.
func full(err error) bool {
	all := []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EROFS}
	return slices.ContainsFunc(all, func(e error) bool { return errors.Is(err, e) })
}

// cell runs a cell, or continues it. It returns a panic as an error with its place in the code.
func (r *sweepRun) cell(ctx context.Context, cell configs.Cell) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v at %s", p, panicked())
		}
	}()

	run := r.cells
	run.dir = runfolder.CellDir(r.dir, cell.Folder)
	if err := os.Remove(filepath.Join(run.dir, runfolder.ErrorFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	if cell.Config.Runtime.Workers > 0 {
		run.workers = 0
	}

	monitor := r.show.Cell(cell, &r.features)
	result, err := run.run(ctx, cell.Config, monitor)
	if err != nil {
		return err
	}

	monitor.Done(result.Summary)
	return nil
}

// panicked returns the place of the recovered panic.
func panicked() string {
	pc := make([]uintptr, 32)
	frames := runtime.CallersFrames(pc[:runtime.Callers(3, pc)])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") || !more {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
	}
}
