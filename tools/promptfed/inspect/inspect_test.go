package inspect

import (
	"slices"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/tokenizer"
)

// inspect describes in one line how a model treats texts, if the treatment is not that of the tokenizer.
func TestInspectShowsTexts(t *testing.T) {
	x := tokenizer.TextCleaning{Clean: tokenizer.Canonicalize, StripSep: true, Sep: "[SEP]"}
	for want, r := range map[string][]bundle.Report{
		"cleaned: canonicalize, token 0 for the separator [SEP]": {{Bundle: &bundle.Bundle{Texts: x}},
			{Arch: &checkpoint.Arch{Texts: checkpoint.Texts{TextCleaning: x}}}},
		"": {{Bundle: &bundle.Bundle{}}, {Arch: &checkpoint.Arch{}}},
	} {
		for _, r := range r {
			rows := inspectedOf(r, false).rows()
			i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == "texts" })
			if (i >= 0) != (want != "") || i >= 0 && rows[i][1] != want {
				t.Errorf("%v, want %q", rows, want)
			}
		}
	}
}
