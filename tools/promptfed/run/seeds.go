package run

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/configs"
	"promptfed/runtime/convert"
)

// mostSeeds is the largest number of seeds.
const mostSeeds = 1000

// seedList is the value of --seeds: numbers and ranges of numbers.
type seedList []uint64

func (l *seedList) Type() string { return "seeds" }

func (l *seedList) String() string {
	return strings.Join(convert.Slice(*l, func(seed uint64) string { return strconv.FormatUint(seed, 10) }), ",")
}

// Set reads a list such as 1,2,5-7.
func (l *seedList) Set(text string) error {
	*l = nil
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if strings.HasPrefix(part, "-") {
			return fmt.Errorf("%s is negative; seeds are whole numbers from 0", part)
		}

		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 64)
		last := first
		if isRange && err == nil {
			last, err = strconv.ParseUint(to, 10, 64)
		}

		if err != nil {
			return fmt.Errorf("%q is not a seed; give whole numbers, as in 1,2,3 or 1-3", part)
		}

		if last < first || last-first >= mostSeeds {
			return fmt.Errorf("%s is not a range; give the smaller seed first, and at most %d seeds", part, mostSeeds)
		}

		for s := first; ; s++ {
			if slices.Contains(*l, s) {
				return fmt.Errorf("seed %d is listed twice", s)
			}
			if *l = append(*l, s); s == last {
				break
			}
		}
	}

	return nil
}

// withSeeds returns a copy of a configuration for every seed, with run folders below dir. Without seeds it returns the
// configuration and dir.
func withSeeds(conf configs.Loaded, dir string, seeds []uint64) (confs []configs.Loaded, dirs []string) {
	if len(seeds) == 0 {
		return []configs.Loaded{conf}, []string{dir}
	}

	for _, s := range seeds {
		c := conf
		c.Seed = s
		confs, dirs = append(confs, c), append(dirs, filepath.Join(dir, "seed-"+strconv.FormatUint(c.Seed, 10)))
	}

	return confs, dirs
}
