package experiment

import (
	"fmt"

	"promptfed/models/bundle"
)

// spelledClasses returns a note about the classes whose names have words that the vocabulary of a backbone hardly
// knows, such as 猫 for an English model: it reads them as single letters or bytes.
func spelledClasses(model *bundle.Bundle, classes []string) ([]string, error) {
	t, err := model.Tokenizer()
	if err != nil {
		return nil, err
	}

	var names []string
	for _, class := range classes {
		spelled, err := t.Spells(class)
		if err != nil {
			return nil, fmt.Errorf("bundle %s: class %.60q: %w", model.Name, class, err)
		}
		if spelled {
			names = append(names, class)
		}
	}

	if len(names) == 0 {
		return nil, nil
	}

	return []string{fmt.Sprintf("%s reads the words of %s as letters or bytes, because its vocabulary hardly knows "+
		"them: %s; data.class_names gives them names that it knows, such as English ones", model.Name,
		CountInWords(len(names), "class name"), shortList(names))}, nil
}

// alikeNotes returns lines about classes whose names have the same tokens for a backbone, such as names that differ in
// capitals or in letters that its vocabulary lacks: no text distinguishes them.
func alikeNotes(model *bundle.Bundle, lists [][]string) (notes []string, err error) {
	said := map[string]bool{}
	for _, classes := range lists {
		tokens, err := model.ClassTokens(classes)
		if err != nil {
			return nil, err
		}

		first := map[string]string{}
		for i, ids := range tokens {
			key := fmt.Sprint(ids)
			had, ok := first[key]
			if !ok {
				first[key] = classes[i]
				continue
			}
			line := fmt.Sprintf("%s reads the classes %q and %q as the same tokens, so that no prompt tells them "+
				"apart; data.class_names gives them other names", model.Name, had, classes[i])
			if !said[line] {
				said[line], notes = true, append(notes, line)
			}
		}
	}

	if n := len(notes) - mostAlike; n > 0 {
		notes = append(notes[:mostAlike], fmt.Sprintf("%s reads %s more alike", model.Name, CountInWords(n, "class")))
	}

	return notes, nil
}

// mostAlike bounds the lines of alikeNotes for one backbone.
const mostAlike = 5
