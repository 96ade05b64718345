package record

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
)

// Record is one line of rounds.jsonl: the result of a round. A round that was not tested has no evaluation.
type Record struct {
	Round int `json:"round"`
	// Loss is the mean over the clients that trained, of their mean over steps; nil where no upload counts.
	Loss   *float64 `json:"loss,omitempty"`
	Tested bool     `json:"tested"`

	// Evaluation is the headline: the one of Evaluations that View names, whose keys stand among the others; nil where
	// the method does not have it.
	Evaluation  *metrics.Evaluation `json:"-"`
	View        string              `json:"view,omitempty"`
	Global      *float64            `json:"accuracy_global,omitempty"`
	Personal    *float64            `json:"accuracy_personal,omitempty"`
	Evaluations Evaluations         `json:"evaluations,omitzero"`
	// clients that answered and never trained: their personal parameters are first ones
	Untrained int   `json:"untrained,omitempty"`
	TestSizes []int `json:"test_sizes,omitempty"` // test examples of each client
	// the clients that lists by client are about, where some did not answer; without it all
	Answered       []int                `json:"answered,omitempty"`
	Unanswered     []int                `json:"unanswered,omitempty"` // the others
	EvaluationSets map[string]SetResult `json:"sets,omitempty"`
	Validation     *Validation          `json:"validation,omitempty"`  // on validation data
	BaseToNew      *BaseToNew           `json:"base_to_new,omitempty"` // where there are evaluation sets base and new
	// clients that never trained, by the steps that they took
	NewClients map[string]SetResult `json:"new_clients,omitempty"`

	// of the method and of what carries the messages, such as epsilon and delta
	Notes map[string]float64 `json:"notes,omitempty"`
	Terms []Term             `json:"terms,omitempty"` // of the loss, in its order, where they are measured
	Drift []ClientDrift      `json:"drift,omitempty"` // of the clients with merged uploads, where terms are measured

	Attack   *Attack  `json:"attack,omitempty"`   // simulated
	Warnings []string `json:"warnings,omitempty"` // lines that say what is wrong with the round's numbers
	message.LimitedClients

	Clients []int `json:"clients"` // who trained
	// SecretSample says that Clients and everything else that reveals who trained is left out; see HideSample.
	SecretSample bool `json:"secret_sample,omitempty"`

	LR        float64 `json:"lr"`
	BytesUp   int     `json:"bytes_up"`   // all clients together
	BytesDown int     `json:"bytes_down"` // all clients together
	// numbers in the tensors of clients' replies, and of the instructions that they answered, all clients together
	ParametersUp   int     `json:"parameters_up,omitempty"`
	ParametersDown int     `json:"parameters_down,omitempty"`
	Seconds        float64 `json:"seconds"`
	Phases         *Phases `json:"phases,omitempty"` // where they went
	// Simulated is the time of the turns of simulated clients; nil without simulated time.
	Simulated *message.SimulatedTime `json:"simulated,omitempty"`
}

// Score fills in the evaluations from test replies.
func (r *Record) Score(has Evaluable, view method.View, replies []message.Reply, asked []int,
	infos []method.ClientInfo) {
	t := SummariseSet(has, view, replies, asked, infos)
	r.Evaluation, r.Evaluations, r.Global, r.Personal = t.Evaluation, t.Evaluations, t.Global, t.Personal
	r.Answered, r.Unanswered, r.TestSizes, r.Untrained = t.Answered, t.Unanswered, t.Sizes, t.untrained
	if r.Tested = len(t.Sizes) > 0; r.Tested {
		r.View = view.String()
	}
}

