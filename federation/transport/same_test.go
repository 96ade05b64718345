package transport_test

import "testing"

// The same experiment gives the same bytes and the same records in one process, through encoded messages, and over NATS.
func TestSameBytes(t *testing.T) {
	for _, s := range []stack{
		{"promptfl", nil, map[string]any{"tokens": 2}},
		fedpha,
		{"fedappr", nil, nil},
		{"promptfl", []string{"scaffold", "ggtpc"}, nil},
		{"pfeddc", nil, nil},
	} {
		t.Run(s.method, func(t *testing.T) {
			want, records := simulated(t, s.toy(t), false)
			loop, _ := simulated(t, s.toy(t), true)
			site := newSite(t, s.toy(t))
			site.run()
			if t.Failed() {
				return
			}
			if got := site.learned(); got != want || loop != want {
				t.Error("other bytes than in one process")
			}
			if got := site.records(); got != records {
				t.Errorf("other records than in one process:\n%s\n%s", got, records)
			}
		})
	}
}
