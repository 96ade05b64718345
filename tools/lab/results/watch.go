package results

import (
	"fmt"
	"hash"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment/identity"
	"promptfed/tools/promptfed/runfolder"
)

// Cache loads folders repeatedly and rereads only changed run folders. The zero value is empty. It is not safe for
// concurrent use.
type Cache struct{ runs map[string]cached }

type cached struct {
	stamp uint64
	run   *Run
	notes []string
}

// Load is the function Load. Unchanged runs are the same values as before.
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
	}, dirs, false)

	c.runs = kept
	return out, err
}

// watched are the files of a run folder that affect its results.
var watched = []string{runfolder.ConfigFile, identity.File, runfolder.ProvenanceFile, record.RoundsFile,
	record.SummaryFile, runfolder.ErrorFile, TagsFile, runfolder.ClientsFile, record.ConfusionFile}

// stampRun adds what affects the results of a run to a hash. Those of a run with a process change every minute.
func stampRun(h hash.Hash64, dir string) {
	for _, name := range watched {
		stampFile(h, filepath.Join(dir, name))
	}

	if isFile(dir, record.SummaryFile) {
		return
	}

	if held, _ := runfolder.Held(dir); held {
		fmt.Fprint(h, "held ", time.Now().Unix()/60)
	}
}

// stampFile adds a file's name, size and time to a hash; nothing if the file does not exist.
func stampFile(h hash.Hash64, path string) {
	if info, err := os.Stat(path); err == nil {
		fmt.Fprintf(h, "%q %d %d;", path, info.Size(), info.ModTime().UnixNano())
	}
}

// Fingerprint returns a number that changes after a run or sweep in or below some folders changes, starts or
// disappears. It looks at the folders instead of watching them, because network drives announce no changes.
func Fingerprint(dirs ...string) uint64 {
	digest := fnv.New64a()
	for _, dir := range dirs {
		root, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}

		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil, e.IsDir() && ofRun(path):
				return fs.SkipDir
			case !e.IsDir():
				return nil
			case isRun(path):
				stampRun(digest, path)
				return nil
			}
			stampFile(digest, filepath.Join(path, configs.PlanFile))
			stampFile(digest, filepath.Join(path, runfolder.ErrorFile))
			return nil
		})
	}

	return digest.Sum64()
}
