package record

import (
	"fmt"
	"slices"
	"strings"
)

// LimitedClient describes in a summary a client whose reports were refused or capped.
type LimitedClient struct {
	Client  int    `json:"client"`
	Refused int    `json:"refused,omitempty"` // replies
	Reason  string `json:"reason,omitempty"`  // of the first of them
	Cut     int    `json:"cut,omitempty"`     // rounds
	Claimed int    `json:"claimed,omitempty"` // examples, in the last of them
	Counted int    `json:"counted,omitempty"` // likewise, that it was averaged with
}

// limitedClients merges the refusals and caps of records by client, sorted; nil where there are none.
func limitedClients(records []Record) []LimitedClient {
	var out []LimitedClient
	of := func(client int) *LimitedClient {
		i, there := slices.BinarySearchFunc(out, client, func(c LimitedClient, k int) int { return c.Client - k })
		if !there {
			out = slices.Insert(out, i, LimitedClient{Client: client})
		}
		return &out[i]
	}
	for _, r := range records {
		for _, x := range r.Refused {
			c := of(x.Client)
			if c.Refused++; c.Refused == 1 {
				c.Reason = x.Reason
			}
		}
		for _, x := range r.Cut {
			c := of(x.Client)
			c.Cut++
			c.Claimed, c.Counted = x.Claimed, x.Counted
		}
	}
	return out
}

// String describes the client in one line.
func (c LimitedClient) String() string {
	var parts []string
	if c.Refused > 0 {
		parts = append(parts, fmt.Sprintf("%d of its replies were refused (%s)", c.Refused, c.Reason))
	}
	if c.Cut > 0 {
		parts = append(parts, fmt.Sprintf("claims %d examples and was weighted as if it had %d, in %d rounds",
			c.Claimed, c.Counted, c.Cut))
	}
	return fmt.Sprintf("client %d: %s", c.Client, strings.Join(parts, "; "))
}
