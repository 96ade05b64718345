package record

import (
	"fmt"

	"promptfed/federation/engine/message"
)

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
	r.Limited = message.Limited{}
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