// Summary is summary.json: the result of a whole run. Accuracies are those of tested rounds.
type Summary struct {
	Name   string `json:"name"`
	Method string `json:"method"`
	Rounds int    `json:"rounds"`

	// The headline belongs to the evaluation that View names; nil, and its keys absent, where the method does not have
	// it.
	*Headline
	// Evaluation is that of the round that is the result. Its keys stand among the others, without accuracies by
	// client.
	Evaluation *metrics.Evaluation `json:"-"`
	View       string              `json:"view"`
	// the evaluation that the method's paper reports, or the only one that it has
	MethodView string `json:"method_view,omitempty"`
	// accuracy in the last tested round, as are those that follow
	Global      *float64    `json:"global,omitempty"`
	Personal    *float64    `json:"personal,omitempty"` // absent where the method does not have the evaluation
	Evaluations Evaluations `json:"evaluations,omitzero"`
	// what class scores read beside the image: shared, server, private, examples
	Reads     []string `json:"scores_read,omitempty"`
	Untrained int      `json:"untrained,omitempty"` // clients that never trained
	// tests of any round: means are over the clients that answered
	Unanswered     []Unanswered         `json:"unanswered,omitempty"`
	EvaluationSets map[string]SetResult `json:"sets,omitempty"`
	BaseToNew      *BaseToNew           `json:"base_to_new,omitempty"`
	NewClients     map[string]SetResult `json:"new_clients,omitempty"`

	// last or best-val: the round that is the result, whose prompts are left
	Select string `json:"select"`
	// that round; with best-val the values above belong to it, except for last and best
	Selected  int        `json:"selected_round"`
	AtBestVal *AtBestVal `json:"at_best_val,omitempty"` // absent without validation data
	Stopped   string     `json:"stopped,omitempty"`     // why the run ended before its last round
	ZeroShot  []ZeroShot `json:"zero_shot,omitempty"`   // by backbone
	Warnings  []string   `json:"warnings,omitempty"`    // what is probably wrong with the data, a line each

	Notes map[string]float64 `json:"notes,omitempty"` // of the last round, tested or not
	// RoundWarnings are the first warnings of rounds, each behind its round, and how many more there are.
	RoundWarnings []string `json:"round_warnings,omitempty"`
	// Limited lists the clients with refused replies or capped examples.
	Limited []LimitedClient `json:"limited,omitempty"`
	Attack  *Attack         `json:"attack,omitempty"` // simulated; of the last tested round
	Bytes   float64         `json:"bytes_per_round"`
	Seconds float64         `json:"seconds"`
	// simulated seconds until the end of the last round; absent where none are counted
	Simulated float64 `json:"simulated_seconds,omitempty"`
	// what ONNX Runtime ran on, and why if auto could not have CUDA
	Provider string `json:"provider,omitempty"`
	// Reproduces lists the known defects of published code that the run reproduces on purpose, as "KEY: VALUE".
	Reproduces []string `json:"reproduces,omitempty"`
}

// mostWarnings is the number of warnings of rounds that a summary repeats.
const mostWarnings = 3

// Headline is the accuracy of a run in one evaluation.
type Headline struct {
	Last      float64 `json:"last"`
	LastStd   float64 `json:"last_std"` // over clients
	Weighted  float64 `json:"last_weighted"`
	Best      float64 `json:"best"` // the best round, chosen on the test data itself: optimistic
	BestRound int     `json:"best_round"`
	Mean5     float64 `json:"mean_last_5"`
	Mean10    float64 `json:"mean_last_10"`
}

// Unanswered names clients that did not answer a test.
type Unanswered struct {
	Round   int    `json:"round"`
	Set     string `json:"set,omitempty"` // empty for the clients' own test data
	Clients []int  `json:"clients"`
}

