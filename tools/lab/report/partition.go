package report

import (
	"fmt"
	"slices"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
)

// partitionPanel shows the examples of clients. Its script has page.Run.Clients, which runs share.
var partitionPanel = panel{kind: "bubbles", files: [][2]string{{"partition"}},
	title: "Training examples by client and class", draw: (*view).bubbles, single: true,
	read: "The area of a circle is the number of examples.",
	part: page.Panel{Name: "partition", Title: "Clients", Half: true}}

// mostPartitions is the largest number of panels of partitions.
const mostPartitions = 6

// bubbles shows the examples of each client, in the first run of each label of the panel's axis. Without such an axis
// it shows equal partitions once.
func (v *view) bubbles(figure configs.Figure, _ results.Metric) (figures.Drawer, error) {
	out := figures.Bubbles{Title: figure.Title}
	seen := map[string]bool{}
	for _, facet := range facets(v.groups, figure.Panel) {
		for _, group := range facet.groups {
			if len(group.Runs) == 0 || len(out.Panels) == mostPartitions {
				continue
			}

			info, err := group.Runs[0].Clients()
			if err != nil {
				return nil, err
			}

			if info == nil || !slices.ContainsFunc(info.Clients, holds) {
				continue // clients ran elsewhere, so their data is unknown
			}

			panel := figures.BubblePanel{Title: facet.title}
			if facet.label == "" {
				panel.Title = group.Name
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
			if figure.Panel != "" {
				break
			}
		}
	}

	if len(out.Panels) == 1 {
		out.Panels[0].Title = ""
	}

	return out, nil
}

// holds reports whether a client is known to have examples.
func holds(c experiment.ClientInfo) bool {
	return slices.ContainsFunc(c.Train, func(n int) bool { return n > 0 })
}
