package distributed

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"promptfed/federation/net/wire"
)

// If the sample of clients is secret, no series shows which client has an instruction. If its size is secret, no series
// grows with it.
func TestMetricsHideTheSample(t *testing.T) {
	names := func(s wire.Status) string {
		s.Clients = []wire.ClientStatus{{Joined: true, Asked: true}}
		out := make(chan prometheus.Metric, 100)
		newMeter(nil).collect(&s, out)
		close(out)
		var all []string
		for m := range out {
			all = append(all, m.Desc().String())
		}
		return strings.Join(all, "\n")
	}
	all, secret, size := names(wire.Status{}), names(wire.Status{Secret: true}),
		names(wire.Status{Secret: true, SecretSize: true})
	for name, in := range map[string][3]bool{"promptfed_client_lag": {true, false, false},
		"promptfed_client_joined": {true, true, true}, "promptfed_rounds_total": {true, true, true},
		"promptfed_replies_total": {true, true, false}, "promptfed_upload_bytes_total": {true, true, false},
		"promptfed_download_bytes_total": {true, true, false}, "promptfed_late_replies_total": {true, true, false},
		"promptfed_refused_replies_total": {true, true, false},
		"promptfed_repeated_orders_total": {true, true, false}} {
		for i, text := range []string{all, secret, size} {
			if strings.Contains(text, `"`+name+`"`) != in[i] {
				t.Errorf("%s in case %d: %v", name, i, !in[i])
			}
		}
	}
}
