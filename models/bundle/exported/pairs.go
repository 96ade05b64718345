package exported

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Words of folders that hold one tower, as fastembed names them.
var (
	imageFolder = regexp.MustCompile(`(?i)(^|[._-])(image|vision|visual|img)([._-]|$)`)
	textFolder  = regexp.MustCompile(`(?i)(^|[._-])(text|textual|txt)([._-]|$)`)
)

// pairs are the specifications that open folders of one tower each, inside dir or as its cache of downloads has them,
// whose names differ in the tower only.
func pairs(dir string) []string {
	dir = filepath.Clean(dir)
	images, texts := map[string]string{}, map[string]string{}
	for _, pattern := range []string{"*", "*/snapshots/*"} {
		list, _ := filepath.Glob(filepath.Join(literal(dir), pattern))
		for _, sub := range list[:min(len(list), maxListed)] {
			name, err := filepath.Rel(dir, sub)
			if err != nil {
				continue
			}
			name, _, _ = strings.Cut(filepath.ToSlash(name), "/")
			image, text := imageFolder.ReplaceAllString(name, "$1*$3"), textFolder.ReplaceAllString(name, "$1*$3")
			if (image == name) == (text == name) || !holdsONNX(sub) {
				continue
			}
			if image != name {
				images[image] = sub
			} else {
				texts[text] = sub
			}
		}
	}
	var out []string
	for key, image := range images {
		if text := texts[key]; text != "" {
			out = append(out, fmt.Sprintf("image=%s,text=%s", image, text))
		}
	}
	slices.Sort(out)
	return out
}

// literal is a path as a pattern that matches it alone.
func literal(path string) string {
	if filepath.Separator == '\\' { // such patterns have no escapes
		return path
	}
	return regexp.MustCompile(`[*?\[\\]`).ReplaceAllString(path, `\$0`)
}

func holdsONNX(dir string) bool {
	list, _ := os.ReadDir(dir)
	return slices.ContainsFunc(list, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".onnx") })
}
