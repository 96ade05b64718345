package configs

import (
	"fmt"
	"slices"
	"strings"
)

// Names with a meaning of their own in a card.
const (
	AverageLabel = "Average" // of the mean over a row or a column
	DomainAxis   = "domain"  // the pseudo-axis whose labels are the domains of the data
	ExamAxis     = "exam"    // the pseudo-axis whose labels are exams: other classes, sets or domains
)

// Card says what a sweep reproduces: a table or a figure of a paper, the numbers printed there, how it is laid out, and
// what is known about it.
type Card struct {
	Paper     string   `config:"paper" json:"paper" help:"name and venue"`
	Item      string   `config:"item" json:"item" help:"which table or figure, as in Table 2 or Figure S1"`
	Title     string   `config:"title" json:"title" help:"what it shows, in one line"`
	Rows      []string `config:"rows" json:"rows,omitempty" help:"axes in the rows of the table; domain and exam, which every run has, may be among them"`
	Columns   []string `config:"columns" json:"columns,omitempty" help:"axes in its columns; axes in neither are averaged over"`
	Metric    string   `config:"metric" json:"metric,omitempty" help:"last, best, last5, last10, global, personal, weighted, f1, worst, loss, bytes, seconds, domain:NAME or exam:NAME; empty is last"`
	Average   string   `config:"average" json:"average,omitempty" help:"adds means labelled Average: row, column or both"`
	Numbers   Numbers  `config:"numbers" json:"numbers" help:"the paper's own numbers"`
	NoNumbers string   `config:"no_numbers" yaml:"no_numbers" json:"no_numbers,omitempty" help:"why there are none, such as: the figure prints none"`
	Figures   []Figure `config:"figures" json:"figures,omitempty" help:"what a report draws beside the table"`
	Wrong     []string `config:"wrong" json:"wrong,omitempty" help:"what is known to be wrong or contradictory in the paper, a sentence each"`
	Differs   []string `config:"differs" json:"differs,omitempty" help:"where this file differs from the paper and why, a sentence each"`
}

// Numbers are the numbers that a paper prints.
type Numbers struct {
	Unit   string   `config:"unit" json:"unit,omitempty" help:"percent, fraction, seconds, minutes, hours, bytes, kilobytes, megabytes, gigabytes or plain; empty is percent"`
	By     []string `config:"by" json:"by,omitempty" help:"axes whose labels the values are nested by, from the outermost; domain and exam may be among them"`
	Values Values   `config:"values" json:"values" help:"label: value, nested; a value is a mean or [mean, standard deviation]"`
}

// Figure is one drawing of a report.
type Figure struct {
	Kind   string `config:"kind" json:"kind" help:"curves, shots, sensitivity, heatmap, box, scatter3, strips, tsne, pca, bubbles or cost"`
	Title  string `config:"title" json:"title,omitempty" help:"above the figure"`
	Metric string `config:"metric" json:"metric,omitempty" help:"empty is that of the card"`
	X      string `config:"x" json:"x,omitempty" help:"axis"`
	Y      string `config:"y" json:"y,omitempty" help:"axis"`
	Z      string `config:"z" json:"z,omitempty" help:"axis"`
	Line   string `config:"line" json:"line,omitempty" help:"axis with a line for each label"`
	Panel  string `config:"panel" json:"panel,omitempty" help:"axis with a panel for each label"`
	Group  string `config:"group" json:"group,omitempty" help:"of boxes: an axis, domain or backbone"`
}

var (
	metrics = []string{"last", "best", "last5", "last10", "global", "personal", "weighted", "f1", "worst", "loss", "bytes", "seconds"}
	units   = []string{"percent", "fraction", "seconds", "minutes", "hours", "bytes", "kilobytes", "megabytes", "gigabytes", "plain"}
	figures = []string{"curves", "shots", "sensitivity", "heatmap", "box", "scatter3", "strips", "tsne", "pca", "bubbles", "cost"}
	groups  = []string{DomainAxis, "backbone"}
)

