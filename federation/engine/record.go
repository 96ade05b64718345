package engine

import (
	"maps"
	"math"
	"slices"

	"promptfed/federation/method"
)

// Record is one line of rounds.jsonl: what a round gave. Accuracies and F1 lie in [0,1]. A round that was not tested has
// none.
type Record struct {
	Round    int     `json:"round"`
	Loss     float64 `json:"loss"` // mean over the clients that trained, of their mean over steps
	Tested   bool    `json:"tested"`
	Accuracy float64 `json:"accuracy"`          // mean over clients, each tested as its method says
	Std      float64 `json:"accuracy_std"`      // over clients (population)
	Weighted float64 `json:"accuracy_weighted"` // right answers over test examples of all clients
	Global   float64 `json:"accuracy_global"`   // mean over clients with the server's shared parameters
	Personal float64 `json:"accuracy_personal"` // mean over clients with the parameters they last trained
	F1       float64 `json:"f1"`                // macro-F1 over the classes of a client's test data, mean over clients
	Worst    float64 `json:"worst"`             // the lowest accuracy of a client

	// Answered are the clients that the lists by client are about, where some did not answer; without it they are about all,
	// in order.
	Answered          []int              `json:"answered,omitempty"`
	PerClient         []float64          `json:"per_client,omitempty"`
	PerClientGlobal   []float64          `json:"per_client_global,omitempty"`
	PerClientPersonal []float64          `json:"per_client_personal,omitempty"`
	TestSizes         []int              `json:"test_sizes,omitempty"` // test examples of each client
	PerDomain         map[string]float64 `json:"per_domain,omitempty"` // mean over the clients of a domain
	DomainMean        float64            `json:"domain_mean,omitempty"`
	DomainStd         float64            `json:"domain_std,omitempty"` // over domains (population)
	Exams             map[string]Grade   `json:"exams,omitempty"`

	Notes map[string]float64 `json:"notes,omitempty"` // of the method and of what carries the messages, such as epsilon and delta

	Clients   []int   `json:"clients"` // who trained
	LR        float64 `json:"lr"`
	BytesUp   int     `json:"bytes_up"`   // all clients together
	BytesDown int     `json:"bytes_down"` // all clients together
	Seconds   float64 `json:"seconds"`
}

// Grade is what an exam gave: means over the clients that took it.
type Grade struct {
	Accuracy float64 `json:"accuracy"` // each as its method says
	Global   float64 `json:"global"`   // with the server's shared parameters
	Personal float64 `json:"personal"` // with the parameters that they last trained
	F1       float64 `json:"f1"`
	Examples int     `json:"examples"` // that one client is examined with, the most of all
}

// seen is what a client is tested with.
func (s Scores) seen(view method.View) Hits {
	if view == method.Own {
		return s.Personal
	}
	return s.Global
}

// rate is the share of right answers.
func (s Scores) rate(h Hits) float64 { return float64(h.Right) / float64(max(1, s.Examples)) }

// score fills in the accuracies from test replies.
func (r *Record) score(replies []Reply, view method.View, peers []method.Peer) {
	if len(replies) == 0 {
		return
	}
	r.Tested = true
	if len(replies) < len(peers) {
		r.Answered = clients(replies)
	}
	right, total := 0, 0
	byDomain := map[string][]float64{}
	for _, a := range replies {
		s := a.Scores
		h := s.seen(view)
		acc := s.rate(h)
		r.PerClient = append(r.PerClient, acc)
		r.PerClientGlobal = append(r.PerClientGlobal, s.rate(s.Global))
		r.PerClientPersonal = append(r.PerClientPersonal, s.rate(s.Personal))
		r.TestSizes = append(r.TestSizes, s.Examples)
		r.F1 += h.F1 / float64(len(replies))
		right, total = right+h.Right, total+s.Examples
		if d := peers[a.Client].Domain; d != "" {
			byDomain[d] = append(byDomain[d], acc)
		}
	}
	r.Accuracy, r.Std = MeanStd(r.PerClient)
	r.Global, _ = MeanStd(r.PerClientGlobal)
	r.Personal, _ = MeanStd(r.PerClientPersonal)
	r.Worst = slices.Min(r.PerClient)
	r.Weighted = float64(right) / float64(max(1, total))
	if len(byDomain) == 0 {
		return
	}
	r.PerDomain = map[string]float64{}
	var means []float64
	for _, d := range slices.Sorted(maps.Keys(byDomain)) {
		r.PerDomain[d], _ = MeanStd(byDomain[d])
		means = append(means, r.PerDomain[d])
	}
	r.DomainMean, r.DomainStd = MeanStd(means)
}

