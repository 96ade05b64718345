package parquet

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
)

// shard matches Hugging Face's names of the parts of a split: train-00001-of-00004.parquet, sometimes with a digest at
// the end.
var shard = regexp.MustCompile(`(?i)^(.*-)(\d{5})-of-(\d{5})(-[0-9a-z]+)?\.parquet$`)

// complete returns an error if the files' names show that other parts of the same split are missing, as after an
// interrupted download, or that one part exists twice.
func complete(files []pqNamed) error {
	type split struct {
		prefix string // including the folder
		parts  int
	}
	found := map[split]map[int]string{}
	var order []split
	for _, f := range files {
		m := shard.FindStringSubmatch(filepath.Base(f.path))
		if m == nil {
			continue
		}
		part, _ := strconv.Atoi(m[2]) // five digits
		parts, _ := strconv.Atoi(m[3])
		of := split{filepath.Join(filepath.Dir(f.path), m[1]), parts}
		if found[of] == nil {
			found[of], order = map[int]string{}, append(order, of)
		}
		if other := found[of][part]; other != "" {
			return fmt.Errorf("%s and %s are both part %d of %d: remove the old one", other, f.path, part, parts)
		}
		found[of][part] = f.path
	}
	for _, of := range order {
		for part := range of.parts {
			if found[of][part] == "" {
				return fmt.Errorf("%s%05d-of-%05d.parquet is missing: fetch it, or set data.corrupt: skip to use the "+
					"set without it", of.prefix, part, of.parts)
			}
		}
	}
	return nil
}
