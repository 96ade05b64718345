package record_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
)

// The summary's counts of clients are those of the records, counted by hand. Without limited clients, records and
// summaries have no such key.
func TestSummaryOfLimited(t *testing.T) {
	s := record.Summarise([]record.Record{
		{LimitedClients: message.LimitedClients{Refused: []message.Refusal{{Client: 4, Reason: "first"},
			{Client: 4, Reason: "second"}},
			Cut: []message.CappedUpload{{Client: 1, Claimed: 900, Counted: 40}}}},
		{},
		{LimitedClients: message.LimitedClients{Refused: []message.Refusal{{Client: 1, Reason: "x"}},
			Cut: []message.CappedUpload{{Client: 1, Claimed: 900, Counted: 60}, {Client: 7, Claimed: 8, Counted: 5}}}},
	}, method.GlobalView)
	want := "[client 1: 1 of its replies were refused (x); claims 900 examples and was weighted as " +
		"if it had 60, in 2 rounds client 4: 2 of its replies were refused (first) client 7: claims 8 examples and " +
		"was weighted as if it had 5, in 1 rounds]"
	if got := fmt.Sprint(s.Limited); got != want {
		t.Errorf("%s, not %s", got, want)
	}
	b, err := json.Marshal([]any{record.Record{}, record.Summarise([]record.Record{{}}, method.GlobalView)})
	for _, key := range []string{`"refused"`, `"cut"`, `"limited"`, `"LimitedClients"`} {
		if err != nil || strings.Contains(string(b), key) {
			t.Errorf("%v: %s in %s", err, key, b)
		}
	}
}
