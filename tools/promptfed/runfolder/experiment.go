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
		if slices.Contains(use.Changed, beside) {
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
	above := dir
	if SeedFolder.MatchString(filepath.Base(dir)) {
		above = filepath.Dir(dir)
	}

	out := []string{above}
	entries, _ := os.ReadDir(above) // a missing folder has no entries
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