// Number is the paper's number at labels, one for each axis that the numbers are nested by.
func (c *Card) Number(labels map[string]string) (mean, std float64, hasStd, ok bool) {
	if c == nil {
		return 0, 0, false, false
	}
	at := &c.Numbers.Values
	for _, axis := range c.Numbers.By {
		label, given := labels[axis]
		if !given || at == nil {
			return 0, 0, false, false
		}
		at = at.under[label]
	}
	if at == nil || !at.leaf {
		return 0, 0, false, false
	}
	return at.mean, at.std, at.hasStd, true
}

// check finds what cannot be meant: axes and labels that the sweep does not have, and words that are not known.
func (c *Card) check(axes []Axis) error {
	names := []string{DomainAxis, ExamAxis}
	for _, a := range axes {
		names = append(names, a.Name)
	}
	axis := func(key, name string, also ...string) error {
		if list := append(slices.Clone(names), also...); !slices.Contains(list, name) {
			return fmt.Errorf("%s: there is no axis %q; there are %s", key, name, strings.Join(list, ", "))
		}
		return nil
	}
	seen := map[string]bool{}
	for _, list := range []struct {
		key   string
		names []string
	}{{"card.rows", c.Rows}, {"card.columns", c.Columns}} {
		for _, name := range list.names {
			if err := axis(list.key, name); err != nil {
				return err
			}
			if seen[name] {
				return fmt.Errorf("%s: axis %q stands twice in rows and columns", list.key, name)
			}
			seen[name] = true
		}
	}
	if err := metric("card.metric", c.Metric); err != nil {
		return err
	}
	if err := oneOf("card.average", c.Average, "row", "column", "both"); err != nil {
		return err
	}
	for i, f := range c.Figures {
		at := fmt.Sprintf("card.figures: figure %d: ", i+1)
		if f.Kind == "" {
			return fmt.Errorf("%sit has no kind; there are %s", at, strings.Join(figures, ", "))
		}
		if err := oneOf(at+"kind", f.Kind, figures...); err != nil {
			return err
		}
		if err := metric(at+"metric", f.Metric); err != nil {
			return err
		}
		for _, k := range []struct{ key, name string }{{"x", f.X}, {"y", f.Y}, {"z", f.Z}, {"line", f.Line}, {"panel", f.Panel}, {"group", f.Group}} {
			var also []string
			if k.key == "group" {
				also = groups[1:]
			}
			if k.name == "" {
				continue
			}
			if err := axis(at+k.key, k.name, also...); err != nil {
				return err
			}
		}
	}
	return c.checkNumbers(axes, axis)
}

func (c *Card) checkNumbers(axes []Axis, axis func(key, name string, also ...string) error) error {
	n := c.Numbers
	if err := oneOf("card.numbers.unit", n.Unit, units...); err != nil {
		return err
	}
	for i, name := range n.By {
		if err := axis("card.numbers.by", name); err != nil {
			return err
		}
		if slices.Contains(n.By[:i], name) {
			return fmt.Errorf("card.numbers.by: axis %q stands twice", name)
		}
	}
	if n.Values.Empty() {
		return nil
	}
	if c.NoNumbers != "" {
		return fmt.Errorf("card.no_numbers: there are numbers; remove one of the two")
	}
	return n.Values.check("card.numbers.values", n.By, axes)
}

func metric(key, name string) error {
	if kind, of, ok := strings.Cut(name, ":"); ok && of != "" && (kind == "domain" || kind == "exam") {
		return nil
	}
	return oneOf(key, name, append(slices.Clone(metrics), "domain:NAME", "exam:NAME")...)
}

// oneOf checks a word that may be empty.
func oneOf(key, is string, known ...string) error {
	if is == "" || slices.Contains(known, is) {
		return nil
	}
	return fmt.Errorf("%s: %q is not known; take %s", key, is, strings.Join(known, ", "))
}
