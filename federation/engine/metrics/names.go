package metrics

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/method"
)

// Windows of rounds, beside lastN for the last N tested ones.
const (
	Last    = "last"     // tested round
	Best    = "best"     // tested round by accuracy, chosen on the test data
	BestVal = "best-val" // tested round by accuracy on validation data, of equal ones the first
	All     = "all"
	First   = "first" // of quantities that some rounds do not have: the first one that does
)

// LastN gives the N of a window of the last N tested rounds; false where it is another window, or none.
func LastN(window string) (n int, ok bool) {
	if window == Last {
		return 1, true
	}
	n, err := strconv.Atoi(strings.TrimPrefix(window, Last))
	return n, err == nil && n > 1 && n < 1e6 && window == Last+strconv.Itoa(n)
}

// InWords says what a window is; "" where there is no such window.
func InWords(window string) string {
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

// Name is a metric as it is asked for, taken apart.
type Name struct {
	Quantity Quantity
	Argument string // of a quantity that has one
	Window   string
	View     string // the evaluation, global or personal; empty for the headline of each run
}

// ParseName reads the name of a metric: a quantity, of those with an argument as in domain:Art; a window of the
// accuracy (last, best, best-val, last5 or another number); or a quantity and a window (f1@last10; also all). These are
// of the evaluation that is the headline of a run; behind global/ or personal/ they are of that one, of which global
// and personal alone are the accuracy. Its error lists what there is.
func ParseName(name string) (Name, error) {
	text, window, given := strings.Cut(name, "@")
	var n Name
	if view, of, cut := strings.Cut(text, "/"); slices.Contains(views, view) {
		if n.View, text = view, of; !cut {
			text = Accuracy
		}
	}
	if InWords(text) != "" && text != All && text != First && !given {
		text, window, given = Accuracy, text, true
	}
	quantity, argument, colon := strings.Cut(text, ":")
	q, ok := Find(quantity)
	n.Quantity, n.Argument, n.Window = q, argument, q.Window
	if given {
		n.Window = window
	}
	_, number := strconv.ParseFloat(argument, 64)
	switch {
	case !ok, n.View != "" && !q.Evaluated, (q.Argument != "") != (argument != ""), colon && argument == "",
		q.Argument == ByPercent && number != nil, InWords(n.Window) == "", given && window == First:
		if err := Renamed(text); err != nil {
			return n, fmt.Errorf("metric %q: %w", name, err)
		}
		return n, fmt.Errorf("unknown metric %q; use one of %s", name, strings.Join(Names(), ", "))
	}
	return n, nil
}

var views = []string{method.GlobalView.String(), method.PersonalView.String()}

// Names lists what ParseName takes.
func Names() []string {
	out := append([]string{Last, Best, BestVal, Last + "5", Last + "10"}, views...)
	for _, q := range quantities[1:] { // the first is the accuracy, which has windows for names
		out = append(out, q.Form())
	}
	return append(out, "or one of these with a window, as in f1@last10, or of one evaluation, as in global/f1")
}

// Renamed says what a metric or an axis is called now whose name began with exam before; nil for all others.
func Renamed(name string) error {
	if now, ok := strings.CutPrefix(name, "exam"); ok && (now == "" || now == "-mean" || now[0] == ':') {
		return fmt.Errorf("%s is now called set%s", name, now)
	}
	return nil
}
