package results

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"promptfed/runtime/atomicfile"
)

// TagsFile holds the user's tags of a run, as a sorted JSON list.
const TagsFile = "tags.json"

// maxTags is the size limit of TagsFile, in bytes.
const maxTags = 64 << 10

// CheckTag rejects tags that are empty, long, or have blanks, commas or unprintable characters.
func CheckTag(tag string) error {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == ',' || r == '|' }
	if tag == "" || len(tag) > 64 || strings.ContainsFunc(tag, bad) {
		return fmt.Errorf("%.70q is not a tag: give a word of at most 64 characters without blanks and commas", tag)
	}
	return nil
}

// readTags reads the tags of a run folder.
func readTags(dir string) ([]string, error) {
	text, err := readSmall(filepath.Join(dir, TagsFile), maxTags)
	if text == nil || err != nil {
		return nil, err
	}
	var tags []string
	if err := json.Unmarshal(text, &tags); err != nil {
		return nil, fmt.Errorf("is not a list of tags: %w", err)
	}
	for _, t := range tags {
		if err := CheckTag(t); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// Tag adds tags to a run and removes others from it.
func (r *Run) Tag(add, remove []string) error {
	for _, t := range add {
		if err := CheckTag(t); err != nil {
			return err
		}
	}
	tags := slices.DeleteFunc(slices.Concat(r.Tags, add), func(t string) bool { return slices.Contains(remove, t) })
	slices.Sort(tags)
	r.Tags = slices.Compact(tags)
	return atomicfile.Write(filepath.Join(r.Dir, TagsFile), atomicfile.JSON(append([]string{}, r.Tags...), ""))
}
