package runfolder

import (
	"os"
	"path/filepath"
	"slices"

	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
)

// CheckExperiment refuses a run in a folder that holds another experiment, and names the keys that differ: in the
// folder itself where the run goes on, and in folders of other seeds, which are shown together with it.
func CheckExperiment(dir string, id experiment.Identity, use Use) error {
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
		if slices.Contains(use.Changed, beside) {
			continue
		}
		if err := id.Beside(beside); err != nil {
			return Occupied{err}
		}
	}
	return nil
}

// seedsBeside are the folders whose runs are put together with that of a folder: seed-N beside it or below it, and the
// folder above seed-N.
func seedsBeside(dir string) []string {
	above := dir
	if SeedFolder.MatchString(filepath.Base(dir)) {
		above = filepath.Dir(dir)
	}
	out := []string{above}
	entries, _ := os.ReadDir(above) // a folder that is not there has none
	for _, e := range entries {
		if e.IsDir() && SeedFolder.MatchString(e.Name()) {
			out = append(out, filepath.Join(above, e.Name()))
		}
	}
	return slices.DeleteFunc(out, func(other string) bool {
		if filepath.Clean(other) == filepath.Clean(dir) {
			return true
		}
		there, err := begun(other)
		return err == nil && !there
	})
}
