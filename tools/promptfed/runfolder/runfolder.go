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
	"promptfed/federation/experiment"
)

// Use says what becomes of a folder that holds a run.
type Use struct {
	Resume bool // goes on with it
	Force  bool // is begun anew, and what it holds of a run is removed
	// Part names the part of a sweep that this program does, beside others in the folder; empty for all of it.
	Part string
	// Changed are folders that the same program starts over or goes on with: what they hold now is no hindrance.
	Changed []string
	Cell    bool // the run is a cell of a sweep, in the folder that the sweep gives it
}

// Files and folders in the folder of a run that neither the engine nor the experiment names.
const (
	ConfigFile        = "config.yaml"
	ClientsFile       = "clients.json"    // the clients and the number of their examples
	DataFile          = "data.json"       // the description of the data
	ErrorFile         = "error.txt"       // one line: why a cell of a sweep failed
	ProvenanceFile    = "provenance.json" // see Provenance; only this file differs between runs of one seed
	ServerFolder      = "hub"             // what a server records about its clients
	TensorBoardFolder = "tensorboard"     // event files
	MLflowFile        = "mlflow.json"     // the runs of MLflow stores that received this run
)

// files are the files and folders that runs, servers and reports write.
var files = []string{ConfigFile, experiment.IdentityFile, ClientsFile, DataFile, ErrorFile, record.RoundsFile,
	record.SummaryFile, record.PromptsFile, record.CheckFolder, record.ConfusionFile, experiment.EmbeddingsFile,
	ProvenanceFile, ServerFolder, TensorBoardFolder, MLflowFile, "secagg.jsonl", "tables.md", "tables.tex",
	"tables.csv", "report.json", "report.html", "plots"}

// SeedFolder matches the names of folders that hold one seed of an experiment beside others.
var SeedFolder = regexp.MustCompile(`^seed-\d+$`)

// lockFile is locked while a program works in a folder; the system unlocks it when that program ends, however it ends.
const lockFile = ".lock"

// Occupied is a folder that may not be used. It is wrong usage.
type Occupied struct{ error }

// Check refuses a folder that holds a run with a finished round, unless it is to be used; nothing is written. It finds
// early where no folder can be made.
func Check(dir string, use Use) error {
	if use.Resume && use.Force {
		return Occupied{errors.New("--resume continues a run, --force starts it over: give only one of them")}
	}
	if there, err := begun(dir); err != nil {
		return err
	} else if there && !use.Resume && !use.Force {
		return Occupied{fmt.Errorf("%s already holds a run; use --resume to continue it, --force to replace it, or "+
			"another --out", dir)}
	}
	if _, err := os.Stat(filepath.Join(dir, configs.PlanFile)); err == nil {
		return Occupied{fmt.Errorf("%s holds a sweep, not a single run; use another --out", dir)}
	}
	if sweep := sweepOf(dir); sweep != "" && !use.Cell {
		return Occupied{fmt.Errorf("%s is a cell of the sweep in %s, whose table would show this run by the cell's "+
			"labels; use another --out", dir, sweep)}
	}
	return writable(dir)
}

// sweepOf is the folder of the sweep that a folder is a cell of; empty for none.
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

// begun tells whether a folder holds a finished round.
func begun(dir string) (bool, error) {
	info, err := os.Stat(filepath.Join(dir, record.RoundsFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return hasCheckpoint(dir), nil
	case err != nil:
		if e := writable(dir); e != nil {
			err = e
		} else {
			err = fmt.Errorf("cannot use the run folder: %w; use another --out", err)
		}
		return false, err
	}
	return info.Size() > 0 || hasCheckpoint(dir), nil
}

func hasCheckpoint(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, record.CheckFolder, state.CheckpointFile))
	return err == nil
}

// writable finds the folder, or the nearest one above it that is there, and tries to write into it.
func writable(dir string) error {
	at := filepath.Clean(dir)
	for {
		info, err := os.Stat(at)
		if errors.Is(err, syscall.ENOTDIR) { // the file is further up
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

// Claim makes the folder, for this program alone until release is called. What is there of a run is removed, unless the
// run is to go on.
func Claim(dir string, use Use) (release func(), err error) {
	if err := Check(dir, use); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the run folder: %w; use another --out", err)
	}
	if release, err = lock(dir); err != nil {
		return nil, err
	}
	if !use.Resume {
		err = Clear(dir)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Clear removes what runs leave in a folder, and nothing else.
func Clear(dir string) error {
	for _, name := range files {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("cannot remove what the run folder holds: %w; use another --out", err)
		}
	}
	return nil
}

// Remove removes run folders with all in them, or none of them where a program works in one, or in the sweep that one
// belongs to.
func Remove(dirs []string) error {
	var held []string
	for _, dir := range dirs {
		held = append(held, dir)
		for up := filepath.Dir(dir); up != filepath.Dir(up); up = filepath.Dir(up) {
			if _, err := os.Stat(filepath.Join(up, configs.PlanFile)); err == nil {
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
