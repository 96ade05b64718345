package results

import (
	"fmt"
	"hash"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
)

// Cache reads folders again and again, and of run folders only those that changed since. The zero value is empty; it is
// for one goroutine.
type Cache struct{ runs map[string]cached }

type cached struct {
	stamp uint64
	run   *Run
	notes []string
}

// Load is the function Load. Runs that did not change are the same as before.
func (c *Cache) Load(dirs ...string) (*Results, error) {
	kept := map[string]cached{}
	out, err := loadWith(func(dir string) (*Run, []string) {
		h := fnv.New64a()
		stampRun(h, dir)
		one, ok := c.runs[dir]
		if stamp := h.Sum64(); !ok || one.stamp != stamp {
			one.stamp = stamp
			one.run, one.notes = readRun(dir)
		}
		kept[dir] = one
		return one.run, one.notes
	}, dirs)
	c.runs = kept
	return out, err
}

// watched are the files of a run folder that change what is shown of it.
var watched = []string{ConfigFile, experiment.IdentityFile, ProvenanceFile, record.RoundsFile,
	record.SummaryFile, ErrorFile, TagsFile, ClientsFile, record.ConfusionFile}

func stampRun(h hash.Hash64, dir string) {
	for _, name := range watched {
		stampFile(h, filepath.Join(dir, name))
	}
}

// stampFile adds a file's name, size and time to a sum; of a file that is not there, nothing.
func stampFile(h hash.Hash64, path string) {
	if info, err := os.Stat(path); err == nil {
		fmt.Fprintf(h, "%q %d %d;", path, info.Size(), info.ModTime().UnixNano())
	}
}

// Fingerprint is another number after any run or sweep in or below some folders changed, began or went. Folders are
// looked at rather than watched, since changes on network drives are not announced.
func Fingerprint(dirs ...string) uint64 {
	h := fnv.New64a()
	for _, dir := range dirs {
		root, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return fs.SkipDir
			case !e.IsDir():
				return nil
			case isRun(path):
				stampRun(h, path)
				return fs.SkipDir
			}
			stampFile(h, filepath.Join(path, configs.PlanFile))
			stampFile(h, filepath.Join(path, ErrorFile))
			return nil
		})
	}
	return h.Sum64()
}
