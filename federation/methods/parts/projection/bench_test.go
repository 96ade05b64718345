package projection

import "testing"

// BenchmarkProjector times one projector of a [16,512] prompt at rho 0.8: the decomposition alone, with the dense Q,
// with the projection of a [16,512] prompt, and with its gradient. The papers report 4.2 ms for the decomposition.
func BenchmarkProjector(b *testing.B) {
	p, x, g := lcg(3, 16, 512), lcg(5, 16, 512), lcg(7, 512, 512)
	for _, kind := range Kinds() {
		steps := map[string]func(*Projection) error{
			"factors": func(*Projection) error { return nil },
			"dense":   func(q *Projection) error { q.Dense(); return nil },
			"apply":   func(q *Projection) error { _, err := q.Apply(x); return err },
			"vjp":     func(q *Projection) error { _, err := q.VJP(g); return err },
		}
		for _, name := range []string{"factors", "dense", "apply", "vjp"} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				for b.Loop() {
					q, err := Project(p, kind, .8)
					if err == nil {
						err = steps[name](q)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
