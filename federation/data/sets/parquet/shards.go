package parquet

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
)

// shard is how Hugging Face names the parts of a split: train-00001-of-00004.parquet, at times with a digest behind.
var shard = regexp.MustCompile(`(?i)^(.*-)(\d{5})-of-(\d{5})(-[0-9a-z]+)?\.parquet$`)

// complete refuses files of which the names say that others of the same split are missing, as after a download that was
// cut short, or that one part is there twice.
func complete(files []pqNamed) error {
	type split struct {
		prefix string // with the folder
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
