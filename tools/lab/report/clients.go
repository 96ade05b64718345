package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/experiment"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
)

// Limits of figures of clients.
const (
	mostClientPanels = 12 // a panel for each client
	mostPartitions   = 6  // panels of partitions
)

// kind returns the group of a client in a figure.
func kind(c experiment.ClientInfo, by string) string {
	if by == "backbone" {
		return c.Backbone
	}
	return c.Domain
}

// box shows accuracies of clients over all runs. Grouped by an axis of the sweep, a panel is a client and a box is a
// label, as in FedPHA's figure 5. Grouped by domain or backbone, a box is a label of the contest with one domain or
// backbone. Without a group, a box is a label of the contest.
func (v *view) box(f configs.Figure, m results.Metric) (figures.Drawer, error) {
	factor, y := clientScale(m)
	isAxis, axis := results.Labels(v.groups, f.Group) != nil, v.axis
	if isAxis {
		axis = f.Group
	}
	out := figures.Box{Title: f.Title, Y: y, Colours: v.colours(axis)}
	for _, p := range facets(v.groups, f.Panel) {
		switch {
		case isAxis:
			out.Panels = append(out.Panels, clientPanels(p, f.Group, m, factor)...)
		case f.Group == "":
			panel := figures.BoxPanel{Title: p.title, X: v.axis}
			for _, l := range facets(p.groups, v.axis) {
				panel.Boxes = append(panel.Boxes, figures.Sample{Label: l.label, Values: flat(l.groups, m, factor,
					nil)})
			}
			out.Panels = append(out.Panels, panel)
		default:
			panel, err := kindPanel(p, v.axis, f.Group, m, factor)
			if err != nil {
				return nil, err
			}
			out.Panels = append(out.Panels, panel)
		}
	}
	for i := range out.Panels {
		out.Panels[i].Boxes = slices.DeleteFunc(out.Panels[i].Boxes,
			func(s figures.Sample) bool { return len(s.Values) == 0 })
	}
	out.Panels = slices.DeleteFunc(out.Panels, func(p figures.BoxPanel) bool { return len(p.Boxes) == 0 })
	return out, nil
}

// clientScale returns the scale and the axis of clients' values of a metric, which are accuracies.
func clientScale(m results.Metric) (float64, figures.Axis) {
	if m.Unit != metrics.Percent {
		m, _ = results.ParseMetric("last")
	}
	factor, y := scale(m)
	y.Label = "accuracy of a client (%)"
	return factor, y
}

// flat returns the values of all clients of all finished runs, filtered by keep; nil keeps all.
func flat(groups []*results.Group, m results.Metric, factor float64, keep func(client int) bool) []float64 {
	var out []float64
	for _, g := range groups {
		for _, run := range g.PerClient(m) {
			for k, x := range run {
				if keep == nil || keep(k) {
					out = append(out, factor*x)
				}
			}
		}
	}
	return out
}

// clientPanels returns a panel for each client, or a single panel for many clients.
func clientPanels(p facet, axis string, m results.Metric, factor float64) []figures.BoxPanel {
	clients := 0
	for _, g := range p.groups {
		for _, run := range g.PerClient(m) {
			clients = max(clients, len(run))
		}
	}
	panel := func(title string, keep func(int) bool) figures.BoxPanel {
		out := figures.BoxPanel{Title: title, X: axis}
		for _, l := range facets(p.groups, axis) {
			out.Boxes = append(out.Boxes, figures.Sample{Label: l.label, Values: flat(l.groups, m, factor, keep)})
		}
		return out
	}
	if clients > mostClientPanels {
		return []figures.BoxPanel{panel(p.title, nil)}
	}
	var out []figures.BoxPanel
	for k := range clients {
		out = append(out, panel(joinTitle(p.title, "client "+strconv.Itoa(k)), func(i int) bool { return i == k }))
	}
	return out
}

