package protocol

import (
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/net/certs"
)

// JoinRequest is a client's request to join.
type JoinRequest struct {
	JoinHeader
	RunSpec     spec.RunSpec        `json:"terms"`
	Participant message.Participant `json:"member"`
	Backbone    string              `json:"backbone"` // digest of the backbone's files
	Tokens      string              `json:"tokens"`   // digest of the classes' text tokens
	// Examples is the number of training examples and the largest weight of an upload; 0 if it is secret.
	Examples int    `json:"examples,omitempty"`
	Numerics string `json:"numerics"` // digest of a numerics.Fingerprint
}

// JoinHeader is the common part of all requests to join.
type JoinHeader struct {
	Run      string      `json:"run"`      // identity, from the invitation
	Instance string      `json:"instance"` // of the process
	Client   int         `json:"client"`   // number of the client, or of a worker's job
	Nonce    string      `json:"nonce"`    // new for each request, so that an answer belongs to one request
	Proof    certs.Proof `json:"proof"`    // of the key that signs this request and later replies
}

func (i *JoinHeader) Header() *JoinHeader { return i }

// Joining is a request to join of a client or a worker.
type Joining interface{ Header() *JoinHeader }

// Question returns the digest of a request with its nonce and of its subject, which names the run and the client. An
// answer repeats the digest of the request that the server received. Nobody in between can therefore replay an answer,
// or pass on the refusal of an altered request or of another member's.
func Question(subject string, request []byte) string {
	return Checksum(append([]byte(subject+"\n"), request...))
}

// HelloRequest asks for the invitation.
type HelloRequest struct {
	Nonce   string `json:"nonce"`             // new for each request
	Program string `json:"program,omitempty"` // version of a worker's
}

// HelloReply is the server's invitation, before a client can join.
type HelloReply struct {
	Version  int      `json:"version"`
	Run      string   `json:"run,omitempty"`      // identity
	Question string   `json:"question,omitempty"` // see Question
	Clients  int      `json:"clients,omitempty"`
	Limit    int      `json:"limit,omitempty"`
	Config   []byte   `json:"config,omitempty"`
	Classes  []string `json:"classes,omitempty"` // none before the first client has joined
	// noise of differential privacy comes from the run's seed
	InsecureDP bool        `json:"insecure_dp,omitempty"`
	Proof      certs.Proof `json:"proof"` // of the key that signs this invitation and later instructions
	Refused    string      `json:"refused,omitempty"`
}

// JoinReply answers a request to join.
type JoinReply struct {
	OK       bool   `json:"ok"`
	Reason   string `json:"reason,omitempty"`
	Later    bool   `json:"later,omitempty"` // worth another try
	Question string `json:"question"`        // see Question
	Seq      int64  `json:"seq,omitempty"`   // of the newest instruction; older ones are invalid
	// Accepted and Safe are those of the client's newest Instruction.
	Accepted string `json:"accepted,omitempty"`
	Safe     string `json:"safe,omitempty"`
}

// Heartbeat reports that a client is running, and its current instruction.
type Heartbeat struct {
	Run      string `json:"run"`
	Client   int    `json:"client"`
	Instance string `json:"instance"`
	Count    int64  `json:"count"` // of this instance's heartbeats
	Doing    string `json:"doing,omitempty"`
	Try      string `json:"try,omitempty"` // of the newest instruction
	Leaves   bool   `json:"leaves,omitempty"`
}

// Receipt acknowledges a reply.
type Receipt struct {
	ID    string `json:"id"`
	Try   string `json:"try"`
	State string `json:"state"`
	Have  []byte `json:"have,omitempty"` // one bit for each piece of the reply's tensors: the server has it
}

// States of a receipt.
const (
	ReceiptTaken   = "taken"   // accepted, refused or not expected: the client is done with it
	ReceiptPending = "pending" // the server waits for the tensors
	ReceiptRepeat  = "repeat"  // the reply was damaged
)

// PieceRequest requests a piece of the tensors of the client's instruction.
type PieceRequest struct {
	Sum   string `json:"sum"`
	Piece int    `json:"piece"`
}
