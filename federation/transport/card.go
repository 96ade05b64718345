package transport

import (
	"time"

	"promptfed/federation/engine"
)

// Card is what a client says of itself to join.
type Card struct {
	Run      string        `json:"run"`      // identity, as the client was told
	Instance string        `json:"instance"` // of the process
	Terms    engine.Terms  `json:"terms"`
	Member   engine.Member `json:"member"`
	Backbone string        `json:"backbone"` // digest of the backbone's files
	Tokens   string        `json:"tokens"`   // digest of the classes' text tokens
	Examples int           `json:"examples"` // that it trains on; no upload may weigh more
}

// hello is what a client is told before it can join.
type hello struct {
	Version int      `json:"version"`
	Run     string   `json:"run"` // identity
	Clients int      `json:"clients"`
	Limit   int      `json:"limit"`
	Config  []byte   `json:"config"`
	Classes []string `json:"classes"` // none before the first client told them
}

// verdict answers a card.
type verdict struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
	Later  bool   `json:"later,omitempty"` // worth another try
	// What the client must remember.
	Accepted string `json:"accepted,omitempty"`
	Safe     string `json:"safe,omitempty"`
}

// beat tells that a client is there.
type beat struct {
	Instance string `json:"instance"`
	Doing    string `json:"doing,omitempty"`
	Leaves   bool   `json:"leaves,omitempty"`
}

// member is a client as the hub knows it.
type member struct {
	Card
	seen    time.Time
	doing   string
	left    bool
	replies int
	up      int64
	down    int64
	refused int
}

// pulse is how often a client says that it is there.
const pulse = 2 * time.Second
