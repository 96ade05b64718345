package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/experiment"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
)

// mostClientPanels is the largest number of clients with a panel each.
const mostClientPanels = 12

// kindOf returns the group of a client in a figure.
func kindOf(c experiment.ClientInfo, by string) string {
	if by == "backbone" {
		return c.Backbone
	}
	return c.Domain
}

// clientValue is the value of a client in a run, as drawn.
type clientValue struct {
	client, clients int    // number of the client, and of the clients of its run
	kind            string // its domain or backbone, if these are asked for
	value           float64
}

// clientValues returns the values of all clients of all finished runs. With by, domain or backbone, it omits runs that
// do not say these of every client.
func clientValues(groups []*results.Group, m results.Metric, factor float64, by string) (out []clientValue, err error) {
	for r := range results.DoneRuns(groups) {
		values := m.PerClient(r)
		kinds := make([]string, len(values))
		if by != "" && len(values) > 0 {
			info, err := r.Clients()
			if err != nil {
				return nil, err
			}
			if info == nil || len(info.Known()) != len(values) {
				continue
			}
			for k, c := range info.Known() {
				kinds[k] = kindOf(c, by)
			}
		}

		for k, v := range values {
			out = append(out, clientValue{k, len(values), kinds[k], factor * v})
		}
	}

	return out, nil
}

// box shows accuracies of clients over all runs. Grouped by an axis of the sweep, a panel is a client and a box is a
// label, as in FedPHA's figure 5. Grouped by domain or backbone, a box is a label of the contest with one domain or
// backbone. Without a group, a box is a label of the contest.
func (v *view) box(figure configs.Figure, metric results.Metric) (figures.Drawer, error) {
	factor, y := clientScale(metric)
	isAxis, axis := results.Labels(v.groups, figure.Group) != nil, v.axis
	if isAxis {
		axis = figure.Group
	}

	out := figures.Box{Title: figure.Title, Y: y, Colours: v.colours(axis)}
	by := figure.Group
	if isAxis {
		by = ""
	}

	for _, facet := range facets(v.groups, figure.Panel) {
		byLabel, clients := map[string][]clientValue{}, 0 // by label of the axis
		labels := facets(facet.groups, axis)
		for _, l := range labels {
			values, err := clientValues(l.groups, metric, factor, by)
			if err != nil {
				return nil, err
			}
			byLabel[l.label] = values
			for _, c := range values {
				clients = max(clients, c.clients)
			}
		}

		each := isAxis && clients <= mostClientPanels
		panels := clients
		if !each { // one panel of all clients
			panels = min(clients, 1)
		}

		for k := range panels {
			panel := figures.BoxPanel{Title: facet.title, X: axis}
			if each {
				panel.Title = joined(", ", facet.title, "client "+strconv.Itoa(k))
			}

			for _, l := range labels {
				byKind := map[string][]float64{}
				for _, c := range byLabel[l.label] {
					if !each || c.client == k {
						byKind[c.kind] = append(byKind[c.kind], c.value)
					}
				}
				for _, kind := range results.SortedKeys(byKind) {
					panel.Boxes = append(panel.Boxes, figures.Sample{Label: l.label, Group: kind, Values: byKind[kind]})
				}
			}

			if len(panel.Boxes) > 0 {
				out.Panels = append(out.Panels, panel)
			}
		}
	}

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

// strips shows every client of each label of the contest, grouped by backbone. Seeds may assign backbones and domains
// to different client numbers. A client's value is therefore its mean over the runs with the same backbone.
func (v *view) strips(f configs.Figure, m results.Metric) (figures.Drawer, error) {
	factor, y := clientScale(m)
	axis := cmp.Or(f.Panel, v.axis)
	out := figures.Strips{Title: f.Title, Y: y, Colours: v.colours(axis)}
	by := cmp.Or(f.Group, "backbone")
	for _, facet := range facets(v.groups, axis) {
		values, err := clientValues(facet.groups, m, factor, by)
		if err != nil {
			return nil, err
		}

		at := map[string][][]float64{} // by kind and client, one value per run
		for _, c := range values {
			if c.clients != values[0].clients {
				continue
			}
			if at[c.kind] == nil {
				at[c.kind] = make([][]float64, c.clients)
			}
			at[c.kind][c.client] = append(at[c.kind][c.client], c.value)
		}

		panel := figures.StripPanel{Title: facet.title}
		for _, name := range results.SortedKeys(at) {
			group := figures.StripGroup{Label: name}
			for _, accuracies := range at[name] {
				if len(accuracies) > 0 {
					group.Values = append(group.Values, metrics.Mean(accuracies))
				}
			}
			panel.Groups = append(panel.Groups, group)
		}

		if len(panel.Groups) > 0 {
			out.Panels = append(out.Panels, panel)
		}
	}

	return out, nil
}

// whole reports whether all numbers can be drawn.
func whole(rows [][]float64) bool {
	return !slices.ContainsFunc(slices.Concat(rows...), func(x float64) bool {
		return math.IsNaN(x) || math.IsInf(x, 0)
	})
}
