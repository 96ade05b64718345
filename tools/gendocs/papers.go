package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"promptfed/configs"
)

// withoutFile lists what a paper has and no file runs.
var withoutFile = map[string][]configs.LeftOut{
	"FedAPPR (ICLR 2026 submission)": {{What: "Figure 3", Why: "A drawing of the method."}},
	"FedPHA (ICML 2025)": {{What: "Figures 1 and 2", Why: "Drawings of the method."},
		{What: "Table 5", Why: "A list of symbols."},
		{What: "Trainable start and end tokens (equation 1)", Why: "They are frozen here, as in the public code."}},
	"pFedDC (arXiv 2506.21144)": {{What: "Figure 1", Why: "A drawing of the method."}},
	"SDFed (arXiv 2602.08590)": {{What: "Figures 1 and 2", Why: "Drawings of the method."},
		{What: "Table 8", Why: "A list of symbols."}, {What: "Table 9", Why: "Settings, which Table 4 has."},
		{What: "Trainable start and end tokens (Table 8)", Why: "Section 3.2 freezes them."},
		{What: "Privacy of records (section 3.6)", Why: "`dp` protects clients."}},
}

// item is a file of configs/papers.
type item struct {
	file string
	Card struct {
		Paper, Item, Title string
		Differs            []configs.Difference
		LeftOut            []configs.LeftOut `yaml:"left_out"`
	}
	Counts struct {
		Paper, Item, Title string
	}
}

// paperTables returns for each paper what runs, where it differs from the paper, and what does not run.
func paperTables(root string) (string, error) {
	folders, err := filepath.Glob(filepath.Join(root, "configs", "papers", "*"))
	if err != nil {
		return "", err
	}

	var out strings.Builder
	left := maps.Clone(withoutFile)
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil {
			return "", err
		}

		if len(paths) == 0 {
			continue // a folder without papers, or a file beside the folders
		}

		items := make([]item, len(paths))
		for i, path := range paths {
			text, err := os.ReadFile(path)
			if err == nil {
				err = yaml.Unmarshal(text, &items[i])
			}
			if err != nil {
				return "", fmt.Errorf("%s: %w", path, err)
			}
			items[i].file = filepath.Base(folder) + "/" + filepath.Base(path)
		}

		paper := cmp.Or(items[0].Card.Paper, items[0].Counts.Paper)
		writePaper(&out, paper, items, left[paper])
		delete(left, paper)
	}

	for paper := range left {
		return "", fmt.Errorf("no file of configs/papers is of %s", paper)
	}

	return out.String(), nil
}

func writePaper(out *strings.Builder, paper string, items []item, left []configs.LeftOut) {
	type note struct {
		configs.Difference
		at []string
	}
	var notes []*note
	left = slices.Clone(left)

	for _, f := range items {
		for _, d := range f.Card.Differs {
			i := slices.IndexFunc(notes, func(n *note) bool { return n.String() == d.String() })
			if i < 0 {
				i = len(notes)
				notes = append(notes, &note{Difference: d})
			}
			notes[i].at = append(notes[i].at, f.Card.Item)
		}
		for _, l := range f.Card.LeftOut {
			left = append(left, configs.LeftOut{What: f.Card.Item + ": " + l.What, Why: l.Why})
		}
	}

	slices.SortStableFunc(notes, func(a, b *note) int { return len(b.at) - len(a.at) })
	fmt.Fprintf(out, "### %s\n\n%s\n%s\n", paper, table(items, func(f item) []string {
		return []string{cmp.Or(f.Card.Item, f.Counts.Item), cmp.Or(f.Card.Title, f.Counts.Title), code(f.file)}
	}, "what runs", "shows", "file"), table(notes, func(n *note) []string {
		at := strings.Join(n.at, ", ")
		if len(n.at) > len(items)/2 {
			at = fmt.Sprintf("%d of %d files", len(n.at), len(items))
		}
		return []string{n.Paper, n.Here, n.Why, at}
	}, "the paper says", "here", "why", "in"))

	if len(left) > 0 {
		fmt.Fprintf(out, "%s\n", table(left, func(l configs.LeftOut) []string { return []string{l.What, l.Why} },
			"what does not run", "why"))
	}
}
