package distributed

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/experiment"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/server"
	"promptfed/federation/privacy/secure"
	"promptfed/runtime/convert"
)

// serveSecure starts or resumes the server side of secure aggregation; wrap is nil if the run does not use it.
func serveSecure(h *server.Server, set server.Settings, p *experiment.Protocol) (
	wrap func(message.Cohort) message.Cohort, err error) {
	who, err := h.Signatures()
	if err != nil || p.Aggregation == nil {
		return nil, err
	}
	return p.Aggregation.WrapAt(secure.Side{Run: set.ID, Dir: set.Dir, Who: who, MaxNorm: set.MaxNorm,
		Agreed: p.Experiment.RunSpec().String()})
}

// joinSecure prepares the client side of secure aggregation; the guard is nil if the run does not use it. printSummary
// prints a summary of the sums that this client took part in.
func (f joinFlags) joinSecure(federation *experiment.Federation, conf experiment.Config, inv *netclient.Invitation) (
	guard message.Guard, printSummary func(), err error) {
	if n := conf.Partition.Clients; conf.SecureAggregation.Enabled() && n != inv.Clients {
		return nil, nil, fmt.Errorf("the server has %[1]d clients, this client's configuration has partition.clients "+
			"%[2]d, which decides the threshold of secure aggregation; set partition.clients=%[1]d", inv.Clients, n)
	}

	who, err := inv.Signatures(f.state)
	if err != nil {
		return nil, nil, err
	}

	a := federation.Task.Protocol.Aggregation
	if a == nil {
		if secure.HasJoined(f.state) {
			err = errors.New("the server has turned off secure aggregation, under which this client took part in its " +
				"run; if that is intended, use another --state")
		}
		return nil, func() {}, err
	}

	own, err := a.GuardAt(f.client, secure.Side{Run: inv.Run, Dir: f.state, Who: who,
		Agreed: federation.Experiment.RunSpec().String()})
	if err != nil {
		return nil, nil, err
	}

	return own, func() { fmt.Print(f.summary(own.Summary(f.client), who.Certified())) }, nil
}

// summary describes the sums that this client took part in.
func (f joinFlags) summary(summary secure.Summary, certified bool) string {
	if summary.Sums+summary.Refused == 0 {
		return ""
	}

	text := fmt.Sprintf("secure aggregation: this client took part in %d sums, of %d to %d clients, and refused %d "+
		"instructions; %s lists them\n", summary.Sums, summary.Fewest, summary.Most, summary.Refused,
		filepath.Join(f.state, secure.LogFile))
	if certified {
		return text
	}

	keys := convert.Slice(slices.Sorted(maps.Keys(summary.Keys)), func(client int) string {
		return fmt.Sprintf("%d %x", client, summary.Keys[client])
	})

	return text + "no certificate says whose these keys of clients are, and the first key of each other client was " +
		fmt.Sprintf("accepted; compare them with what the others print: %s; that of client %d is this client's own\n",
			strings.Join(keys, ", "), f.client)
}
