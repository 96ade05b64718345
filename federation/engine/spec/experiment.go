package spec

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"promptfed/federation/attack"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/simulatedtime"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// Experiment is everything that decides what a run computes.
type Experiment struct {
	Name       string
	MethodName string // for reports and the fingerprint: base method and wrappers
	Options    string // of the methods, for the fingerprint
	Secure     string // of secure aggregation, for the fingerprint; empty for none
	Privacy    string // what epsilons assume, for RunSpec; empty without differential privacy
	// Reproduces lists the known defects of published code that the experiment reproduces on purpose, for the
	// fingerprint and the summary.
	Reproduces     []string
	Method         method.Method
	Classes        []string
	Template       string // of hand-written prompts, with {} for the class
	Precision      string // of features, for the fingerprint; empty and half are the same
	Clients        []*Client
	Digests        map[string]string // of the backbones' files, by name; a backbone that is not in it is not known
	Training       Training
	BatchClients   int           // steps of how many clients may go in one run; 0 and 1 are the same
	Synthetic      *Synthetic    // nil for none
	Attack         attack.Attack // of clients of a simulation
	EvaluationSets []EvaluationSet
	Plan           Plan                // Clients and Infos are filled in
	SimulatedTime  *simulatedtime.Plan // that turns of clients take; nil for none
	Evaluate       record.TestPlan
	Remedy         string // what to try if accuracy falls below zero-shot accuracy
	// Warnings lists settings that have no effect, one line each. They change nothing that is computed.
	Warnings []string
}

// PlanFor returns Plan with the number and the descriptions of the clients.
func (e *Experiment) PlanFor(participants []message.Participant) Plan {
	p := e.Plan
	p.Clients, p.Infos = len(participants), message.ClientInfos(participants)
	return p
}

// Task returns the ClientSpec that the method of a client is built for.
func (e *Experiment) Task(client *Client) method.ClientSpec {
	return TaskOf(client.Backbone, client.ID, len(e.Clients), len(e.Classes))
}

// Fingerprint returns a hash that differs between experiments that train differently.
func (e *Experiment) Fingerprint() string {
	hash := sha256.New()
	fmt.Fprintln(hash, e.MethodName, e.Options, e.Plan.Seed, e.Plan.Participation, e.Plan.Trainers,
		strings.Join(e.Classes, "|"), e.Template)
	fmt.Fprintf(hash, "%+v\n", e.Training)
	if e.Plan.Poisson || e.Secure != "" {
		fmt.Fprintln(hash, "poisson", e.Plan.Poisson, "secure", e.Secure)
	}

	if p := e.otherPrecision(); p != "" {
		fmt.Fprintln(hash, "precision", p)
	}

	if e.BatchClients > 1 { // numbers are the same up to rounding
		fmt.Fprintln(hash, "clients in a run", e.BatchClients)
	}

	if e.SimulatedTime != nil {
		fmt.Fprintln(hash, "simulated time", e.SimulatedTime)
	}

	if len(e.Reproduces) > 0 {
		fmt.Fprintf(hash, "reproduces %q\n", e.Reproduces)
	}

	for _, client := range e.Clients {
		fmt.Fprintln(hash, client.ID, client.Backbone.Name(), client.Train.Labels(), client.Test.Labels())
	}

	if len(e.Clients) == 0 { // they are elsewhere
		fmt.Fprintln(hash, e.Plan.Clients)
		for _, x := range e.EvaluationSets {
			fmt.Fprintln(hash, x.Name)
		}
	}

	return fmt.Sprintf("%x", hash.Sum(nil)[:16])
}

// otherPrecision returns the precision of features if it is not half.
func (e *Experiment) otherPrecision() string {
	if e.Precision == "half" {
		return ""
	}
	return e.Precision
}

// EvaluationSet is a test besides the clients' own test data: on classes that nobody trained on, on another data set,
// or on a domain that no client has. Every client is tested on it after the last round, with the server's parameters
// and with its own.
type EvaluationSet struct {
	Name     string
	Classes  []string             // empty for those of the experiment
	Template string               // of hand-written prompts; empty for that of the experiment
	Test     map[string]*Features // by name of backbone
}

// CheckEvaluationSets returns an error for sets that a client cannot be tested on.
func (e *Experiment) CheckEvaluationSets() error {
	names := map[string]bool{}
	for _, set := range e.EvaluationSets {
		if set.Name == "" || names[set.Name] {
			return fmt.Errorf("evaluation set %q: the name is empty or used twice; give every evaluation set a name "+
				"of its own", set.Name)
		}

		names[set.Name] = true
		classes := len(e.Classes)
		if len(set.Classes) > 0 {
			classes = len(set.Classes)
		}

		done := map[string]bool{}
		for _, client := range e.Clients {
			b := client.Backbone.Name()
			if done[b] {
				continue
			}

			done[b] = true
			d := set.Test[b]
			if d == nil || d.Len() == 0 {
				return fmt.Errorf("evaluation set %s has no examples for backbone %s", set.Name, b)
			}

			if err := CheckLabels("evaluation set "+set.Name, d.Labels(), classes); err != nil {
				return err
			}

			if len(set.Classes) == 0 {
				continue
			}

			if err := transfers(e.Method, e.Task(client)); err != nil {
				return fmt.Errorf("evaluation set %s: %w; remove the evaluation set or use another method", set.Name,
					err)
			}
		}
	}

	return nil
}

// transfers refuses methods whose class scores are bound to the classes that they were trained on.
func transfers(base method.Method, task method.ClientSpec) error {
	here, there := task, task
	there.Classes++ // as many other classes are refused too: their numbers have another meaning
	shapes := map[string]string{}
	for _, p := range base.Params(here) {
		shapes[p.Name] = fmt.Sprint(p.Shape)
	}

	for _, p := range base.Params(there) {
		if shapes[p.Name] != fmt.Sprint(p.Shape) {
			return fmt.Errorf("the method learns %s %s for %d classes, which cannot be used for other classes", p.Name,
				shapes[p.Name], here.Classes)
		}
	}

	inputs := func(t method.ClientSpec) []graph.Node {
		return graph.Inputs(base.Logits(method.ScopeOf(base, t)))
	}
	shapes = map[string]string{}
	for _, n := range inputs(there) {
		shapes[n.Name()] = fmt.Sprint(n.Shape())
	}

	for _, n := range inputs(here) {
		switch in := method.InputOf(n); in.Kind {
		case method.RowInput, method.HostInput:
		case method.ClientInput:
			if in != method.LocalClassesInput {
				return fmt.Errorf("the method classifies with the clients' own examples, which belong to other classes")
			}
		default:
			if shape := fmt.Sprint(n.Shape()); shapes[n.Name()] != shape {
				return fmt.Errorf("the method's class scores read %s %s, which cannot be used for other classes", in,
					shape)
			}
		}
	}

	return nil
}