// kindPanel returns boxes for every label of an axis and every domain or backbone of clients.
func kindPanel(p facet, axis, by string, m results.Metric, factor float64) (figures.BoxPanel, error) {
	out := figures.BoxPanel{Title: p.title, X: axis}
	for _, l := range facets(p.groups, axis) {
		values := map[string][]float64{}
		for _, g := range l.groups {
			for _, r := range g.Done() {
				info, err := r.Clients()
				if err != nil {
					return out, err
				}
				x := m.PerClient(r)
				if info == nil || len(info.Known()) != len(x) {
					continue
				}
				for k, c := range info.Known() {
					values[kind(c, by)] = append(values[kind(c, by)], factor*x[k])
				}
			}
		}
		for _, name := range sorted(values) {
			out.Boxes = append(out.Boxes, figures.Sample{Label: l.label, Group: name, Values: values[name]})
		}
	}
	return out, nil
}

// holds reports whether a client is known to have examples.
func holds(c experiment.ClientInfo) bool {
	return slices.ContainsFunc(c.Train, func(n int) bool { return n > 0 })
}

// strips shows every client of each label of the contest, grouped by backbone. Seeds may assign backbones and domains
// to different client numbers. A client's value is therefore its mean over the runs with the same backbone.
func (v *view) strips(f configs.Figure, m results.Metric) (figures.Drawer, error) {
	factor, y := clientScale(m)
	out := figures.Strips{Title: f.Title, Y: y}
	by := cmp.Or(f.Group, "backbone")
	for _, p := range facets(v.groups, cmp.Or(f.Panel, v.axis)) {
		at := map[string]map[int][]float64{} // by kind and number, one value per run
		clients := 0
		for _, g := range p.groups {
			for _, r := range g.Done() {
				x := m.PerClient(r)
				if len(x) == 0 {
					continue
				}
				info, err := r.Clients()
				if err != nil {
					return nil, err
				}
				if clients = cmp.Or(clients, len(x)); info == nil || len(x) != clients || len(info.Known()) != len(x) {
					continue
				}
				for k, c := range info.Known() {
					name := kind(c, by)
					if at[name] == nil {
						at[name] = map[int][]float64{}
					}
					at[name][k] = append(at[name][k], factor*x[k])
				}
			}
		}
		panel := figures.StripPanel{Title: p.title}
		for _, name := range sorted(at) {
			group := figures.StripGroup{Label: name}
			for _, k := range slices.Sorted(maps.Keys(at[name])) {
				mean, _ := metrics.MeanStd(at[name][k])
				group.Values = append(group.Values, mean)
			}
			panel.Groups = append(panel.Groups, group)
		}
		if len(panel.Groups) > 0 {
			out.Panels = append(out.Panels, panel)
		}
	}
	return out, nil
}

// bubbles shows the examples of each client, in the first run of each label of the panel's axis. Without such an axis
// it shows equal partitions once.
func (v *view) bubbles(f configs.Figure) (figures.Drawer, error) {
	out := figures.Bubbles{Title: f.Title}
	seen := map[string]bool{}
	for _, p := range facets(v.groups, f.Panel) {
		for _, g := range p.groups {
			if len(g.Runs) == 0 || len(out.Panels) == mostPartitions {
				continue
			}
			info, err := g.Runs[0].Clients()
			if err != nil {
				return nil, err
			}
			if info == nil || !slices.ContainsFunc(info.Clients, holds) {
				continue // clients ran elsewhere, so their data is unknown
			}
			panel := figures.BubblePanel{Title: p.title}
			if p.label == "" {
				panel.Title = g.Name
			}
			for _, c := range info.Clients {
				panel.Counts = append(panel.Counts, c.Train)
				panel.Domains = append(panel.Domains, c.Domain)
			}
			if !slices.ContainsFunc(panel.Domains, func(d string) bool { return d != "" }) {
				panel.Domains = nil
			}
			key := fmt.Sprint(info.Classes, panel.Counts)
			if seen[key] || len(out.Panels) > 0 && !slices.Equal(out.Classes, info.Classes) {
				continue // the figure has one list of classes
			}
			seen[key] = true
			out.Classes, out.Panels = info.Classes, append(out.Panels, panel)
			if f.Panel != "" {
				break
			}
		}
	}
	if len(out.Panels) == 1 {
		out.Panels[0].Title = ""
	}
	return out, nil
}

// sorted returns the keys in order.
func sorted[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// whole reports whether all numbers can be drawn.
func whole(rows [][]float64) bool {
	for _, r := range rows {
		for _, x := range r {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return false
			}
		}
	}
	return true
}
