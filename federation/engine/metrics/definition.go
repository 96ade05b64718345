package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
)

// Definition defines a number that the rounds of a run have. Checks of replies, records, cards, tables, pages,
// trackers, shell completion and the glossary in docs/evaluation.md all read it; there is no second list of metrics.
type Definition struct {
	Name     string
	Argument string // NamePlaceholder and so on; empty where the metric is the only one of its name
	Title    string
	Unit     Unit
	// Lower says that lower values are better: costs, deviations, errors and losses. A method that trains nothing,
	// sends nothing or treats all clients equally badly has the lowest, so a low value alone does not make a method
	// the best.
	Lower     bool
	Low, High float64 // bounds of its values; of shares, 0 and 1
	Window    string  // of rounds, unless another is asked for; Last if it is empty
	Evaluated bool    // it belongs to one evaluation, global or personal
	Terminal  int     // place among the metrics that a narrow terminal shows; 0 for none

	// Statistics are what clients send for the metric after a test. Value computes the metric from those of the clients
	// that sent them all, sorted by client; false where they have no such value.
	Statistics []*Statistic
	Value      func(clients []Client) (float64, bool)
	Key        string // in records; Name with _ for - if it is empty
	Validation bool   // it is recorded on validation data too

	Merge   string // how the statistics of clients, or the values of evaluations, become the value
	Exists  string // where the metric exists; everyTest if it is empty and Value is set
	Privacy string // who learns what; derived from Statistics if it is empty

	// Read returns the metric of a round; false where the round does not have it. It reads Value's result if it is nil.
	Read func(r Round, argument string) (float64, bool)
	// Arguments returns the arguments with which a round has the metric. A metric without an argument that only some
	// rounds have returns "" for these.
	Arguments func(r Round) []string
}

// Unit is the unit of a metric's values. Tables may print a multiple of it, such as minutes.
type Unit string

const (
	Percent Unit = "%"     // values are shares of 1
	Byte    Unit = "bytes" // of messages
	Second  Unit = "s"     // of the server's clock, or simulated
	Count   Unit = "count" // rounds, numbers in tensors
	Plain   Unit = ""      // none, such as a loss
)

// What stands behind the name of a metric that is one of several.
const (
	NamePlaceholder    = "NAME"
	StepsPlaceholder   = "STEPS"
	PercentPlaceholder = "PERCENT"
)

// Ways to merge the statistics of clients.
const (
	pooled      = "pooled over the test examples of all clients"
	meanClients = "mean over clients"
	overDomains = "over the domains' means over their clients"
	overSets    = "mean over evaluation sets"
	computed    = "computed from other metrics of the round"
	summed      = "sum over clients"
)

// Where metrics exist.
const (
	everyTest  = "global and personal: test data, evaluation sets, new clients"
	validation = "also validation data"
	result     = "global and personal: test data in the round that is the result, where `eval.confusion` allows it"
	headline   = "global and personal"
	everyRound = "every round"
)

// Who learns what.
const (
	sentAsIs = "the server sees each client's statistic; neither differential privacy nor secure aggregation covers it"
	labels   = "the statistic reveals how many test examples of each class a client has: `eval.confusion: local` " +
		"keeps it on one machine, and a client may withhold it"
	derived  = "nothing more than what the metrics reveal that it is computed from"
	training = "the server sees each client's loss, with secure aggregation only its mean; differential privacy does " +
		"not cover it"
	traffic = "the server knows it; it depends on no image or label"
)

// definitions has the metrics in the order of the columns of tables and of the keys of records.
var definitions = complete(accuracyMetric, weightedMetric, f1Metric, kappaMetric, worstMetric, worst10Metric,
	clientStdMetric, ownClassesMetric, eceMetric, brierMetric, domainMetric, domainMeanMetric, domainStdMetric,
	setMetric, setMeanMetric, hmMetric, hm3Metric, valMetric, newMetric, honestMetric, successMetric, noteMetric,
	lossMetric, bytesMetric, secondsMetric, totalBytesMetric, totalParametersMetric, simulatedMetric, roundsToMetric,
	bytesToMetric, parametersToMetric, simulatedToMetric)

// complete fills in what follows from the rest of each definition.
func complete(list ...Definition) []Definition {
	for i := range list {
		d := &list[i]
		d.Window = cmp.Or(d.Window, Last)
		if d.High == 0 && d.Low == 0 {
			if d.High = math.Inf(1); d.Unit == Percent {
				d.High = 1
			}
		}

		if d.Value != nil {
			d.Evaluated, d.Exists = true, cmp.Or(d.Exists, everyTest)
			d.Key = cmp.Or(d.Key, strings.ReplaceAll(d.Name, "-", "_"))
			if d.Validation {
				d.Exists += "; " + validation
			}
			d.Read = func(r Round, _ string) (float64, bool) { return r.Evaluation.Value(d.Name) }
		}

		if len(d.Statistics) > 0 {
			d.Privacy = cmp.Or(d.Privacy, sentAsIs)
			if d.revealsLabels() {
				d.Privacy = labels
			}
		}
	}

	return list
}

func (d Definition) revealsLabels() bool {
	return slices.ContainsFunc(d.Statistics, func(s *Statistic) bool { return s.RevealsLabels })
}

// Definitions lists all metrics in the order of the columns of tables.
func Definitions() []Definition { return slices.Clone(definitions) }

// Find returns the definition of a name; false where there is none.
func Find(name string) (Definition, bool) {
	i := slices.IndexFunc(definitions, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		return Definition{}, false
	}
	return definitions[i], true
}

// Form is the name with what stands behind it: f1, domain:NAME.
func (d Definition) Form() string {
	if d.Argument == "" {
		return d.Name
	}
	return d.Name + ":" + d.Argument
}

// Round holds the values of a round that definitions read, in one of its evaluations.
type Round struct {
	Number          int                    // from 0
	Evaluation      *Evaluation            // of the clients' own test data; nil where the round has none
	Sets            map[string]*Evaluation // of evaluation sets, by name
	NewClients      map[string]*Evaluation // of clients that never trained, by number of steps
	Validation      *Evaluation            // of validation data; nil without any
	BaseToNew       *Generalisation        // nil without evaluation sets base and new
	Attacked        bool                   // some clients attack
	Honest, Success *float64               // of an attack, as far as they were tested
	Notes           map[string]float64
	Loss            *float64 // nil where no upload counts
	Seconds         float64
	Bytes           float64 // up and down, all clients
	// From the first round to the end of this one.
	TotalBytes, TotalParameters float64
	Simulated                   *float64 // seconds; nil where none are counted
}

// lookUp finds a name, or the only one that differs from it in nothing but case.
func lookUp[V any](m map[string]V, name string) (V, bool) {
	if v, ok := m[name]; ok {
		return v, true
	}

	for _, k := range slices.Sorted(maps.Keys(m)) {
		if strings.EqualFold(k, name) {
			return m[k], true
		}
	}

	var none V
	return none, false
}

func given(v *float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return *v, true
}
