package report

import (
	"promptfed/configs"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
)

// kind describes a kind of figures.
type kind struct {
	title string // the default title; %s is the metric
	read  string // how to read it, in sentences
	// draw returns the figure. draw or Draw returns figures.ErrEmpty if the runs lack the necessary data.
	draw      func(v *view, f configs.Figure, m results.Metric) (figures.Drawer, error)
	evaluated bool // it shows accuracies, of one evaluation
	deviates  bool // it has bands or error bars over seeds
	single    bool // it shows single runs or points of the grid, without a mean over axes
	every     bool // it includes every client or pair instead of a mean over axes
}

// errorBars is how to read points with error bars.
const errorBars = "A point is a mean over seeds, a bar one sample standard deviation."

var kinds = map[string]kind{
	configs.CurvesFigure: {title: "%s by round", draw: (*view).curves, evaluated: true, deviates: true,
		read: "A line is a mean over seeds, a band one sample standard deviation."},
	"shots": {title: "%s by examples of a class", draw: (*view).sensitivity, evaluated: true, deviates: true,
		read: errorBars},
	"sensitivity": {title: "%s by setting", draw: (*view).sensitivity, evaluated: true, deviates: true,
		read: errorBars},
	"heatmap": {title: "%s of every combination", draw: (*view).heatmap, evaluated: true,
		read: "A cell is a combination of two settings. A black frame marks equal settings."},
	"scatter3": {title: "%s of every combination", draw: (*view).scatter3, evaluated: true,
		read: "A point is a combination of three settings."},
	"box": {title: "Accuracy of clients", draw: (*view).box, evaluated: true, every: true,
		read: "A box reaches from the first to the third quartile of the clients; its line is the median. Whiskers " +
			"end at the last client within 1.5 times the height of the box, and circles are clients beyond."},
	"strips": {title: "Accuracy of clients by group", draw: (*view).strips, evaluated: true, every: true,
		read: "A point is a client, a dashed line the mean of a group."},
	"significance": {title: "Differences between ", draw: (*view).significance, evaluated: true, every: true,
		read: "A cell is the row minus the column: red where the row is better."},
	configs.RanksFigure: {title: "Mean ranks", draw: (*view).ranks, evaluated: true, single: true,
		read: "Rank 1 is the best. A bar joins methods without a significant difference."},
	"cost": {title: "Bytes and seconds of a round", draw: (*view).cost,
		read: "Bytes are those of all clients, up and down."},
	"bubbles": {title: "Training examples by client and class", draw: (*view).bubbles, single: true,
		read: "The area of a circle is the number of examples."},
	"confusion": {title: "Confusion matrices", draw: (*view).confusion, single: true,
		read: "A row is a class. A cell is the share of its test examples that are predicted as the class of the " +
			"column, in the run with the first seed. Hatched rows have no test examples."},
	"terms": {title: "Terms of the loss", draw: (*view).terms, single: true,
		read: "A line is the norm of a term's gradient divided by that of cross entropy."},
	"tsne": {title: "Prompts of clients (t-SNE)", draw: (*view).tsne, single: true,
		read: "A point is the parameters of a client. Only small distances have a meaning."},
	"pca": {title: "Features of images and texts (principal components)", draw: (*view).pca, single: true,
		read: "A point is an image. A line leads from the text of a class before training to that after training."},
}

// standard lists the figures that every report with the necessary data has, unless the card has them: files, kinds and
// horizontal axes.
var standard = [][3]string{{"accuracy", configs.CurvesFigure, ""},
	{"accuracy-bytes", configs.CurvesFigure, configs.BytesAxis},
	{"accuracy-time", configs.CurvesFigure, configs.TimeAxis}, {"clients", "box", ""}, {"cost", "cost", ""},
	{"partition", "bubbles", ""}, {"confusion", "confusion", ""}, {"significance", "significance", ""},
	{"terms", "terms", ""}}
