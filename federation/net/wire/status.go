package wire

import (
	"encoding/json"
	"fmt"
)

// Status describes the state of a run.
type Status struct {
	Name      string         `json:"name"`
	Run       string         `json:"run"`   // identity
	Round     int            `json:"round"` // of the newest instruction
	Kind      string         `json:"kind"`  // of the current instruction; empty between instructions
	Set       string         `json:"set,omitempty"`
	Statistic string         `json:"statistic,omitempty"`
	Clients   []ClientStatus `json:"clients"`
	// Secret means that differential privacy relies on a secret sample of clients: the status does not show which of
	// them train, and with SecretSize not how many.
	Secret     bool `json:"secret_sample,omitempty"`
	SecretSize bool `json:"secret_size,omitempty"`
	Insecure   bool `json:"insecure,omitempty"` // no certificate says who the clients and the server are
	// Facts describe the experiment and the protection of clients.
	Facts json.RawMessage `json:"facts,omitempty"`
	Totals
}

// Totals are counts since the server started.
type Totals struct {
	BytesUp      int64 `json:"bytes_up"`   // of accepted replies, with their headers
	BytesDown    int64 `json:"bytes_down"` // of instructions, with their headers
	Replies      int64 `json:"replies"`    // accepted
	Late         int64 `json:"late"`       // late and repeated replies, dropped
	Refused      int64 `json:"refused"`    // replies
	RefusedJoins int64 `json:"refused_joins"`
	Repeats      int64 `json:"repeats"` // instructions repeated below the quorum
	Dropped      int64 `json:"dropped"` // messages that no client sends
}

// ClientStatus describes one client.
type ClientStatus struct {
	Client int  `json:"client"`
	Joined bool `json:"joined"`
	Left   bool `json:"left,omitempty"`
	// seconds since its connection ended: 0 while it is connected, -1 for none since the server started
	Seen     float64 `json:"seen"`
	Doing    string  `json:"doing,omitempty"`
	Backbone string  `json:"backbone,omitempty"`
	Domain   string  `json:"domain,omitempty"`
	Asked    bool    `json:"asked,omitempty"` // has an instruction
	// no round waits for it; see patience
	Unawaited bool   `json:"unawaited,omitempty"`
	Answered  bool   `json:"answered,omitempty"` // and answered it
	Examples  int    `json:"examples,omitempty"` // its stated number of training examples
	Counted   int    `json:"counted,omitempty"`  // weight of its last upload, if reduced
	Reason    string `json:"reason,omitempty"`   // why its last reply was refused
	Replies   int    `json:"replies"`
	Refused   int    `json:"refused"`
	Up        int64  `json:"up"`
	Down      int64  `json:"down"`
}

// ReadStatus decodes a status and makes its texts printable.
func ReadStatus(b []byte) (*Status, error) {
	var status Status
	if err := json.Unmarshal(b, &status); err != nil {
		return nil, fmt.Errorf("the server's status: %w", err)
	}

	for _, text := range []*string{&status.Name, &status.Run, &status.Kind, &status.Set, &status.Statistic} {
		*text = Printable(*text)
	}

	for i := range status.Clients {
		c := &status.Clients[i]
		for _, text := range []*string{&c.Doing, &c.Backbone, &c.Domain, &c.Reason} {
			*text = Printable(*text)
		}
	}

	return &status, nil
}
