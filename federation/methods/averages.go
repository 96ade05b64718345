package methods

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"promptfed/federation/method"
)

// averaging is a layer whose server may need nothing of a round's uploads but the mean of their shared parameters.
// needs tells what else it needs with the options it has; empty for nothing. A layer that does not say is one that
// needs more.
type averaging interface {
	averages() (weighting, needs string)
}

const (
	byClients  = "uniform"
	byExamples = "examples"
	asInside   = "" // of a wrapper that leaves the mean to the layers inside
)

func (CoOp) averages() (string, string)       { return byExamples, "" }
func (FedOTP) averages() (string, string)     { return byExamples, "" }
func (FedPGP) averages() (string, string)     { return byExamples, "" }
func (FedPHA) averages() (string, string)     { return byExamples, "" }
func (FedPR) averages() (string, string)      { return byExamples, "" }
func (FedVPT) averages() (string, string)     { return byExamples, "" }
func (PFedDC) averages() (string, string)     { return byExamples, "" }
func (PFedPrompt) averages() (string, string) { return byExamples, "" }
func (PromptFL) averages() (string, string)   { return byExamples, "" }
func (UOPP) averages() (string, string)       { return byExamples, "" }
func (ZeroShot) averages() (string, string)   { return byExamples, "" }
func (FedNTD) averages() (string, string)     { return asInside, "" }
func (FedProx) averages() (string, string)    { return asInside, "" }
func (GGTPC) averages() (string, string)      { return asInside, "" } // its surveys are another matter, see Surveyed
func (MOON) averages() (string, string)       { return asInside, "" }

func (m FedCLIP) averages() (string, string) { return m.Weighting, "" }
func (m FedTPG) averages() (string, string)  { return m.Weighting, "" }
func (m FedOpt) averages() (string, string)  { return m.Weighting.Weighting, "" }

func (m Powder) averages() (string, string) {
	if m.attends() && m.Weighting != byExamples {
		return "", "how much each client uses each prompt; set weighting: examples"
	}
	return byExamples, ""
}

func (m Appr) averages() (string, string) {
	if m.Adversary > 0 {
		return "", "every client's prompt for its discriminator; set lambda_a: 0"
	}
	return asInside, ""
}

func (m FedProto) averages() (string, string) {
	if m.active() {
		return "", "every client's prototypes"
	}
	return asInside, ""
}

func (m SCAFFOLD) averages() (string, string) {
	if m.Strength > 0 && m.Weighting.Weighting != byClients {
		return "", "the mean of control variates, in which clients count alike; set weighting: uniform"
	}
	return m.Weighting.Weighting, ""
}

// beside tells what a layer uploads beside the shared parameters, a tensor under prefix/NAME for each, of which its
// server needs the mean alone, too.
func (m SCAFFOLD) beside() string {
	if m.Strength > 0 {
		return scaffoldDC
	}
	return ""
}

func (m FedDyn) averages() (string, string) {
	if m.Alpha > 0 && m.Weighting.Weighting != byClients {
		return "", "the mean move for its state, in which clients count alike; set weighting: uniform"
	}
	return m.Weighting.Weighting, ""
}

// behind is how many clients an upload stands for, where clients count alike.
func behind(u method.Upload) float64 {
	if u.Client == method.Summed {
		return float64(u.N)
	}
	return 1
}

func (m DP) averages() (string, string) {
	if m.on() && m.Where == "server" {
		return "", "every client's own update to clip it; set where: client"
	}
	if m.on() {
		return byClients, ""
	}
	return asInside, ""
}

// Averages tells how clients count in the mean that a stack's server makes, uniform or examples, where that mean is all
// it needs of a round's uploads: it may then get one upload that holds it, of the client method.Summed. beside are
// prefixes of what is uploaded under prefix/NAME for each shared parameter, and averaged with them. The error says
// which layer needs what else.
func Averages(m method.Method) (weighting string, beside []string, err error) {
	if len(sharedNames(m)) == 0 {
		return "", nil, errors.New("the carrier shares nothing; there is nothing to average")
	}
	weighting = byExamples
	for m != nil {
		layer, ok := m.(averaging)
		if !ok {
			return "", nil, fmt.Errorf("%s needs more of a client than its share of a mean", nameOf(m))
		}
		w, needs := layer.averages()
		if needs != "" {
			return "", nil, fmt.Errorf("%s needs %s", nameOf(m), needs)
		}
		if w == byClients {
			weighting = byClients
		}
		if more, ok := m.(interface{ beside() string }); ok && more.beside() != "" {
			beside = append(beside, more.beside())
		}
		m = inside(m)
	}
	return weighting, beside, nil
}

// Surveyed names the surveys that a stack's clients answer, in the first rounds or later. Answers are no part of the
// mean.
func Surveyed(m method.Method) []string {
	var out []string
	for round := range 2 {
		for _, q := range m.Surveys(round) {
			if !slices.Contains(out, q.Name) {
				out = append(out, q.Name)
			}
		}
	}
	return out
}

// inside gives what a wrapper wraps; nil for a carrier.
func inside(m method.Method) method.Method {
	v := reflect.ValueOf(m)
	if v.Kind() != reflect.Struct {
		return nil
	}
	inner := v.FieldByName("Method")
	if !inner.IsValid() || !inner.CanInterface() {
		return nil
	}
	out, _ := inner.Interface().(method.Method)
	return out
}

// nameOf gives the name that a layer has in Table.
func nameOf(m method.Method) string {
	for _, e := range Table {
		if reflect.TypeOf(e.New()).Elem() == reflect.TypeOf(m) {
			return e.Name
		}
	}
	return fmt.Sprintf("%T", m)
}

// Hides tells whether a stack hides single clients, so that nothing measured on one of them may be told.
func Hides(m method.Method) bool { return TakesNobody(m) }

// TakesNobody tells whether a stack's server can make a round of no uploads, as Poisson sampling draws them.
func TakesNobody(m method.Method) bool {
	d, ok := m.(DP)
	return ok && d.on()
}
