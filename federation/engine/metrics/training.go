package metrics

import (
	"maps"
	"math"
	"slices"
	"strconv"
)

const (
	Note    = "note"    // of a method or of what carries messages, such as epsilon
	Loss    = "loss"    // mean over the clients that trained, of their mean over steps
	Bytes   = "bytes"   // of one round, of all clients, up and down
	Seconds = "seconds" // of one round, by the server's clock

	// By the end of a round, or of the first round with an accuracy.
	TotalBytes      = "total-bytes"
	TotalParameters = "total-parameters" // sent, up and down
	Simulated       = "simulated"        // seconds
	RoundsTo        = "rounds-to"        // the argument of this and the next is an accuracy in percent
	BytesTo         = "bytes-to"
	ParametersTo    = "parameters-to"
	SimulatedTo     = "simulated-to"
)

// unbounded is the High of metrics that may be negative.
var unbounded = math.Inf(1)

var noteMetric = Definition{Name: Note, Argument: NamePlaceholder, Title: "value noted in the rounds:",
	Lower: true, Low: -unbounded, High: unbounded, Merge: "as the method or the transport notes it",
	Exists:    "rounds in which a method or privacy notes it",
	Privacy:   "as the page of the method or of privacy says",
	Read:      func(r Round, name string) (float64, bool) { return lookUp(r.Notes, name) },
	Arguments: func(r Round) []string { return slices.Sorted(maps.Keys(r.Notes)) }}

var lossMetric = Definition{Name: Loss, Title: "training loss", Lower: true, Low: -unbounded,
	High: unbounded, Merge: "mean over the clients that trained, of their mean over steps",
	Exists:  "rounds with an upload",
	Privacy: training, Read: func(r Round, _ string) (float64, bool) { return given(r.Loss) }}

// cost defines a cost of a round, which has it where read says so.
func cost(name, title, merge string, unit Unit, window string, read func(r Round) (float64, bool)) Definition {
	return Definition{Name: name, Title: title, Unit: unit, Lower: true, Window: window, Merge: merge,
		Exists: everyRound, Privacy: traffic, Read: func(r Round, _ string) (float64, bool) { return read(r) }}
}

// reaching defines a cost by the end of the first round with an accuracy, in percent, or a higher one.
func reaching(name, title string, unit Unit, read func(r Round) (float64, bool)) Definition {
	return Definition{Name: name, Argument: PercentPlaceholder, Title: title +
		" to an accuracy (%) of", Unit: unit, Lower: true, Window: First, Evaluated: true, Merge: computed,
		Exists: headline + ": the first round with the accuracy", Privacy: derived,
		Read: func(r Round, target string) (float64, bool) {
			percent, err := strconv.ParseFloat(target, 64)
			if v, ok := r.Evaluation.Value(Accuracy); err != nil || !ok || Above(percent/100, v) {
				return 0, false
			}
			return read(r)
		}}
}

func totalBytes(r Round) (float64, bool)      { return r.TotalBytes, true }
func totalParameters(r Round) (float64, bool) { return r.TotalParameters, r.TotalParameters > 0 }
func simulated(r Round) (float64, bool)       { return given(r.Simulated) }

var bytesMetric = Definition{Name: Bytes, Title: "bytes per round, all clients, up and down", Unit: Byte,
	Lower: true, Window: All, Terminal: 2, Merge: summed, Exists: everyRound, Privacy: traffic,
	Read: func(r Round, _ string) (float64, bool) { return r.Bytes, true }}

var (
	secondsMetric = cost(Seconds, "seconds per round", "the server's clock", Second, All,
		func(r Round) (float64, bool) { return r.Seconds, true })
	totalBytesMetric      = cost(TotalBytes, "bytes of all rounds so far, up and down", summed, Byte, Last, totalBytes)
	totalParametersMetric = cost(TotalParameters, "parameters sent in all rounds so far, up and down", summed,
		Count, Last, totalParameters)
	simulatedMetric = cost(Simulated, "simulated seconds since the start", "the simulated clock", Second, Last,
		simulated)

	roundsToMetric = reaching(RoundsTo, "rounds", Count,
		func(r Round) (float64, bool) { return float64(r.Number + 1), true })
	bytesToMetric      = reaching(BytesTo, "bytes", Byte, totalBytes)
	parametersToMetric = reaching(ParametersTo, "parameters", Count, totalParameters)
	simulatedToMetric  = reaching(SimulatedTo, "simulated seconds", Second, simulated)
)
