package projection

import (
	"encoding/binary"
	"math"
	"testing"

	"promptfed/runtime/tensor"
)

// FuzzProject: any float32 bits cause an error or have a finite projector of the promised rank and finite gradient.
func FuzzProject(f *testing.F) {
	f.Add(uint8(2), uint8(0), .5, []byte{0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 128, 191})
	f.Add(uint8(1), uint8(3), .9, []byte{255, 255, 127, 127, 1, 0, 0, 0})
	f.Add(uint8(2), uint8(2), 1., []byte{0, 0, 192, 127, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, rows, kind uint8, rho float64, raw []byte) {
		n := min(len(raw)/4, 256)
		r := int(rows)
		if r == 0 || n < r {
			return
		}
		p := tensor.New(r, n/r)
		for i := range p.Data {
			p.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		q, err := Project(p, Kinds()[int(kind)%len(Kinds())], rho)
		if err != nil {
			return
		}
		dq := q.Dense()
		trace := 0.0
		for i := range n / r {
			trace += float64(dq.Data[i*(n/r)+i])
		}
		if dq.NonFinite() >= 0 || math.Abs(trace-float64(q.Kept())) > 1e-4 {
			t.Fatalf("%s %v of %v: trace %v, kept %d", q.Kind, rho, p, trace, q.Kept())
		}
		dp, err := q.vjp(q.coordinates(denseOf(t, lcg(1, n/r, n/r))))
		if err == nil {
			for _, v := range dp.Data {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("%s %v of %v: gradient %v", q.Kind, rho, p, v)
				}
			}
		}
	})
}
