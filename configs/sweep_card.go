package configs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/engine/metrics"
)

// Reserved names of a card.
const (
	AverageLabel = "Average" // label of the mean of a row or a column
	DomainAxis   = "domain"  // pseudo-axis whose labels are the domains of the data
	SetAxis      = "set"     // pseudo-axis whose labels are evaluation sets: other classes, sets or domains
	MetricAxis   = "metric"  // pseudo-axis whose labels are Card.Metrics
	ClassPanel   = "class"   // panel of a figure of kind pca: one for each class
)

const (
	ViewGlobal    = "global"   // the average of the shared parameters
	ViewPersonal  = "personal" // the own parameters of each client after its local training
	ViewNotStated = "unsaid"   // not stated in the paper
)

// PaperTable describes a table or a figure of a paper that a sweep reproduces: its printed numbers, its layout, and
// known differences.
type PaperTable struct {
	Paper     string   `config:"paper" json:"paper" help:"name and venue"`
	Item      string   `config:"item" json:"item" help:"which table or figure, as in Table 2 or Figure S1"`
	Title     string   `config:"title" json:"title" help:"what it shows, in one line"`
	Rows      []string `config:"rows" json:"rows,omitempty"`
	Columns   []string `config:"columns" json:"columns,omitempty" help:"axes in its columns; others are averaged over"`
	Metric    string   `config:"metric" json:"metric,omitempty"`
	Metrics   []string `config:"metrics" yaml:",omitempty" json:"metrics,omitempty"`
	Average   string   `config:"average" json:"average,omitempty" help:"means labelled Average: row, column or both"`
	Views     Views    `config:"views" json:"views,omitzero" yaml:",omitempty" help:"which evaluation its numbers are"`
	Control   string   `config:"control" yaml:",omitempty" json:"control,omitempty"`
	Numbers   Numbers  `config:"numbers" json:"numbers" help:"the paper's own numbers"`
	NoNumbers string   `config:"no_numbers" yaml:"no_numbers" json:"no_numbers,omitempty"`
	Figures   []Figure `config:"figures" json:"figures,omitempty" help:"what a report draws beside the table"`
	Wrong     []string `config:"wrong" json:"wrong,omitempty"`
	// States lists the keys of the configuration whose values are printed in the paper.
	States  []string     `config:"states" yaml:",omitempty" json:"states,omitempty" help:"keys that the paper prints"`
	Differs []Difference `config:"differs" yaml:",omitempty" json:"differs,omitempty"`
	LeftOut []LeftOut    `config:"left_out" yaml:"left_out,omitempty" json:"left_out,omitempty"`
}

// Difference is one difference of a file from its paper, in sentences.
type Difference struct {
	Paper string   `config:"paper" json:"paper" help:"what the paper says, or that it says nothing"`
	Here  string   `config:"here" json:"here" help:"what runs here"`
	Why   string   `config:"why" json:"why" help:"the reason"`
	Keys  []string `config:"keys" yaml:",omitempty" json:"keys,omitempty" help:"keys of the configuration that make it"`
}

func (d Difference) String() string {
	return fmt.Sprintf("The paper: %s Here: %s Why: %s", d.Paper, d.Here, d.Why)
}

// LeftOut is a part of a table or a figure that a file does not run.
type LeftOut struct {
	What string `config:"what" json:"what" help:"which part"`
	Why  string `config:"why" json:"why" help:"the reason"`
}

func (l LeftOut) String() string { return fmt.Sprintf("Left out: %s %s", l.What, l.Why) }

func (PaperTable) LongHelp() map[string]string {
	return map[string]string{
		"rows":    "axes in the rows of the table; domain and set, which every run has, are possible too",
		"metric":  strings.Join(metrics.Names(), ", ") + "; empty: last",
		"metrics": "metrics in the columns or rows called metric, such as [set:base, set:new, hm]",
		"control": "label to compare all others with, instead of pairwise comparisons: of the axis method, else of " +
			"the first one in rows",
		"no_numbers": "why there are no numbers, such as: the figure prints none",
		"wrong":      "known errors and contradictions of the paper, one sentence each",
		"differs":    "where this file differs from the paper",
		"left_out":   "parts of the table or figure that do not run",
	}
}

// Views names the evaluation of the numbers of a paper, as far as its text states it: global (the server's average) or
// personal (each client's own parameters after local training). The value is unsaid if the text does not state it.
type Views struct {
	Default string            `config:"default" json:"default" help:"for labels not listed: global, personal or unsaid"`
	By      string            `config:"by" json:"by,omitempty" yaml:",omitempty" help:"axis whose labels differ in it"`
	Labels  map[string]string `config:"labels" json:"labels,omitempty" yaml:",omitempty" help:"label: its evaluation"`
	Why     string            `config:"why" json:"why" help:"where the paper states it, in a sentence"`
}

