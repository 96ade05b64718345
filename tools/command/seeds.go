package command

import (
	"path/filepath"
	"strconv"

	"promptfed/federation/experiment"
)

// withSeeds gives a configuration once for every seed, with run folders below dir; without seeds it is left alone.
func withSeeds(conf experiment.Config, dir string, seeds []uint) (confs []experiment.Config, dirs []string) {
	if len(seeds) == 0 {
		return []experiment.Config{conf}, []string{dir}
	}
	for _, s := range seeds {
		c := conf
		c.Seed = uint64(s)
		confs, dirs = append(confs, c), append(dirs, filepath.Join(dir, "seed-"+strconv.FormatUint(c.Seed, 10)))
	}
	return confs, dirs
}
