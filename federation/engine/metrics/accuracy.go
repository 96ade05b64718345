package metrics

import (
	"maps"
	"slices"
)

const (
	Accuracy   = "accuracy"    // mean over clients: each counts the same
	Weighted   = "weighted"    // over test examples: each counts the same
	Worst      = "worst"       // of the client with the lowest
	Worst10    = "worst10"     // mean over the tenth of the clients with the lowest
	ClientStd  = "client-std"  // population standard deviation over clients
	Domain     = "domain"      // mean over the clients of a domain, which is the argument
	DomainMean = "domain-mean" // mean of the domains' means
	DomainStd  = "domain-std"  // population standard deviation of the domains' means
)

// correct is the number of examples whose largest class score is that of their label; of equal scores the first counts.
var correct = counted("correct", "number of correct images",
	func(e Examples, i int) bool { return e.predicted[i] == e.Labels[i] })

// counted returns the statistic of how many examples are right in a way.
func counted(name, title string, right func(e Examples, i int) bool) *Statistic {
	return &Statistic{Name: name, Title: title, Size: 1,
		Compute: func(e Examples) []float64 {
			n := 0.0
			for i := range e.Labels {
				if right(e, i) {
					n++
				}
			}
			return []float64{n}
		},
		Check: func(v []float64, test ReportedTest) error { return whole(test.Examples, v...) }}
}

var ofCorrect = []*Statistic{correct}

func accuracyOf(c Client) float64 { return c.rate(correct) }

var accuracyMetric = Definition{Name: Accuracy, Title: "accuracy", Unit: Percent, Validation: true,
	Statistics: ofCorrect, Merge: meanClients, Value: over(accuracyOf, Mean)}

// Every test example counts the same in weighted, not every client.
var weightedMetric = Definition{Name: Weighted, Title: "accuracy weighted by test examples", Unit: Percent,
	Key: "accuracy_weighted", Statistics: ofCorrect, Merge: pooled, Value: perExample(correct)}

var worstMetric = Definition{Name: Worst, Title: "accuracy of the worst client", Unit: Percent,
	Terminal: 1, Statistics: ofCorrect, Merge: "minimum over clients",
	Value: over(accuracyOf, slices.Min[[]float64])}

var worst10Metric = Definition{Name: Worst10, Title: "accuracy of the worst tenth of the clients", Unit: Percent,
	Statistics: ofCorrect, Merge: "mean over the ceil(n/10) clients with the lowest accuracies",
	Value: over(accuracyOf, worstTenth)}

// worstTenth is the mean over the ceil(n/10) lowest of n accuracies.
func worstTenth(accuracies []float64) float64 {
	low := slices.Sorted(slices.Values(accuracies))
	return Mean(low[:(len(low)+9)/10])
}

var clientStdMetric = Definition{Name: ClientStd, Title: "standard deviation over clients", Unit: Percent,
	Key: "accuracy_std", Lower: true, Validation: true, Statistics: ofCorrect,
	Merge: "population standard deviation over the clients of one run", Value: over(accuracyOf, Deviation)}

var domainMetric = Definition{Name: Domain, Argument: NamePlaceholder, Title: "accuracy in the domain",
	Unit: Percent, Evaluated: true, Statistics: ofCorrect, Merge: "mean over the clients of the domain",
	Exists: everyTest,
	Read: func(r Round, name string) (float64, bool) {
		if r.Evaluation == nil {
			return 0, false
		}
		return lookUp(r.Evaluation.PerDomain, name)
	},
	Arguments: func(r Round) []string {
		if r.Evaluation == nil {
			return nil
		}
		return slices.Sorted(maps.Keys(r.Evaluation.PerDomain))
	}}

var domainMeanMetric = Definition{Name: DomainMean, Title: "mean over domains", Unit: Percent,
	Statistics: ofCorrect, Merge: "mean " + overDomains, Value: overDomain(Mean)}

var domainStdMetric = Definition{Name: DomainStd, Title: "standard deviation over domains", Unit: Percent,
	Lower: true, Statistics: ofCorrect, Merge: "population standard deviation " + overDomains,
	Value: overDomain(Deviation)}

// perDomain is the mean accuracy of the clients of each domain; empty where clients have none.
func perDomain(clients []Client) map[string]float64 {
	accuracies := map[string][]float64{}
	for _, c := range clients {
		if c.Domain != "" {
			accuracies[c.Domain] = append(accuracies[c.Domain], accuracyOf(c))
		}
	}

	out := map[string]float64{}
	for d, v := range accuracies {
		out[d] = Mean(v)
	}

	return out
}

// OwnClasses is the name of the accuracy where only the classes compete that a client trains on.
const OwnClasses = "own-classes"

// ownCorrect is the number of examples whose label has the largest score among the classes that the client trains on.
var ownCorrect = counted("own_correct", "number of images that are correct among the client's own classes",
	func(e Examples, i int) bool {
		row, y := e.Scores.Row(i).Data, e.Labels[i]
		return slices.Contains(e.Own, y) && !slices.ContainsFunc(e.Own, func(j int64) bool {
			return row[j] > row[y] || row[j] == row[y] && j < y
		})
	})

var ownClassesMetric = Definition{Name: OwnClasses, Title: "accuracy among each client's own classes",
	Unit: Percent, Statistics: []*Statistic{ownCorrect}, Merge: meanClients,
	Value: over(func(c Client) float64 { return c.rate(ownCorrect) }, Mean)}

// Names of accuracies on other data, or of other clients.
const (
	Val     = "val"            // validation data
	New     = "new"            // clients that never trained, after some steps
	Honest  = "honest"         // clients that do not attack
	Success = "attack-success" // of a backdoor
)

var valMetric = Definition{Name: Val, Title: "accuracy on validation data", Unit: Percent, Evaluated: true,
	Merge: meanClients + " with validation data", Exists: headline + ": validation data", Privacy: sentAsIs,
	Read: func(r Round, _ string) (float64, bool) { return r.Validation.Value(Accuracy) }}

var newMetric = Definition{Name: New, Argument: StepsPlaceholder, Unit: Percent,
	Title: "accuracy of clients that never trained, by number of local steps:", Merge: meanClients,
	Exists: "test data of new clients, personal where the method has it", Privacy: sentAsIs,
	Read:      func(r Round, steps string) (float64, bool) { return r.NewClients[steps].Value(Accuracy) },
	Arguments: func(r Round) []string { return slices.Sorted(maps.Keys(r.NewClients)) }}

var honestMetric = Definition{Name: Honest, Title: "accuracy of clients that do not attack", Unit: Percent,
	Evaluated: true, Merge: "mean over honest clients", Exists: headline + ": test data", Privacy: sentAsIs,
	Read: func(r Round, _ string) (float64, bool) {
		if !r.Attacked {
			return r.Evaluation.Value(Accuracy)
		}
		return given(r.Honest)
	},
	Arguments: func(r Round) []string { return make([]string, map[bool]int{true: 1}[r.Attacked]) }}

var successMetric = Definition{Name: Success, Unit: Percent, Evaluated: true, Lower: true,
	Title: "images with the trigger that are classified as the backdoor's target", Merge: "mean over honest clients",
	Exists: headline + ": the evaluation set of a backdoor", Privacy: sentAsIs,
	Read: func(r Round, _ string) (float64, bool) { return given(r.Success) }}