// Numbers is the section numbers of a card: the numbers that the paper prints, their unit, and the axes whose labels
// nest them.
type Numbers struct {
	Unit   string   `config:"unit" json:"unit,omitempty"`
	By     []string `config:"by" json:"by,omitempty"`
	Values Values   `config:"values" json:"values" help:"label: value, nested; a value is a mean or [mean, std]"`
}

func (Numbers) LongHelp() map[string]string {
	return map[string]string{
		"unit": "percent, fraction, seconds, minutes, hours, bytes, kilobytes, megabytes, gigabytes or plain; empty: " +
			"percent",
		"by": "axes by whose labels the values are nested, outermost first; domain and set are possible too",
	}
}

// Figure is an entry of a card's figures: the kind of plot, the metric, and the axes of the sweep that its lines,
// panels and directions stand for.
type Figure struct {
	Kind   string `config:"kind" json:"kind"`
	Title  string `config:"title" json:"title,omitempty" help:"above the figure"`
	Metric string `config:"metric" json:"metric,omitempty" help:"empty: that of the card"`
	X      string `config:"x" json:"x,omitempty" help:"axis; for curves: round, bytes or time (simulated)"`
	Y      string `config:"y" json:"y,omitempty" help:"axis"`
	Z      string `config:"z" json:"z,omitempty" help:"axis"`
	Line   string `config:"line" json:"line,omitempty" help:"axis with a line for each label"`
	Panel  string `config:"panel" json:"panel,omitempty" help:"axis with a panel for each label; for pca also class"`
	Group  string `config:"group" json:"group,omitempty" help:"for boxes: an axis, domain or backbone"`
}

func (Figure) LongHelp() map[string]string {
	return map[string]string{
		"kind": "curves, shots, sensitivity, heatmap, box, scatter3, strips, tsne, pca, bubbles, confusion, cost or " +
			"ranks",
	}
}

var (
	units = []string{"percent", "fraction", "seconds", "minutes", "hours", "bytes", "kilobytes", "megabytes",
		"gigabytes", "plain"}
	figures = []string{"curves", "shots", "sensitivity", "heatmap", "box", "scatter3", "strips", "tsne", "pca",
		"bubbles", "confusion", "cost", RanksFigure}
)

// CurvesFigure is the kind of figures with lines over ProgressAxes: rounds (the default), sent bytes or simulated time.
const CurvesFigure = "curves"

// RanksFigure is the kind of figures with mean ranks of methods over all other axes. A report shows a table of the
// ranks too.
const RanksFigure = "ranks"

// ProgressAxes lists what the horizontal axis of a curve can be: the rounds, BytesAxis or TimeAxis. The first is the
// default.
var ProgressAxes = []string{"round", BytesAxis, TimeAxis}

const (
	BytesAxis = "bytes" // bytes sent so far by all clients, up and down
	TimeAxis  = "time"  // simulated seconds since the start
)

// Heading returns the item of the paper and its title.
func (c PaperTable) Heading() string {
	item := strings.Join(slices.DeleteFunc([]string{c.Paper, c.Item}, func(s string) bool { return s == "" }), ", ")
	if c.Title == "" || item == "" {
		return item + c.Title
	}
	return item + ": " + c.Title
}

