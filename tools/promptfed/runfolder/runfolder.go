package runfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/state"
	"promptfed/federation/experiment/identity"
)

// Use says how a run uses a folder that already holds a run.
type Use struct {
	Resume bool // continue it
	Force  bool // remove its files and start over
	// Part is the part of a sweep that this process runs while other processes run the other parts; empty for all
	// cells.
	Part string
	// Changed lists folders that this process resumes or starts over. CheckExperiment ignores their current content.
	Changed []string
	// Replaced lists folders whose runs and sweeps Claim removes beside that of the folder (SeedsIn).
	Replaced []string
	Cell     bool // the run is a cell of a sweep, in its folder
}

// Names of files and folders of a run folder that neither the engine nor the experiment defines.
const (
	ConfigFile        = "config.yaml"
	ClientsFile       = "clients.json"    // clients and the counts of their examples
	DataFile          = "data.json"       // description of the data
	ErrorFile         = "error.txt"       // one line: the error of a cell of a sweep
	ProvenanceFile    = "provenance.json" // Provenance, which alone differs between runs of one seed
	ServerFile        = "serve.json"      // identity of a server's run
	ServerFolder      = "hub"             // state of a server about its clients
	TensorBoardFolder = "tensorboard"     // event files
	MLflowFile        = "mlflow.json"     // runs of MLflow stores that received this run
)

// files are the files and folders that runs, servers and reports write.
var files = []string{ConfigFile, identity.File, ClientsFile, DataFile, ErrorFile, record.RoundsFile,
	record.SummaryFile, record.PromptsFile, record.CheckFolder, record.ConfusionFile, record.EmbeddingsFile,
	ProvenanceFile, ServerFile, ServerFolder, TensorBoardFolder, MLflowFile, "secagg.jsonl", "tables.md", "tables.tex",
	"tables.csv", "report.json", "report.html", "plots"}

// SeedFolder matches the folders of a run with several seeds.
var SeedFolder = regexp.MustCompile(`^seed-\d+$`)

// LockFile is locked while a process works in a folder. The system unlocks it when the process ends. Its time is that
// of the last sign of life (Touch).
const LockFile = ".lock"

// Occupied is the error of a folder that the run may not use. It is wrong usage.
type Occupied struct{ error }

// Check checks, without writing, that a run may use a folder: the folder holds no finished round unless use says so,
// and it can be created and written.
func Check(dir string, use Use) error {
	if use.Resume && use.Force {
		return Occupied{errors.New("--resume continues a run, --force starts it over: give only one of them")}
	}

	there, err := begun(dir)
	switch {
	case err != nil:
	case there && !use.Resume && !use.Force:
		return Occupied{fmt.Errorf("%s already holds a run; use --resume to continue it, --force to replace it, or "+
			"another --out", dir)}
	case !there && !use.Force && !use.Cell:
		err = foreign(dir, files)
	}

	if err != nil {
		return err
	}

	if holdsSweep(dir) && !use.Force {
		return Occupied{fmt.Errorf("%s holds a sweep, not a single run; use --force to replace it, or another --out",
			dir)}
	}

	if sweep := sweepOf(dir); sweep != "" && !use.Cell {
		return Occupied{fmt.Errorf("%s is a cell of the sweep in %s, whose table would show this run by the cell's "+
			"labels; use another --out", dir, sweep)}
	}

	return writable(dir)
}

// foreign returns an error if a folder that shows no run or sweep holds files or folders with the given names, because
// a run would remove or replace them.
func foreign(dir string, names []string) error {
	has := func(name string) bool { return Has(dir, name) }
	first := slices.IndexFunc(names, has)
	if first < 0 || slices.ContainsFunc([]string{identity.File, configs.PlanFile, LockFile}, has) {
		return nil
	}

	return Occupied{fmt.Errorf("%s holds no run, but has %s; use another --out, or --force to remove it", dir,
		names[first])}
}

