package report

import (
	"encoding/json"
	"errors"

	"promptfed/configs"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
)

// panel shows one thing about runs: as a figure, as a part of the page about one run, or both. A panel with data has a
// file of its own, and a script (page.Panel).
type panel struct {
	kind  string      // of the figure, on cards; empty for none
	files [][2]string // figures of every report with the necessary data: files and horizontal axes
	title string      // the default title; %s is the metric
	read  string      // how to read it, in sentences
	// draw returns the figure. draw or Draw returns figures.ErrEmpty if the runs lack the necessary data.
	draw      func(v *view, f configs.Figure, m results.Metric) (figures.Drawer, error)
	evaluated bool // it shows accuracies, of one evaluation
	deviates  bool // it has bands or error bars over seeds
	single    bool // it shows single runs or points of the grid, without a mean over axes
	every     bool // it includes every client or pair instead of a mean over axes

	part page.Panel // none without Name
	live bool       // the part is on live pages only
	// data returns what the part's script draws of a run; nil, also as a slice, if the run has none.
	data func(*results.Run) (any, error)
}

// errorBars is how to read points with error bars.
const errorBars = "A point is a mean over seeds, a bar one sample standard deviation."

// panels are in the order of standard figures and of the page.
var panels = []panel{
	{kind: configs.CurvesFigure,
		files: [][2]string{{"accuracy"}, {"accuracy-bytes", configs.BytesAxis}, {"accuracy-time", configs.TimeAxis}},
		title: "%s by round", draw: (*view).curves, evaluated: true, deviates: true,
		read: "A line is a mean over seeds, a band or bar one sample standard deviation."},
	{kind: "box", files: [][2]string{{"clients"}}, title: "Accuracy of clients", draw: (*view).box, evaluated: true,
		every: true,
		read: "A box reaches from the first to the third quartile of the clients; its line is the median. Whiskers " +
			"end at the last client within 1.5 times the height of the box, and circles are clients beyond."},
	{kind: "cost", files: [][2]string{{"cost"}}, title: "Bytes and seconds of a round", draw: (*view).cost,
		read: "Bytes are those of all clients, up and down."},
	partitionPanel,
	confusionPanel,
	{part: page.Panel{Name: "samples", Title: "Test images"}, live: true},
	{kind: "significance", files: [][2]string{{"significance"}}, title: "Differences between ",
		draw: (*view).significance, evaluated: true, every: true,
		read: "A cell is the row minus the column: red where the row is better."},
	termsPanel,
	driftPanel,
	{part: page.Panel{Name: "log", Title: "Log"}, data: func(r *results.Run) (any, error) { return r.Log(), nil }},
	{part: page.Panel{Name: "config"}, data: func(r *results.Run) (any, error) { return r.ConfigLines(), nil }},
	{kind: "shots", title: "%s by examples of a class", draw: (*view).sensitivity, evaluated: true, deviates: true,
		read: errorBars},
	{kind: "sensitivity", title: "%s by setting", draw: (*view).sensitivity, evaluated: true, deviates: true,
		read: errorBars},
	{kind: "heatmap", title: "%s of every combination", draw: (*view).heatmap, evaluated: true,
		read: "A cell is a combination of two settings. A black frame marks equal settings."},
	{kind: "scatter3", title: "%s of every combination", draw: (*view).scatter3, evaluated: true,
		read: "A point is a combination of three settings."},
	{kind: "strips", title: "Accuracy of clients by group", draw: (*view).strips, evaluated: true, every: true,
		read: "A point is a client, a dashed line the mean of a group."},
	{kind: configs.RanksFigure, title: "Mean ranks", draw: (*view).ranks, evaluated: true, single: true,
		read: "Rank 1 is the best. A bar joins methods without a significant difference."},
	{kind: "tsne", title: "Prompts of clients (t-SNE)", draw: (*view).tsne, single: true,
		read: "A point is the parameters of a client. Only small distances have a meaning."},
	{kind: "pca", title: "Features of images and texts (principal components)", draw: (*view).pca, single: true,
		read: "A point is an image. A line leads from the text of a class before training to that after training."},
}

// kinds are the panels with a figure, by its kind.
var kinds = func() map[string]panel {
	out := map[string]panel{}
	for _, p := range panels {
		if p.kind != "" {
			out[p.kind] = p
		}
	}
	return out
}()

// pagePanels returns the parts of a page, live or not, about one run.
func pagePanels(live bool) (out []page.Panel) {
	for _, p := range panels {
		if p.part.Name != "" && (live || !p.live) {
			out = append(out, p.part)
		}
	}
	return out
}

// details returns page.Run.Details of a run with some facts. Data that cannot be read is left out, with an error.
func details(run *results.Run, facts []page.Pair) (json.RawMessage, error) {
	out := map[string]any{"facts": facts}
	var errs []error
	for _, p := range panels {
		if p.data == nil {
			continue
		}
		data, err := p.data(run)
		if errs = append(errs, err); err == nil {
			out[p.part.Name] = data
		}
	}

	text, err := json.Marshal(out)
	return text, errors.Join(append(errs, err)...)
}
