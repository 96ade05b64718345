package message

// MaxLoss is the largest absolute loss that a client on another machine may report. Cross entropy of CLIP's
// scores is at most twice their scale, 200; the rest is room for other terms.
const MaxLoss = 1e6

// Limited lists the clients on other machines whose reports were refused or capped in a round, or that did not answer.
// All lists are sorted by client.
type Limited struct {
	Refused []Refusal      `json:"refused,omitempty"` // replies of any kind that are ignored
	Cut     []CappedUpload `json:"cut,omitempty"`     // uploads whose weight was capped
	// Unawaited lists the clients that rounds no longer wait for, from this one until they answer again.
	Unawaited []int `json:"unawaited,omitempty"`
}

// Refusal is one reply that was refused.
type Refusal struct {
	Client int    `json:"client"`
	Reason string `json:"reason"`
}

// CappedUpload has the number of examples that a client's upload claims and the number that weighted it.
type CappedUpload struct {
	Client  int `json:"client"`
	Claimed int `json:"claimed"`
	Counted int `json:"counted"`
}