// Summarise merges the records of a run, with one evaluation for the headline.
func Summarise(records []Record, view method.View) Summary {
	summary := Summary{Rounds: len(records), View: view.String(), Unanswered: MissingTests(records),
		Limited: limitedClients(records)}
	var accuracy []float64
	warnings := 0
	for _, record := range records {
		summary.Bytes += float64(record.BytesUp+record.BytesDown) / float64(len(records))
		summary.Seconds, summary.Notes = summary.Seconds+record.Seconds, record.Notes
		if record.Simulated != nil {
			summary.Simulated = record.Simulated.Seconds
		}

		for _, line := range record.Warnings {
			if warnings++; warnings <= mostWarnings {
				summary.RoundWarnings = append(summary.RoundWarnings, fmt.Sprintf("round %d: %s", record.Round+1, line))
			}
		}

		if !record.Tested {
			continue
		}

		summary.of(record, view)
		evaluation := record.Evaluations.Of(view)
		if evaluation == nil {
			continue
		}

		if summary.Headline == nil {
			summary.Headline = &Headline{Best: evaluation.Accuracy(), BestRound: record.Round}
		}

		h := summary.Headline
		accuracy = append(accuracy, evaluation.Accuracy())
		if metrics.Above(evaluation.Accuracy(), h.Best) {
			h.Best, h.BestRound = evaluation.Accuracy(), record.Round
		}

		h.Last, h.LastStd, h.Weighted = evaluation.Accuracy(), evaluation.Values[metrics.ClientStd],
			evaluation.Values[metrics.Weighted]
	}

	if more := warnings - mostWarnings; more > 0 {
		summary.RoundWarnings = append(summary.RoundWarnings, fmt.Sprintf("and %d more in other rounds (rounds.jsonl)",
			more))
	}

	if h := summary.Headline; h != nil {
		h.Mean5 = metrics.Mean(accuracy[max(0, len(accuracy)-5):])
		h.Mean10 = metrics.Mean(accuracy[max(0, len(accuracy)-10):])
	}

	return summary
}

// of takes the result's values from a round.
func (s *Summary) of(r Record, view method.View) {
	s.Global, s.Personal, s.Evaluations, s.EvaluationSets, s.Untrained = r.Global, r.Personal, r.Evaluations,
		r.EvaluationSets, r.Untrained
	s.BaseToNew, s.NewClients, s.Selected = r.BaseToNew, r.NewClients, r.Round
	s.Attack = r.Attack
	if s.Evaluation = nil; r.Evaluations.Of(view) != nil {
		e := *r.Evaluations.Of(view)
		e.PerClient, s.Evaluation = nil, &e
	}
}

func (u Unanswered) String() string {
	test := "the test"
	if u.Set != "" {
		test = "evaluation set " + u.Set
	}

	list := convert.Slice(u.Clients[:min(len(u.Clients), mostNamed)], strconv.Itoa)
	more := ""
	if n := len(u.Clients) - len(list); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}

	return fmt.Sprintf("no answer to %s of round %d from %s %s%s: means are over the others", test, u.Round+1,
		map[bool]string{true: "client", false: "clients"}[len(u.Clients) == 1], strings.Join(list, ", "), more)
}

const mostNamed = 5

// MissingTests lists the tests of some rounds that a client did not answer.
func MissingTests(records []Record) []Unanswered {
	var out []Unanswered
	for _, r := range records {
		if len(r.Unanswered) > 0 {
			out = append(out, Unanswered{Round: r.Round, Clients: r.Unanswered})
		}
		for _, name := range slices.Sorted(maps.Keys(r.EvaluationSets)) {
			if x := r.EvaluationSets[name]; len(x.Unanswered) > 0 {
				out = append(out, Unanswered{r.Round, name, x.Unanswered})
			}
		}
	}

	return out
}

// Phases divides the seconds of a round. Clients run side by side: the time for encoding their messages and keeping
// their states on disk is divided by the number of workers, and is not part of the phase in which it was spent.
type Phases struct {
	Statistics float64 `json:"statistics"` // statistics rounds
	Training   float64 `json:"training"`   // of clients, with what is compiled in the first round
	Evaluation float64 `json:"evaluation"` // of any kind
	Server     float64 `json:"server"`     // aggregation, checks and records
	Messages   float64 `json:"messages"`   // encoding and decoding in this process
	Disk       float64 `json:"disk"`       // states of clients; the checkpoint comes after the round
}

