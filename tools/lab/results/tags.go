package results

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"promptfed/runtime/atomicfile"
)

// TagsFile holds the user's tags of a run, as a sorted JSON list.
const TagsFile = "tags.json"

// checkTags rejects tags that are empty, long, or have blanks, commas or unprintable characters.
func checkTags(tags *[]string) error {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == ',' || r == '|' }
	for _, t := range *tags {
		if t == "" || len(t) > 64 || strings.ContainsFunc(t, bad) {
			return fmt.Errorf("%.70q is not a tag: give a word of at most 64 characters without blanks and commas", t)
		}
	}
	return nil
}

// Tag adds tags to a run and removes others from it.
func (r *Run) Tag(add, remove []string) error {
	if err := checkTags(&add); err != nil {
		return err
	}
	tags := slices.DeleteFunc(slices.Concat(r.Tags, add), func(t string) bool { return slices.Contains(remove, t) })
	slices.Sort(tags)
	r.Tags = slices.Compact(tags)
	return atomicfile.Write(filepath.Join(r.Dir, TagsFile), atomicfile.JSON(append([]string{}, r.Tags...), ""))
}