// Number returns the paper's number at labels, one label for each axis of the numbers.
func (c *PaperTable) Number(labels map[string]string) (mean, std float64, hasStd, ok bool) {
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

// View returns the evaluation of the paper's number at labels: global, personal or unsaid. It returns "" for a card
// without views: its numbers are seconds or bytes, or nobody has looked.
func (c *PaperTable) View(labels map[string]string) string {
	if c == nil {
		return ""
	}
	return cmp.Or(c.Views.Labels[labels[c.Views.By]], c.Views.Default)
}

// check returns an error about axes and labels that the sweep does not have, and about unknown words.
func (c *PaperTable) check(axes []Axis) error {
	names := []string{DomainAxis, SetAxis}
	if len(c.Metrics) > 0 {
		names = append(names, MetricAxis)
	}

	var pseudo []string
	labels := map[string]bool{}
	for _, a := range axes {
		names = append(names, a.Name)
		for _, label := range a.Labels() {
			labels[label] = true
		}
	}

	axis := func(key, name string, also ...string) error {
		list := slices.Concat(names, also)
		return configtags.Need(slices.Contains(list, name), key, "unknown axis %q: %s", name,
			configtags.Suggest(name, list, ""))
	}

	seen := map[string]bool{}
	for _, list := range []struct {
		key   string
		names []string
	}{{"card.rows", c.Rows}, {"card.columns", c.Columns}} {
		for _, name := range list.names {
			if err := cmp.Or(axis(list.key, name), configtags.Need(!seen[name], list.key,
				"axis %q is listed twice in rows and columns", name)); err != nil {
				return err
			}
			seen[name] = true
			if _, ok := labelsOf(axes, name); !ok {
				pseudo = append(pseudo, name)
			}
		}
	}

	if err := CheckPseudoAxes(pseudo); err != nil {
		return fmt.Errorf("card: %w", err)
	}

	errs := []error{metric("card.metric", c.Metric), configtags.Need(len(c.Metrics) == 0 || seen[MetricAxis],
		"card.metrics", "add metric to card.rows or card.columns, where they are shown")}
	for _, name := range c.Metrics {
		errs = append(errs, configtags.Need(name != "", "card.metrics", "an entry is empty"),
			metric("card.metrics", name))
	}

	errs = append(errs, oneOf("card.average", c.Average, "row", "column", "both"),
		configtags.Need(c.Control == "" || labels[c.Control], "card.control", "no axis has the label %q", c.Control))
	for i, figure := range c.Figures {
		errs = append(errs, figure.check(fmt.Sprintf("card.figures: figure %d: ", i+1), axis))
	}

	for i, d := range c.Differs {
		errs = append(errs, configtags.Need(d.Paper != "" && d.Here != "" && d.Why != "", "card.differs",
			"entry %d: paper, here and why may not be empty", i+1))
	}

	for i, l := range c.LeftOut {
		errs = append(errs, configtags.Need(l.What != "" && l.Why != "", "card.left_out",
			"entry %d: what and why may not be empty", i+1))
	}

	return cmp.Or(append(errs, c.Views.check(axes, axis), c.checkNumbers(axes, axis))...)
}

// axisCheck returns an error for a name that is neither an axis of the sweep nor one of some others.
type axisCheck func(key, name string, also ...string) error

// labelsOf returns the labels of an axis of the sweep; ok is false for a pseudo-axis.
func labelsOf(axes []Axis, name string) (labels []string, ok bool) {
	i := slices.IndexFunc(axes, func(a Axis) bool { return a.Name == name })
	if i < 0 {
		return nil, false
	}
	return axes[i].Labels(), true
}

func (f Figure) check(at string, axis axisCheck) error {
	if f.Kind == "" {
		return fmt.Errorf("%skind is missing; use one of %s", at, strings.Join(figures, ", "))
	}

	errs := []error{oneOf(at+"kind", f.Kind, figures...), metric(at+"metric", f.Metric)}
	for _, entry := range []struct {
		key, name string
		also      []string
	}{{"x", f.X, nil}, {"y", f.Y, nil}, {"z", f.Z, nil}, {"line", f.Line, nil}, {"panel", f.Panel, f.panels()},
		{"group", f.Group, []string{"backbone"}}} {
		switch {
		case entry.name == "":
		case entry.key == "x" && f.Kind == CurvesFigure:
			errs = append(errs, oneOf(at+entry.key, entry.name, ProgressAxes...))
		default:
			errs = append(errs, axis(at+entry.key, entry.name, entry.also...))
		}
	}

	return cmp.Or(errs...)
}

// panels are the words that panel may be beside an axis.
func (f Figure) panels() []string {
	if f.Kind == "pca" {
		return []string{ClassPanel}
	}
	return nil
}

// CheckPseudoAxes refuses a layout with two of the pseudo-axes. A run has one number for a domain, a set or a metric,
// but none for two of them together.
func CheckPseudoAxes(axes []string) error {
	first := ""
	for _, name := range axes {
		if !slices.Contains([]string{DomainAxis, SetAxis, MetricAxis}, name) {
			continue
		}
		if first != "" {
			return fmt.Errorf("rows and columns have the axes %s and %s, but a run has no number for both together; "+
				"keep one, and give the metric of the table in metric", first, name)
		}
		first = name
	}

	return nil
}

func (v Views) check(axes []Axis, axis axisCheck) error {
	if v.Default == "" && v.By == "" && len(v.Labels) == 0 && v.Why == "" {
		return nil
	}

	view := func(key, is string) error {
		return cmp.Or(configtags.Need(is != "", key, "missing; use global, personal or unsaid"),
			oneOf(key, is, ViewGlobal, ViewPersonal, ViewNotStated))
	}

	errs := []error{view("card.views.default", v.Default), configtags.Need(v.Why != "", "card.views.why",
		"missing; say where the paper states which evaluation it reports, or that it does not"),
		configtags.Need((v.By == "") == (len(v.Labels) == 0), "card.views",
			"by names the axis of labels; give both or neither")}
	if v.By != "" {
		errs = append(errs, axis("card.views.by", v.By))
	}

	labels, listed := labelsOf(axes, v.By)
	for _, label := range slices.Sorted(maps.Keys(v.Labels)) {
		at := "card.views.labels." + label
		errs = append(errs, configtags.Need(!listed || slices.Contains(labels, label), at,
			"axis %s has no such label; it has %s", v.By, strings.Join(labels, ", ")), view(at, v.Labels[label]))
	}

	return cmp.Or(errs...)
}

func (c *PaperTable) checkNumbers(axes []Axis, axis axisCheck) error {
	numbers := c.Numbers
	errs := []error{oneOf("card.numbers.unit", numbers.Unit, units...)}
	for i, name := range numbers.By {
		errs = append(errs, axis("card.numbers.by", name), configtags.Need(!slices.Contains(numbers.By[:i], name),
			"card.numbers.by", "axis %q is listed twice", name))
	}

	if !numbers.Values.Empty() {
		errs = append(errs, configtags.Need(c.NoNumbers == "", "card.no_numbers",
			"there are numbers; remove one of the two"), numbers.Values.check("card.numbers.values", numbers.By, axes))
	}

	return cmp.Or(errs...)
}

// metric checks the name of a metric, which may be empty.
func metric(key, name string) error {
	if name == "" {
		return nil
	}
	if _, err := metrics.ParseName(name); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// oneOf checks a word that may be empty.
func oneOf(key, is string, known ...string) error {
	if is == "" {
		return nil
	}
	return data.OneOf(key, is, known...)
}

// Values are numbers nested by labels: a tree whose leaves are a mean with or without a standard deviation.
type Values struct {
	leaf      bool
	mean, std float64
	hasStd    bool
	under     map[string]*Values
}

// Empty reports whether there is no number: v is no leaf and has no labels.
func (v Values) Empty() bool { return !v.leaf && len(v.under) == 0 }

// UnmarshalYAML reads a number, [mean, standard deviation] or a map of labels.
func (v *Values) UnmarshalYAML(node *yaml.Node) error {
	*v = Values{}
	switch node.Kind {
	case yaml.MappingNode:
		return node.Decode(&v.under)
	case yaml.SequenceNode:
		var list []float64
		if err := node.Decode(&list); err != nil {
			return err
		}
		if len(list) != 2 {
			return fmt.Errorf("line %d: %d numbers in a list; a value is a mean or [mean, standard deviation]",
				node.Line, len(list))
		}
		v.leaf, v.hasStd, v.mean, v.std = true, true, list[0], list[1]
	default:
		v.leaf = true
		if node.Tag == "!!null" {
			return fmt.Errorf("line %d: a value is missing; leave its label out where the paper has none", node.Line)
		}
		if err := node.Decode(&v.mean); err != nil {
			return err
		}
	}

	if math.IsNaN(v.mean) || math.IsInf(v.mean, 0) || math.IsInf(v.std, 0) || !(v.std >= 0) {
		return fmt.Errorf("line %d: %v ± %v is not a mean with a standard deviation", node.Line, v.mean, v.std)
	}

	return nil
}

func (v Values) plain() any {
	switch {
	case v.hasStd:
		return []float64{v.mean, v.std}
	case v.leaf:
		return v.mean
	}

	out := map[string]any{}
	for label, under := range v.under {
		if under != nil {
			out[label] = under.plain()
		}
	}

	return out
}

func (v Values) MarshalYAML() (any, error) { return v.plain(), nil }

func (v Values) MarshalJSON() ([]byte, error) { return json.Marshal(v.plain()) }

// UnmarshalJSON reads JSON, which is YAML.
func (v *Values) UnmarshalJSON(b []byte) error { return yaml.Unmarshal(b, v) }

// check checks the labels against the axes of the values. Leaves must be below the last axis.
func (v *Values) check(at string, by []string, axes []Axis) error {
	if len(by) == 0 {
		if v == nil || !v.leaf {
			return fmt.Errorf("%s: a number is expected here; name the axes that values are nested by under "+
				"card.numbers.by", at)
		}
		return nil
	}

	if v == nil || v.leaf {
		return fmt.Errorf("%s: labels of axis %s are expected here (card.numbers.by)", at, by[0])
	}

	labels, listed := labelsOf(axes, by[0])
	labels = append(labels, AverageLabel)
	for _, label := range slices.Sorted(maps.Keys(v.under)) {
		if listed && !slices.Contains(labels, label) {
			return fmt.Errorf("%s: axis %s has no label %q; it has %s", at, by[0], label, strings.Join(labels, ", "))
		}
		if err := v.under[label].check(at+"."+label, by[1:], axes); err != nil {
			return err
		}
	}

	return nil
}
