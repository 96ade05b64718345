package runfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"promptfed/configs"
)

// ClaimSweep creates the folder of a sweep and locks it until release is called: for this process, or for processes
// that run different parts. A folder with another sweep or a single run is an error, and so is an existing sweep that
// use neither resumes nor replaces. A resumed sweep may have new cells, and changed ones without results, whose files
// are removed.
func ClaimSweep(sweep *configs.Sweep, dir string, use Use) (release func(), err error) {
	_, there := os.Stat(filepath.Join(dir, configs.PlanFile))
	if there != nil && !errors.Is(there, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot use the folder: %w; use another --out", there)
	}

	var restart []string // cells
	single, err := begun(dir)
	switch {
	case err != nil:
		return nil, err
	case use.Resume && use.Force:
		return nil, Check(dir, use)
	case there == nil && (use.Resume || use.Part != ""):
		kept := func(folder string) bool { return hasResults(CellDir(dir, folder)) }
		if restart, err = sweep.CheckSame(dir, kept); err != nil {
			return nil, Occupied{err}
		}
		if len(restart) > 0 && use.Part != "" {
			return nil, Occupied{fmt.Errorf("%s holds another sweep: cell %s differs or is new; parts run one sweep: "+
				"run it without --array and with --resume, or use another --out", dir, restart[0])}
		}
	case there == nil && !use.Force:
		if worked, err := worked(dir); err != nil || worked {
			return nil, errors.Join(err, Occupied{fmt.Errorf("%s already holds a sweep; use --resume to continue it, "+
				"--force to replace it, or another --out", dir)})
		}
	case single && !use.Force:
		return nil, Occupied{fmt.Errorf("%s holds a single run, not a sweep; use another --out", dir)}
	case there != nil && !use.Force:
		err = foreign(dir, append(sweepFiles, files...))
	}

	if err == nil {
		err = writable(dir)
	}

	if err != nil {
		return nil, err
	}

	if release, err = claim(dir, use); err != nil {
		return nil, err
	}

	for _, folder := range restart {
		cell := CellDir(dir, folder)
		if hasResults(cell) { // of a cell that the sweep did not have
			continue
		}
		if rounds, err := begun(cell); err == nil && rounds {
			sweep.Notes = append(sweep.Notes, fmt.Sprintf("cell %s failed, and its configuration has changed: it "+
				"starts over", folder))
		}
		if err := Clear(cell); err != nil {
			release()
			return nil, err
		}
	}

	return release, nil
}

// CellDir returns the folder of a cell in the folder of a sweep, from its name in the plan.
func CellDir(dir, folder string) string { return filepath.Join(dir, filepath.FromSlash(folder)) }

// hasResults reports whether a cell has finished rounds and has not failed.
func hasResults(cell string) bool {
	there, err := begun(cell)
	return err != nil || there && !Has(cell, ErrorFile)
}

// worked reports whether a cell of the sweep in a folder has a finished round.
func worked(dir string) (bool, error) {
	p, err := configs.ReadPlan(dir)
	if err != nil {
		return true, nil // an unreadable plan is not replaced
	}

	for _, c := range p.Cells {
		if there, err := begun(CellDir(dir, c.Folder)); err != nil || there {
			return there, err
		}
	}

	return false, nil
}

// sweepFiles are the files that only sweeps write.
var sweepFiles = []string{configs.PlanFile, configs.SweepYAML}

// clearSweep removes the files of a sweep or a run from a folder, and the empty folders below it.
func clearSweep(dir string) error {
	if p, err := configs.ReadPlan(dir); err == nil {
		for _, c := range p.Cells {
			at := CellDir(dir, c.Folder)
			if err := Clear(at); err != nil {
				return err
			}
			os.Remove(filepath.Join(at, LockFile))
			for ; at != filepath.Clean(dir) && os.Remove(at) == nil; at = filepath.Dir(at) {
			}
		}
	}

	for _, name := range sweepFiles {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove what the folder holds: %w; use another --out", err)
		}
	}

	return Clear(dir)
}
