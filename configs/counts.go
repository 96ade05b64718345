package configs

import (
	"cmp"
	"fmt"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/sets"
	"promptfed/federation/experiment"
)

// CountsFile is the section of a file that lists sizes of data sets, which promptfed partition compares with the data.
// The file opens every set with its ordinary keys, such as data.root and data.split.
type CountsFile struct {
	Counts Counts `config:"counts" help:"the sizes of data sets that a paper prints"`
}

// Counts is a table of a paper with the sizes of its data sets.
type Counts struct {
	Paper   string       `config:"paper" help:"name and venue"`
	Item    string       `config:"item" help:"which table, as in Table 6"`
	Title   string       `config:"title" help:"what it shows, in one line"`
	Sets    []CountedSet `config:"sets" help:"its rows; leave out numbers that the paper does not print"`
	Wrong   []string     `config:"wrong" help:"known errors and contradictions of the table, one sentence each"`
	Differs []string     `config:"differs" help:"how the table is read here, one sentence each"`
}

// CountedSet is a row of Counts: the sizes of one data set in classes, examples and domains. A size of 0 is not printed
// in the paper and is not compared.
type CountedSet struct {
	Label   string `config:"label" help:"its name in the paper"`
	Set     string `config:"set" help:"one of promptfed list datasets"`
	Classes int    `config:"classes" help:"number of classes"`
	Train   int    `config:"train" help:"training examples"`
	Val     int    `config:"val" help:"validation examples"`
	Test    int    `config:"test" help:"test examples"`
	Images  int    `config:"images" help:"all examples, with data.split: pooled-no-val those of training and test"`
	Domains int    `config:"domains" help:"visual domains; a set without domains has one"`
}

// LoadCounts reads a file with a section counts, and the configuration for opening its sets; sets are changes
// "key=value" of the configuration. An error names its place in the file.
func LoadCounts(path string, sets []string) (Counts, experiment.Config, error) {
	config := experiment.Defaults()
	text, err := readText(path)
	if err != nil {
		return Counts{}, config, err
	}

	file, err := parse(path, text)
	if err != nil {
		return Counts{}, config, err
	}

	var countsFile CountsFile
	if _, err := file.sections(text, &countsFile); err != nil {
		return countsFile.Counts, config, err
	}

	if _, _, err := into(&config, file, sets); err != nil {
		return countsFile.Counts, config, err
	}

	if err := countsFile.Counts.check(config); err != nil {
		return countsFile.Counts, config, fmt.Errorf("%s: %w", path, err)
	}

	return countsFile.Counts, config, nil
}

// check checks that every row has a set and a size.
func (t Counts) check(config experiment.Config) error {
	if len(t.Sets) == 0 {
		return fmt.Errorf("counts.sets: no data set; give at least one")
	}

	for i, row := range t.Sets {
		at := fmt.Sprintf("counts.sets[%d]", i)
		sizes := []int{row.Classes, row.Train, row.Val, row.Test, row.Images, row.Domains}
		config.Data.Set = row.Set
		wrong := sets.Validate(config.Data.Config)

		if err := cmp.Or(data.Need(row.Label != "" && row.Set != "", "%s has no label or no set; give both", at),
			data.Need(slices.Min(sizes) >= 0, "%s: %s has a negative number; leave out what the paper does not print",
				at, row.Label),
			data.Need(slices.Max(sizes) > 0, "%s: %s has no number to compare", at, row.Label),
			data.Need(wrong == nil, "%s: %s: %w", at, row.Label, wrong)); err != nil {
			return err
		}
	}

	return nil
}
