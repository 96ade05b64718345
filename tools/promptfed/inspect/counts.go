package inspect

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"promptfed/configs"
	"promptfed/federation/data/sets"
	"promptfed/federation/experiment"
	"promptfed/runtime/oneline"
	"promptfed/tools/promptfed/cli"
)

// compareCounts opens every data set of a paper's table and prints the sizes in the paper beside those of the data. A
// set that is not in data.root is no failure; a difference is one.
func compareCounts(path string, changes []string, result *cli.Printer) error {
	table, conf, err := configs.LoadCounts(path, changes)
	if err != nil {
		return cli.Usage(err)
	}

	if _, err := os.Stat(conf.Data.Root); err != nil {
		return cli.Usagef("data.root: %w; give the folder that holds the sets, as in --set data.root=DATA", err)
	}

	out := comparedCounts{Paper: table.Paper, Item: table.Item, Title: table.Title}
	var text strings.Builder
	if title := (configs.PaperTable{Paper: table.Paper, Item: table.Item, Title: table.Title}).Heading(); title != "" {
		fmt.Fprintln(&text, title+"\n")
	}

	writer := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(writer, "set\tnumber\tpaper\there\tdifference")
	var same, absent int
	var wrong []string
	for _, row := range table.Sets {
		diffs, err := compareSet(row, conf)
		set := comparedSet{Label: row.Label, Set: row.Set, Found: err == nil, Sizes: diffs}
		if err != nil {
			set.Reason = oneline.Text(err.Error())
		}

		out.Sets = append(out.Sets, set)
		switch {
		case errors.As(err, new(sets.Missing)):
			absent++
			fmt.Fprintf(writer, "%s\tnot found\n", row.Label)
			continue
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("%s cannot be opened: %v", row.Label, err))
			fmt.Fprintf(writer, "%s\tcannot be opened\n", row.Label)
			continue
		}

		label, off := row.Label, false
		for _, d := range diffs {
			differs := ""
			if d.Here != d.Paper {
				differs, off = fmt.Sprintf("%+d", d.Here-d.Paper), true
			}
			fmt.Fprintf(writer, "%s\t%s\t%d\t%d\t%s\n", label, d.What, d.Paper, d.Here, differs)
			label = ""
		}

		if off {
			wrong = append(wrong, row.Label+" differs")
		} else {
			same++
		}
	}

	writer.Flush()
	fmt.Fprintf(&text, "\n%d of %d sets as in the paper, %d not, %d not found\n", same, len(table.Sets), len(wrong),
		absent)
	for _, list := range []struct {
		title string
		notes []string
	}{{"known errors of the table", table.Wrong}, {"how the table is read", table.Differs}} {
		if len(list.notes) > 0 {
			fmt.Fprintf(&text, "\n%s:\n- %s\n", list.title, strings.Join(list.notes, "\n- "))
		}
	}

	if err := result.Print(out, text.String()); err != nil {
		return err
	}

	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}

	return nil
}

// comparedCounts is a table of a paper beside the data.
type comparedCounts struct {
	Paper string        `json:"paper"`
	Item  string        `json:"item"`
	Title string        `json:"title"`
	Sets  []comparedSet `json:"sets"`
}

type comparedSet struct {
	Label  string `json:"label"`
	Set    string `json:"set"`
	Found  bool   `json:"found"`
	Reason string `json:"reason"` // why it was not opened
	Sizes  []size `json:"sizes"`
}

// size is one number of a set in the paper and in the data.
type size struct {
	What  string `json:"what"`
	Paper int    `json:"paper"`
	Here  int    `json:"here"`
}

// compareSet opens a set and returns the numbers that the paper prints.
func compareSet(row configs.CountedSet, conf experiment.Config) ([]size, error) {
	conf.Data.Set = row.Set
	set, err := sets.Open(conf.Data.Config)
	if err != nil {
		return nil, err
	}

	images := 0
	for _, split := range set.Splits() {
		images += len(*split.Examples)
	}

	var out []size
	for _, n := range []size{{"classes", row.Classes, len(set.Classes)}, {"train", row.Train, len(set.Train)},
		{"val", row.Val, len(set.Val)}, {"test", row.Test, len(set.Test)}, {"images", row.Images, images},
		{"domains", row.Domains, max(1, len(set.Domains))}} {
		if n.Paper > 0 {
			out = append(out, n)
		}
	}

	return out, nil
}
