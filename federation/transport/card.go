package transport

import (
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
)

// Card is what a client says of itself to join.
type Card struct {
	introduction
	Terms    spec.RunSpec        `json:"terms"`
	Member   message.Participant `json:"member"`
	Backbone string              `json:"backbone"` // digest of the backbone's files
	Tokens   string              `json:"tokens"`   // digest of the classes' text tokens
	Examples int                 `json:"examples"` // that it trains on; no upload may weigh more
}

// introduction is what every member says of itself to join.
type introduction struct {
	Run      string `json:"run"`      // identity, as the member was told
	Instance string `json:"instance"` // of the process
	Client   int    `json:"client"`   // number of the client, or of the job of a worker that asks
	Nonce    string `json:"nonce"`    // that the verdict repeats
	Proof    proof  `json:"proof"`    // of the key that signed this, and will sign replies
}

func (i *introduction) self() *introduction { return i }

// question asks for the invitation.
type question struct {
	Nonce   string `json:"nonce"`             // that the answer repeats
	Program string `json:"program,omitempty"` // version of a worker's
}

// hello is what a client is told before it can join.
type hello struct {
	Version int      `json:"version"`
	Run     string   `json:"run,omitempty"` // identity
	Nonce   string   `json:"nonce,omitempty"`
	Clients int      `json:"clients,omitempty"`
	Limit   int      `json:"limit,omitempty"`
	Largest int      `json:"largest,omitempty"`
	Config  []byte   `json:"config,omitempty"`
	Classes []string `json:"classes,omitempty"` // none before the first client told them
	// noise of differential privacy comes from the run's seed
	InsecureDP bool   `json:"insecure_dp,omitempty"`
	Proof      proof  `json:"proof"` // of the key that signed this, and will sign orders
	Refused    string `json:"refused,omitempty"`
}

// verdict answers a card.
type verdict struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
	Later  bool   `json:"later,omitempty"` // worth another try
	Nonce  string `json:"nonce,omitempty"`
	Seq    int64  `json:"seq,omitempty"` // of the newest order so far; older ones are none
	// What the client must remember.
	Accepted string `json:"accepted,omitempty"`
	Safe     string `json:"safe,omitempty"`
}

// beat tells that a client is there, and which order it has.
type beat struct {
	Run      string `json:"run"`
	Client   int    `json:"client"`
	Instance string `json:"instance"`
	Count    int64  `json:"count"` // of the instance's beats
	Doing    string `json:"doing,omitempty"`
	Try      string `json:"try,omitempty"` // of the newest order that came
	Leaves   bool   `json:"leaves,omitempty"`
}

// receipt answers a reply.
type receipt struct {
	ID    string `json:"id"`
	Try   string `json:"try"`
	State string `json:"state"`
	Have  []byte `json:"have,omitempty"` // of a reply whose tensors come in pieces: those that came, one bit each
}

// States of a receipt.
const (
	taken   = "taken"   // it counts, or nobody waits for it, or it is refused: there is nothing more to do
	pending = "pending" // its tensors are to come
	repeat  = "repeat"  // it came damaged
)

// ask asks for a piece of the tensors of the own order.
type ask struct {
	Sum   string `json:"sum"`
	Piece int    `json:"piece"`
}

// member is a client as the hub knows it.
type member struct {
	Card
	peer
	reason  string // why a reply was refused last
	counted int    // examples that its last upload was averaged with, where it said more; 0 otherwise
}

// pulse is how often a client says that it is there.
const pulse = 2 * time.Second
