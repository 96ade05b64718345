package runfolder

import (
	"os"
	"path/filepath"
	"slices"

	"promptfed/federation/engine/record"
	"promptfed/federation/experiment/identity"
)

// CheckExperiment checks that a folder holds no other experiment if the run resumes it, and that the folders of other
// seeds, which reports group with it, hold no other experiment. An error names the keys that differ.
func CheckExperiment(dir string, id identity.Identity, use Use) error {
	there, err := begun(dir)
	if err != nil {
		return err
	}

	if there && use.Resume {
		records, err := record.Records(dir)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := id.Continue(dir, len(records)); err != nil {
			return Occupied{err}
		}
	}

	for _, beside := range seedsBeside(dir) {
		if slices.Contains(use.Changed, beside) || slices.Contains(use.Replaced, beside) {
			continue
		}
		if err := id.CheckSeeds(beside); err != nil {
			return Occupied{err}
		}
	}

	return nil
}

// seedsBeside returns the folders that reports group with dir: seed-N beside it or below it, and the folder above
// seed-N.
func seedsBeside(dir string) []string {
	above := filepath.Clean(dir)
	if SeedFolder.MatchString(filepath.Base(dir)) {
		above = filepath.Dir(above)
	}

	return slices.DeleteFunc(SeedsIn(above, filepath.Clean(dir)), holdsSweep)
}

// SeedsIn returns a folder and the folders of seeds in it, without some and those that hold neither a run nor a sweep.
func SeedsIn(dir string, without ...string) []string {
	out := []string{dir}
	entries, _ := os.ReadDir(dir) // a missing folder has no entries
	for _, e := range entries {
		if e.IsDir() && SeedFolder.MatchString(e.Name()) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}

	return slices.DeleteFunc(out, func(folder string) bool {
		there, err := begun(folder)
		return slices.Contains(without, folder) || !there && err == nil && !holdsSweep(folder)
	})
}
