package protocol

import (
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/transport/certs"
)

// JoinRequest is what a client says of itself to join.
type JoinRequest struct {
	JoinHeader
	RunSpec     spec.RunSpec        `json:"terms"`
	Participant message.Participant `json:"member"`
	Backbone    string              `json:"backbone"` // digest of the backbone's files
	Tokens      string              `json:"tokens"`   // digest of the classes' text tokens
	// Examples is how many it trains on, no upload may weigh more; 0 where the server may not know.
	Examples int    `json:"examples,omitempty"`
	Numerics string `json:"numerics"` // digest of a numerics.Fingerprint
}

// JoinHeader is what every member says of itself to join.
type JoinHeader struct {
	Run      string      `json:"run"`      // identity, from the invitation
	Instance string      `json:"instance"` // of the process
	Client   int         `json:"client"`   // number of the client, or of the job of a worker that asks
	Nonce    string      `json:"nonce"`    // new for each request, so that the answer to none answers another
	Proof    certs.Proof `json:"proof"`    // of the key that signed this, and will sign replies
}

func (i *JoinHeader) Header() *JoinHeader { return i }

// Joining is a message by which a member joins: what all such say, and what a client or a worker says beside it.
type Joining interface{ Header() *JoinHeader }

// Question is the digest of a request, with its nonce, and of the subject that it was sent to, which names the run and
// the client. Each answer has that of the request that the server saw, so that nobody on the way can replay an answer,
// or have the server refuse a request that was altered, or another member's, and pass that on.
func Question(subject string, request []byte) string {
	return Checksum(append([]byte(subject+"\n"), request...))
}

// HelloRequest asks for the invitation.
type HelloRequest struct {
	Nonce   string `json:"nonce"`             // new for each request
	Program string `json:"program,omitempty"` // version of a worker's
}

// HelloReply is what a client gets before it can join.
type HelloReply struct {
	Version  int      `json:"version"`
	Run      string   `json:"run,omitempty"`      // identity
	Question string   `json:"question,omitempty"` // that it answers, as Question tells
	Clients  int      `json:"clients,omitempty"`
	Limit    int      `json:"limit,omitempty"`
	Config   []byte   `json:"config,omitempty"`
	Classes  []string `json:"classes,omitempty"` // none before the first client sent them
	// noise of differential privacy comes from the run's seed
	InsecureDP bool        `json:"insecure_dp,omitempty"`
	Proof      certs.Proof `json:"proof"` // of the key that signed this, and will sign orders
	Refused    string      `json:"refused,omitempty"`
}

// JoinReply answers a request to join.
type JoinReply struct {
	OK       bool   `json:"ok"`
	Reason   string `json:"reason,omitempty"`
	Later    bool   `json:"later,omitempty"` // worth another try
	Question string `json:"question"`        // that it answers, as Question tells
	Seq      int64  `json:"seq,omitempty"`   // of the newest order so far; older ones are none
	// What the client must remember.
	Accepted string `json:"accepted,omitempty"`
	Safe     string `json:"safe,omitempty"`
}

// Heartbeat tells that a client is there, and which order it has.
type Heartbeat struct {
	Run      string `json:"run"`
	Client   int    `json:"client"`
	Instance string `json:"instance"`
	Count    int64  `json:"count"` // of the instance's beats
	Doing    string `json:"doing,omitempty"`
	Try      string `json:"try,omitempty"` // of the newest order that came
	Leaves   bool   `json:"leaves,omitempty"`
}

// Receipt answers a reply.
type Receipt struct {
	ID    string `json:"id"`
	Try   string `json:"try"`
	State string `json:"state"`
	Have  []byte `json:"have,omitempty"` // of a reply whose tensors come in pieces: those that came, one bit each
}

// States of a receipt.
const (
	ReceiptTaken   = "taken"   // it counts, or nobody waits for it, or it is refused: there is nothing more to do
	ReceiptPending = "pending" // its tensors are to come
	ReceiptRepeat  = "repeat"  // it came damaged
)

// PieceRequest asks for a piece of the tensors of the own order.
type PieceRequest struct {
	Sum   string `json:"sum"`
	Piece int    `json:"piece"`
}
