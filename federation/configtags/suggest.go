package configtags

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hbollon/go-edlib"
)

const (
	mostSuggestions = 3
	mostListed      = 8 // known names in a message
)

// Suggest says what to use instead of an unknown name: the most similar of the known names, or all of them if they are
// few. all says where they are listed, and may be empty.
func Suggest(name string, known []string, all string) string {
	similar := Similar(name, known)
	switch {
	case len(known) <= mostListed, len(similar) == 0 && all == "":
		return "use " + Alternatives(known)
	case len(similar) == 0:
		return all
	}

	return strings.TrimSpace("did you mean " + Alternatives(similar) + "? " + all)
}

// Alternatives joins names, as in a, b or c.
func Alternatives(names []string) string {
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return strings.Join(names, "")
}

// Similar returns the known names that someone who wrote name may mean, the most similar first. At most every fourth
// letter differs, or one; two neighbours in the wrong order are one difference. The section of a key may be missing, as
// in lr for train.lr.
func Similar(name string, known []string) []string {
	section, last := cut(strings.ToLower(name))
	score := map[string]int{} // twice the distance, and 1 for a missing section
	var out []string
	for _, key := range known {
		ofSection, ofLast := cut(strings.ToLower(key))
		n, d := len(section+last), edlib.OSADamerauLevenshteinDistance(section+last, ofSection+ofLast)
		s := 2 * d
		if section == ofSection || section == "" {
			n, d = len(last), edlib.OSADamerauLevenshteinDistance(last, ofLast)
			s = 2 * d
			if section != ofSection {
				s++
			}
		}
		if _, found := score[key]; !found && (d == 0 || n > 2 && d <= max(1, n/4)) {
			score[key], out = s, append(out, key)
		}
	}

	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(score[a], score[b]) })
	if far := slices.IndexFunc(out, func(k string) bool { return score[k] > score[out[0]]+2 }); far >= 0 {
		out = out[:far]
	}

	return out[:min(len(out), mostSuggestions)]
}

// cut splits a key behind its section.
func cut(key string) (section, last string) {
	i := strings.LastIndexByte(key, '.') + 1
	return key[:i], key[i:]
}
