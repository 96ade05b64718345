package projection

import "testing"

// BenchmarkProjector times one projector of a [16,512] prompt at rho 0.8: its factors as a step reads them, with their
// gradient, with the projection of a [16,512] prompt, and with the dense Q.
func BenchmarkProjector(b *testing.B) {
	p, x := lcg(3, 16, 512), lcg(5, 16, 512)
	for _, kind := range Kinds() {
		o := OfPrompt{Projector: kind, Ratio: .8, Gradient: "through"}
		dy := lcg(7, o.packing(16, 512).size())
		with := func(f func(*Projection) error) func() error {
			return func() error {
				q, err := Project(p, kind, .8)
				if err == nil {
					err = f(q)
				}
				return err
			}
		}
		for _, c := range []struct {
			name string
			run  func() error
		}{
			{"factors", func() error { _, _, err := o.Factors(p); return err }},
			{"vjp", func() error {
				_, vjp, err := o.Factors(p)
				if err == nil {
					_, err = vjp(dy)
				}
				return err
			}},
			{"apply", with(func(q *Projection) error { _, err := q.Apply(x); return err })},
			{"dense", with(func(q *Projection) error { q.Dense(); return nil })},
		} {
			b.Run(kind+"/"+c.name, func(b *testing.B) {
				for b.Loop() {
					if err := c.run(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
