package record

import (
	"testing"

	"promptfed/federation/engine/message"
)

// A client that missed deadlines had instructions. If the sample is secret, the record does not name that client.
func TestSecretSampleNamesNoSilentClient(t *testing.T) {
	r := Record{LimitedClients: message.LimitedClients{Unawaited: []int{1}}}
	r.HideSample(false)
	if len(r.Unawaited) > 0 || len(r.Warnings) > 0 {
		t.Errorf("%+v, %v", r.LimitedClients, r.Warnings)
	}
}
