package source

import (
	"slices"
	"strings"
)

func ShortText(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "..."
	}
	return s
}

// Spaced is a list of names with underscores read as spaces.
func Spaced(names []string) []string {
	out := slices.Clone(names)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "_", " ")
	}
	return out
}
