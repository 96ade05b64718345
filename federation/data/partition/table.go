package partition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"promptfed/federation/data"
	"promptfed/runtime/tensor"
)

// File is the content of a partition file: the indices of each client, and the label of every index, by list: train,
// val (if the set has one) and test, or pool.
type File struct {
	Clients []Client         `json:"clients"`
	Labels  map[string][]int `json:"labels" key:"SPLIT"`
}

// FileOf returns the partition file of a set.
func FileOf(set *data.Set, clients []Client) File {
	file := File{Clients: append([]Client{}, clients...), Labels: map[string][]int{}}
	for i := range file.Clients {
		c := &file.Clients[i]
		for _, l := range []*[]int{&c.Train, &c.Val, &c.Test} {
			if *l == nil {
				*l = []int{}
			}
		}
	}

	for _, sp := range set.Splits() {
		file.Labels[sp.Name] = data.Labels(*sp.Examples)
	}

	return file
}

// maxColumns is the largest number of classes that Table writes as columns.
const maxColumns = 24

// Table writes the partition as text: one line for each client with its sizes and its training examples of every class.
// With more than 24 classes, a line has the client's number of classes and its five largest ones. The last two lines
// are the summary.
func Table(set *data.Set, clients []Client) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := []string{"client", "train", "val", "test"}
	domains := slices.ContainsFunc(clients, func(c Client) bool { return c.Domain != "" })
	if domains {
		head = append(head, "domain")
	}

	columns := len(set.Classes) <= maxColumns
	if columns {
		head = append(head, set.Classes...)
	} else {
		head = append(head, "classes", "largest")
	}

	fmt.Fprintln(table, strings.Join(head, "\t")+"\t")
	for i, c := range clients {
		train, val, test := c.Of(set)
		row := []string{fmt.Sprint(i), fmt.Sprint(len(train)), fmt.Sprint(len(val)), fmt.Sprint(len(test))}
		if domains {
			row = append(row, c.Domain)
		}

		counts := set.Counts(train)
		if columns {
			for _, n := range counts {
				row = append(row, cmp.Or(strings.TrimPrefix(fmt.Sprint(n), "0"), "."))
			}
		} else {
			row = append(row, largest(set, counts, 5)...)
		}

		fmt.Fprintln(table, strings.Join(row, "\t")+"\t")
	}

	table.Flush()
	text.WriteString(Summarise(set, clients).footer())
	return text.String()
}

// largest returns the number of classes that occur, and the n most frequent ones with their counts.
func largest(set *data.Set, counts []int, n int) []string {
	have := slices.DeleteFunc(tensor.Indices(len(counts)), func(k int) bool { return counts[k] == 0 })
	total := len(have)
	slices.SortStableFunc(have, func(a, b int) int { return counts[b] - counts[a] })
	var words []string
	for _, k := range have[:min(n, total)] {
		words = append(words, fmt.Sprintf("%s %d", set.Classes[k], counts[k]))
	}

	return []string{fmt.Sprint(total), strings.Join(words, ", ")}
}
