package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"promptfed/federation/engine/record"
	"promptfed/federation/engine/state"
	"promptfed/federation/privacy/noise"
)

// noiseFile holds the key of the noise of a run in one process whose noise is a secret.
const noiseFile = "noise.json"

// runNoise opens the secret noise of a run in one process. A resumed run has the key that it began with. The key of a
// run without a folder is not kept.
func runNoise(set Settings) (*noise.Noise, error) {
	if set.Dir == "" {
		return noise.Open("", "")
	}
	dir := filepath.Join(set.Dir, record.CheckFolder)
	path := filepath.Join(dir, noiseFile)
	_, err := os.Stat(path)
	switch none := errors.Is(err, fs.ErrNotExist); {
	case err != nil && !none:
		return nil, err
	case !set.Resume && !none:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	case set.Resume && none:
		if _, err := os.Stat(filepath.Join(dir, state.CheckpointFile)); err == nil {
			return nil, fmt.Errorf("cannot resume: %s is missing, which has the key of the noise and of the draw of "+
				"clients so far; choose another --out", path)
		}
	}
	return noise.Open(path, "")
}