// Metrics returns the round as the definitions of metrics read it, in the evaluation of its headline. Totals over
// rounds are 0.
func (r Record) Metrics() metrics.Round {
	view := method.GlobalView
	if r.View == method.PersonalView.String() {
		view = method.PersonalView
	}

	out := metrics.Round{Number: r.Round, Evaluation: r.Evaluation, Validation: r.Validation.Of(view),
		BaseToNew: r.BaseToNew.Of(view),
		Notes:     r.Notes, Loss: r.Loss, Seconds: r.Seconds, Bytes: float64(r.BytesUp) + float64(r.BytesDown)}
	if len(r.EvaluationSets)+len(r.NewClients) > 0 {
		out.Sets, out.NewClients = map[string]*metrics.Evaluation{}, map[string]*metrics.Evaluation{}
	}

	for name, t := range r.EvaluationSets {
		out.Sets[name] = t.Evaluation
	}

	for steps, t := range r.NewClients { // what a client has of its own after its steps, whatever headlines are of
		if out.NewClients[steps] = t.Evaluations.Personal; t.Evaluations.Personal == nil {
			out.NewClients[steps] = t.Evaluation
		}
	}

	if a := r.Attack; a != nil {
		out.Attacked, out.Honest, out.Success = true, a.Global, a.SuccessGlobal
		if view == method.PersonalView {
			out.Honest, out.Success = a.Personal, a.SuccessPersonal
		}
	}

	if r.Simulated != nil {
		out.Simulated = &r.Simulated.Seconds
	}

	return out
}

// HideSample removes everything that reveals which clients trained in a round, where differential privacy counts on a
// secret sample of clients: their numbers, and numbers of single clients that change only when they train. Where any
// number of clients may be drawn, that number is a secret too, and sizes that grow with it are removed.
func (r *Record) HideSample(anyNumber bool) {
	r.SecretSample, r.Clients, r.Untrained, r.Simulated = true, nil, 0, nil // slow clients take long
	hideClients(r.Evaluations)
	for _, x := range r.EvaluationSets {
		hideClients(x.Evaluations)
	}

	if r.Evaluations.Global == nil { // nothing is listed by client
		r.TestSizes = nil
	}

	if v := r.Validation; v != nil && v.Personal != nil {
		v.Personal.PerClient = nil
	}

	if r.Attack != nil {
		r.Attack.Clients = nil
	}

	if n := len(r.Refused) + len(r.Cut); n > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d replies were refused or capped; whose they are is secret, as "+
			"the sample of clients (the server's log has it)", n))
	}

	r.LimitedClients = message.LimitedClients{}
	if anyNumber {
		r.BytesUp, r.BytesDown, r.ParametersUp, r.ParametersDown = 0, 0, 0, 0
	}
}

// hideClients removes single clients, and domains, which may have one client, from the personal evaluation.
func hideClients(e Evaluations) {
	if p := e.Personal; p != nil {
		p.PerClient, p.PerDomain = nil, nil
	}
}

// LimitedClient describes in a summary a client whose reports were refused or capped.
type LimitedClient struct {
	Client  int    `json:"client"`
	Refused int    `json:"refused,omitempty"` // replies
	Reason  string `json:"reason,omitempty"`  // of the first of them
	Cut     int    `json:"cut,omitempty"`     // rounds
	Claimed int    `json:"claimed,omitempty"` // examples, in the last of them
	Counted int    `json:"counted,omitempty"` // likewise, that it was averaged with
}

// limitedClients merges the refusals and caps of records by client, sorted; nil where there are none.
func limitedClients(records []Record) []LimitedClient {
	var out []LimitedClient
	entry := func(client int) *LimitedClient {
		i, there := slices.BinarySearchFunc(out, client, func(c LimitedClient, k int) int { return c.Client - k })
		if !there {
			out = slices.Insert(out, i, LimitedClient{Client: client})
		}
		return &out[i]
	}

	for _, r := range records {
		for _, x := range r.Refused {
			c := entry(x.Client)
			if c.Refused++; c.Refused == 1 {
				c.Reason = x.Reason
			}
		}
		for _, x := range r.Cut {
			c := entry(x.Client)
			c.Cut++
			c.Claimed, c.Counted = x.Claimed, x.Counted
		}
	}

	return out
}

func (c LimitedClient) String() string {
	var parts []string
	if c.Refused > 0 {
		parts = append(parts, fmt.Sprintf("%d of its replies were refused (%s)", c.Refused, c.Reason))
	}

	if c.Cut > 0 {
		parts = append(parts, fmt.Sprintf("claims %d examples and was weighted as if it had %d, in %d rounds",
			c.Claimed, c.Counted, c.Cut))
	}

	return fmt.Sprintf("client %d: %s", c.Client, strings.Join(parts, "; "))
}
