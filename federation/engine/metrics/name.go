package metrics

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/method"
)

// Windows of rounds; lastN is another one, for the last N tested rounds.
const (
	Last    = "last"     // tested round
	Best    = "best"     // tested round by accuracy, chosen on the test data
	BestVal = "best-val" // tested round by accuracy on validation data, of equal ones the first
	All     = "all"
	First   = "first" // round that has the metric, of metrics that some rounds do not have
)

// LastN returns the N of a window of the last N tested rounds; false of another window, or of none.
func LastN(window string) (n int, ok bool) {
	if window == Last {
		return 1, true
	}
	n, err := strconv.Atoi(strings.TrimPrefix(window, Last))
	return n, err == nil && n > 1 && n < 1e6 && window == Last+strconv.Itoa(n)
}

// DescribeWindow describes a window; "" where there is no such window.
func DescribeWindow(window string) string {
	switch n, ok := LastN(window); {
	case window == Last:
		return "last tested round"
	case ok:
		return fmt.Sprintf("mean of the last %d tested rounds", n)
	case window == Best:
		return "best round, chosen on the test data: optimistic"
	case window == BestVal:
		return "round with the best validation accuracy"
	case window == All:
		return "mean of all rounds"
	case window == First:
		return "first round that has it"
	}

	return ""
}

// Name is the name of a metric with its rounds and its evaluation, taken apart.
type Name struct {
	Metric   Definition
	Argument string // of a metric that has one
	Window   string
	View     string // the evaluation, global or personal; empty for the headline of each run
}

// ParseName reads the name of a metric with its rounds and its evaluation: the name of a definition, with an argument
// as in domain:Art; a window of the accuracy (last, best, best-val, last5 or another number); or a definition and a
// window (f1@last10; also all). A name is of the evaluation that is the headline of a run; behind global/ or personal/
// it is of that one, and global and personal alone are the accuracy. The error of an unknown name lists the known ones.
func ParseName(full string) (Name, error) {
	text, window, given := strings.Cut(full, "@")
	var parsed Name
	if view, rest, cut := strings.Cut(text, "/"); slices.Contains(views, view) {
		if parsed.View, text = view, rest; !cut {
			text = Accuracy
		}
	}

	if DescribeWindow(text) != "" && text != All && text != First && !given {
		text, window, given = Accuracy, text, true
	}

	name, argument, colon := strings.Cut(text, ":")
	d, ok := Find(name)
	parsed.Metric, parsed.Argument, parsed.Window = d, argument, d.Window
	if given {
		parsed.Window = window
	}

	percent, number := strconv.ParseFloat(argument, 64)
	isPercent := number == nil && percent >= 0 && percent <= 100
	switch {
	case !ok, parsed.View != "" && !d.Evaluated, (d.Argument != "") != (argument != ""), colon && argument == "",
		d.Argument == PercentPlaceholder && !isPercent, DescribeWindow(parsed.Window) == "",
		given && slices.Contains([]string{window, d.Window}, First):
		return parsed, fmt.Errorf("unknown metric %q: %s", full, configtags.Suggest(full, Names(),
			"docs/evaluation.md lists all metrics"))
	}

	return parsed, nil
}

var views = []string{method.GlobalView.String(), method.PersonalView.String()}

// Names lists the names that ParseName reads, for help and for errors. The last entry is a sentence about windows and
// evaluations, not a name.
func Names() []string {
	out := append([]string{Last, Best, BestVal, Last + "5", Last + "10"}, views...)
	for _, d := range definitions[1:] { // the first is the accuracy, which has windows for names
		out = append(out, d.Form())
	}
	return append(out, "or one of these with a window, as in f1@last10, or of one evaluation, as in global/f1")
}