// sweepOf returns the folder of the sweep that has dir as a cell, or "".
func sweepOf(dir string) string {
	at, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}

	for above := filepath.Dir(at); ; above = filepath.Dir(above) {
		if p, err := configs.ReadPlan(above); err == nil {
			isThis := func(c configs.PlanCell) bool { return filepath.Join(above, filepath.FromSlash(c.Folder)) == at }
			if slices.ContainsFunc(p.Cells, isThis) {
				return above
			}
		}
		if above == filepath.Dir(above) {
			return ""
		}
	}
}

// begun reports whether a folder holds a finished round.
func begun(dir string) (bool, error) {
	info, err := os.Stat(filepath.Join(dir, record.RoundsFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state.HasCheckpoint(dir), nil
	case err != nil:
		if e := writable(dir); e != nil {
			err = e
		} else {
			err = fmt.Errorf("cannot use the run folder: %w; use another --out", err)
		}
		return false, err
	}

	return info.Size() > 0 || state.HasCheckpoint(dir), nil
}

func holdsSweep(dir string) bool { return Has(dir, configs.PlanFile) }

// Has reports whether a run folder has the file or folder of the name.
func Has(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// writable checks that the folder, or its nearest existing parent, can be written.
func writable(dir string) error {
	at := filepath.Clean(dir)
	for {
		info, err := os.Stat(at)
		if errors.Is(err, syscall.ENOTDIR) { // a parent is a file
			at = filepath.Dir(at)
			continue
		}

		if err == nil && !info.IsDir() {
			return fmt.Errorf("cannot make the run folder: %s is a file; use another --out", at)
		}

		if err == nil {
			break
		}

		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(at) == at {
			return fmt.Errorf("cannot make the run folder: %w; use another --out", err)
		}

		at = filepath.Dir(at)
	}

	f, err := os.CreateTemp(at, ".write-*.tmp")
	if err != nil {
		return fmt.Errorf("cannot write into the run folder: %w; use another --out", err)
	}

	f.Close()
	return os.Remove(f.Name())
}

// Claim creates the folder and locks it for this process until release is called. It removes an earlier run or sweep
// unless use resumes it, and those in use.Replaced.
func Claim(dir string, use Use) (release func(), err error) {
	if err := Check(dir, use); err != nil {
		return nil, err
	}

	for _, other := range use.Replaced {
		release, err := claim(other, Use{})
		if err != nil {
			return nil, err
		}
		os.Remove(filepath.Join(other, LockFile))
		release()
		syscall.Rmdir(other) // unless it holds other files or is a link
	}

	return claim(dir, use)
}

// claim creates and locks a folder: for this process, or for processes that run different parts of a sweep. It clears
// the folder unless use keeps its files.
func claim(dir string, use Use) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the run folder: %w; use another --out", err)
	}
	defer Touch(dir)

	if use.Part != "" {
		return share(dir, use.Part)
	}

	if release, err = lock(dir); err != nil || use.Resume {
		return release, err
	}

	if err := clearSweep(dir); err != nil {
		release()
		return nil, err
	}

	return release, nil
}

// Clear removes the files that runs write into a folder, and no others.
func Clear(dir string) error {
	for _, name := range files {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("cannot remove what the run folder holds: %w; use another --out", err)
		}
	}
	return nil
}

// Remove removes run folders with all their files. If a process works in one of them or in its sweep, Remove removes
// nothing.
func Remove(dirs []string) error {
	var held []string
	for _, dir := range dirs {
		held = append(held, dir)
		for up := filepath.Dir(dir); up != filepath.Dir(up); up = filepath.Dir(up) {
			if holdsSweep(up) {
				held = append(held, up)
			}
		}
	}

	slices.Sort(held)
	for _, dir := range slices.Compact(held) {
		release, err := lock(dir)
		if errors.As(err, new(Occupied)) {
			return Occupied{fmt.Errorf("another promptfed works in %s; nothing was removed: wait until it has ended",
				dir)}
		}
		if err != nil {
			return err
		}
		defer release()
	}

	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}

	return nil
}
