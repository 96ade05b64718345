package exported

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Words in the names of folders that hold one tower, as in fastembed.
var (
	imageFolder = regexp.MustCompile(`(?i)(^|[._-])(image|vision|visual|img)([._-]|$)`)
	textFolder  = regexp.MustCompile(`(?i)(^|[._-])(text|textual|txt)([._-]|$)`)
)

// pairs returns the specifications of pairs of folders, one for each tower, whose names differ only in the word for the
// tower; the folders are in dir, directly or as in a download cache.
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

// literal returns a pattern that matches only the path.
func literal(path string) string {
	if filepath.Separator == '\\' { // patterns have no escapes on Windows
		return path
	}
	return regexp.MustCompile(`[*?\[\\]`).ReplaceAllString(path, `\$0`)
}

func holdsONNX(dir string) bool {
	list, _ := os.ReadDir(dir)
	return slices.ContainsFunc(list, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".onnx") })
}
