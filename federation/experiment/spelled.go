package experiment

import (
	"fmt"

	"promptfed/models/bundle"
)

// spelledClasses returns a note about the classes whose names have words that the vocabulary of a backbone hardly
// knows, such as 猫 for an English model: it reads them as single letters or bytes.
func spelledClasses(f *bundle.Bundle, classes []string) ([]string, error) {
	t, err := f.Tokenizer()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, class := range classes {
		spelled, err := t.Spells(class)
		if err != nil {
			return nil, fmt.Errorf("bundle %s: class %.60q: %w", f.Name, class, err)
		}
		if spelled {
			names = append(names, class)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	return []string{fmt.Sprintf("%s reads the words of %s as letters or bytes, because its vocabulary hardly knows "+
		"them: %s; data.class_names gives them names that it knows, such as English ones", f.Name,
		CountInWords(len(names), "class name"), shortList(names))}, nil
}
