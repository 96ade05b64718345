package methods

import (
	"errors"
	"fmt"
	"reflect"

	"promptfed/federation/method"
)

// averaging is a layer whose server may need nothing of a round's uploads but the mean of their shared parameters. needs
// tells what else it needs with the options it has; empty for nothing. A layer that does not say is one that needs more.
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
	if m.Strength > 0 {
		return "", "every client's control variates"
	}
	return m.Weighting.Weighting, ""
}

func (m FedDyn) averages() (string, string) {
	if m.Alpha > 0 {
		return "", "the number and the moves of the clients for its state"
	}
	return m.Weighting.Weighting, ""
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

// Averages tells how clients count in the mean that a stack's server makes, uniform or examples, where that mean is all it
// needs of a round's uploads: it may then get one upload that holds it, of the client method.Summed. The error says which
// layer needs what else.
func Averages(m method.Method) (weighting string, err error) {
	if len(sharedNames(m)) == 0 {
		return "", errors.New("the carrier shares nothing; there is nothing to average")
	}
	weighting = byExamples
	for m != nil {
		layer, ok := m.(averaging)
		if !ok {
			return "", fmt.Errorf("%s needs more of a client than its share of a mean", nameOf(m))
		}
		w, needs := layer.averages()
		if needs != "" {
			return "", fmt.Errorf("%s needs %s", nameOf(m), needs)
		}
		if w == byClients {
			weighting = byClients
		}
		m = inside(m)
	}
	return weighting, nil
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

// TakesNobody tells whether a stack's server can make a round of no uploads, as Poisson sampling draws them.
func TakesNobody(m method.Method) bool {
	d, ok := m.(DP)
	return ok && d.on()
}
