package partition

import (
	"math"
	"strings"
	"testing"
)

// FuzzSplit: no configuration panics or runs forever, which the -timeout of a test ends; errors are one line.
func FuzzSplit(f *testing.F) {
	f.Add(uint8(3), 20, 0.05, 10, 2, 0.1, 10.0, 0.1, false, uint64(0), 0, uint64(1), uint8(0), uint8(10))
	f.Add(uint8(3), 500, 1e-300, 0, 2, 0.1, 10.0, 0.1, true, uint64(0), 0, uint64(1), uint8(1), uint8(9))
	f.Add(uint8(9), 6, math.NaN(), 2, 2, 0.0, math.Inf(1), 2.0, true, uint64(7), 16, uint64(1)<<40, uint8(3), uint8(3))
	f.Add(uint8(6), 9, 1e300, -1, 1<<40, -1.0, 5e-324, 1e-9, true, uint64(0), 1<<40, uint64(1), uint8(2), uint8(20))
	f.Add(uint8(1), 1<<62, 0.5, 1<<62, 1<<62, 0.999, 1e-5, 1.0, false, uint64(1)<<63, 3, uint64(5), uint8(2), uint8(1))
	f.Fuzz(func(t *testing.T, kind uint8, clients int, beta float64, size, classes int, repeat, fine, share float64,
		code bool, own uint64,
		shots int, seed uint64, domains, setClasses uint8) {
		n := int(setClasses)%20 + 1
		s := coarse(toy(n, int(domains)%5, 6, int(domains)%2, 3), 4)
		if domains > 127 {
			s.MergeSplits(true)
		}
		all := Kinds()
		p := Config{Kind: all[int(kind)%len(all)].Name, Clients: clients, Beta: beta, MinSize: size, Classes: classes,
			Repeat:   repeat,
			FineBeta: fine, Share: share, Code: code, Seed: own, Fill: kind > 127, Uncap: clients%2 == 0}
		if kind%7 == 0 && len(s.Domains) > 0 {
			p.LeaveOut = s.Domains[:1]
		}
		got, err := Split(p, s, shots, seed)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "partition") {
				t.Fatalf("error %q", err)
			}
			return
		}
		if len(got) != p.Clients {
			t.Fatalf("%+v: %d clients", p, len(got))
		}
	})
}