// grade puts the replies to an exam together.
func grade(replies []Reply, view method.View) Grade {
	g := Grade{}
	for _, a := range replies {
		s, n := a.Scores, float64(len(replies))
		g.Accuracy += s.rate(s.seen(view)) / n
		g.Global += s.rate(s.Global) / n
		g.Personal += s.rate(s.Personal) / n
		g.F1 += s.seen(view).F1 / n
		g.Examples = max(g.Examples, s.Examples)
	}
	return g
}

// MeanStd is the mean and the population standard deviation.
func MeanStd(v []float64) (mean, std float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		std += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, math.Sqrt(std)
}

// Summary is summary.json: what a whole run gave. Accuracies are those of tested rounds.
type Summary struct {
	Name       string             `json:"name"`
	Method     string             `json:"method"`
	Rounds     int                `json:"rounds"`
	Last       float64            `json:"last"`
	LastStd    float64            `json:"last_std"` // over clients
	Weighted   float64            `json:"last_weighted"`
	Best       float64            `json:"best"` // the best round, chosen on the test data itself: optimistic
	BestRound  int                `json:"best_round"`
	Mean5      float64            `json:"mean_last_5"`
	Mean10     float64            `json:"mean_last_10"`
	Global     float64            `json:"global"`   // last round, the server's shared parameters
	Personal   float64            `json:"personal"` // last round, the clients' own
	View       string             `json:"view"`     // which of the two `last` is
	F1         float64            `json:"f1"`       // last round, as are those that follow
	Worst      float64            `json:"worst"`
	PerDomain  map[string]float64 `json:"per_domain,omitempty"`
	DomainMean float64            `json:"domain_mean,omitempty"`
	DomainStd  float64            `json:"domain_std,omitempty"`
	Exams      map[string]Grade   `json:"exams,omitempty"`
	Notes      map[string]float64 `json:"notes,omitempty"` // of the last round, tested or not
	Bytes      float64            `json:"bytes_per_round"`
	Seconds    float64            `json:"seconds"`
	Provider   string             `json:"provider,omitempty"` // what ONNX Runtime ran on, and why if auto could not have CUDA
	// Reproduces are the known defects of published code that the run made again on purpose, as "KEY: VALUE".
	Reproduces []string `json:"reproduces,omitempty"`
}

// Summarise puts the records of a run together.
func Summarise(records []Record) Summary {
	s := Summary{Rounds: len(records)}
	var tested []float64
	for _, r := range records {
		s.Bytes += float64(r.BytesUp+r.BytesDown) / float64(len(records))
		s.Seconds, s.Notes = s.Seconds+r.Seconds, r.Notes
		if !r.Tested {
			continue
		}
		tested = append(tested, r.Accuracy)
		if r.Accuracy > s.Best || len(tested) == 1 {
			s.Best, s.BestRound = r.Accuracy, r.Round
		}
		s.Last, s.LastStd, s.Weighted, s.Global, s.Personal = r.Accuracy, r.Std, r.Weighted, r.Global, r.Personal
		s.F1, s.Worst, s.PerDomain, s.DomainMean, s.DomainStd, s.Exams = r.F1, r.Worst, r.PerDomain, r.DomainMean, r.DomainStd, r.Exams
	}
	s.Mean5, _ = MeanStd(tested[max(0, len(tested)-5):])
	s.Mean10, _ = MeanStd(tested[max(0, len(tested)-10):])
	return s
}
