package message

import (
	"fmt"

	"promptfed/federation/method"
)

// Participant is a client on another machine as the server knows it.
type Participant struct {
	Joined bool              `json:"joined"`
	Task   method.ClientSpec `json:"task"` // sizes of its backbone, with Client, Clients and Classes
	Domain string            `json:"domain,omitempty"`
	Digest string            `json:"digest,omitempty"` // of the backbone's files; empty where it is not known
}

// CheckAveragedWith returns the reason why a client cannot be averaged with another: a shared parameter of another
// shape. Both tasks must name the same numbers of clients and classes.
func (m Participant) CheckAveragedWith(other Participant, of method.Method) error {
	first := map[string]string{}
	for _, p := range of.Params(other.Task) {
		if p.Owner == method.Shared {
			first[p.Name] = fmt.Sprint(p.Shape)
		}
	}
	for _, p := range of.Params(m.Task) {
		if p.Owner != method.Shared {
			continue
		}
		if shape, here := first[p.Name], fmt.Sprint(p.Shape); shape != here {
			return Incompatible(p.Name, here, m.Task.Client, m.Task.Backbone,
				fmt.Sprintf("%s on client %d (backbone %s)",
					shape, other.Task.Client, other.Task.Backbone))
		}
	}
	return nil
}

func Incompatible(param, shape string, client int, backbone, others string) error {
	return fmt.Errorf("parameter %s is %s on client %d (backbone %s) and %s; it cannot be averaged: use backbones "+
		"with the same text width, and with the same image tower where its prompts are shared",
		param, shape, client, backbone, others)
}

// ClientInfos returns the clients as methods know them.
func ClientInfos(participants []Participant) []method.ClientInfo {
	var out []method.ClientInfo
	for _, m := range participants {
		p := method.ClientInfo{Domain: m.Domain}
		if m.Joined {
			p.Backbone, p.Dim = m.Task.Backbone, m.Task.Dim
		}
		out = append(out, p)
	}
	return out
}

// Remote is a Cohort whose clients are on other machines. The server has their reports, and none of their objects, data
// or state.
type Remote interface {
	Cohort
	// Participants lists all clients by number. A client that never joined is not Joined.
	Participants() []Participant
	// Save returns the state of the cohort after a committed round. Load restores it when a run is resumed.
	Save() ([]byte, error)
	Load([]byte) error
	// Limited returns the clients that were refused or capped since the last call.
	Limited() Limited
	// Rejected records that the method failed on the reply of a client. The round leaves this client out.
	Rejected(round, client int, why error)
}
