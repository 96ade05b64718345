package figures

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

// source draws numbers, sizes and labels from bytes, and zeros after their end.
type source struct{ data []byte }

func (s *source) byte() int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b)
}

// size returns a size up to most, rarely a large one.
func (s *source) size(most int) int { return s.byte() * s.byte() * most / (255 * 255) }

// number returns a number mostly between -100 and 100, sometimes any float64.
func (s *source) number() float64 {
	b := s.byte()
	if b < 240 || len(s.data) < 8 {
		return float64(b)*0.8 - 90
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(s.data))
	s.data = s.data[8:]
	return v
}

func (s *source) numbers(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = s.number()
	}
	return out
}

func (s *source) table(rows, cols int) [][]float64 {
	out := make([][]float64, rows)
	for i := range out {
		out[i] = s.numbers(cols)
	}
	return out
}

func (s *source) label() string {
	n := s.byte() % 24
	n = min(n, len(s.data))
	text := string(s.data[:n])
	s.data = s.data[n:]
	return strings.Repeat(text, 1+s.byte()/64)
}

func (s *source) labels(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s.label()
	}
	return out
}

func (s *source) axis() Axis {
	b := s.byte()
	a := Axis{Label: s.label(), Log: b&1 > 0}
	if b&2 > 0 {
		a.Bounds = [2]float64{s.number(), s.number()}
	}
	if b&12 == 12 {
		a.Names = s.labels(1 + s.size(30))
	}
	return a
}

func (s *source) drawer() Drawer {
	kind, title, panels := s.byte()%12, s.label(), s.size(8)
	var lines []LinePanel
	switch kind {
	case 0, 1:
		for range panels {
			p := LinePanel{Title: s.label(), X: s.axis(), Y: s.axis()}
			for range s.size(12) {
				n := s.size(60)
				l := Line{Label: s.label(), X: s.numbers(n), Y: s.numbers(n)}
				if n%2 > 0 {
					l.Spread = s.numbers(n)
				}
				p.Lines = append(p.Lines, l)
			}
			lines = append(lines, p)
		}
		if kind == 0 {
			return Curves{Title: title, Panels: lines, Reference: &Reference{s.label(), s.number()}}
		}
		return Sensitivity{Title: title, Panels: lines}
	case 2:
		h := HeatMap{Title: title, X: s.label(), Y: s.label(), ColumnNames: s.labels(s.size(40)),
			RowNames: s.labels(s.size(40)), Value: s.label(), Scale: [2]float64{s.number(), s.number()}}
		for range panels {
			h.Panels = append(h.Panels, HeatPanel{Title: s.label(), Values: s.table(len(h.RowNames),
				len(h.ColumnNames)), Frames: []Cell{{s.byte() % 3, s.byte() % 3}}})
		}
		return h
	case 3:
		b := Box{Title: title, Y: s.axis()}
		for range panels {
			p := BoxPanel{Title: s.label(), X: s.label()}
			for range s.size(40) {
				p.Boxes = append(p.Boxes, Sample{s.label(), s.label(), s.numbers(s.size(30))})
			}
			b.Panels = append(b.Panels, p)
		}
		return b
	case 4:
		f := Scatter3{Title: title, Value: s.label()}
		for range panels {
			p := Scatter3Panel{Title: s.label(), X: s.label(), Y: s.label(), Z: s.label()}
			for range s.size(100) {
				p.Points = append(p.Points, Point3{s.number(), s.number(), s.number(), s.number()})
			}
			f.Panels = append(f.Panels, p)
		}
		return f
	case 5:
		f := Strips{Title: title, Y: s.axis()}
		for range panels {
			p := StripPanel{Title: s.label()}
			for range s.size(6) {
				p.Groups = append(p.Groups, StripGroup{s.label(), s.numbers(s.size(200))})
			}
			f.Panels = append(f.Panels, p)
		}
		return f
	case 6:
		f := TSNE{Title: title}
		for range panels {
			rows := s.table(s.size(30), 1+s.byte()%3)
			f.Panels = append(f.Panels, TSNEPanel{s.label(), rows, s.labels(len(rows))})
		}
		return f
	case 7:
		f := PCA{Title: title, Classes: s.labels(1 + s.byte()%5), PerClass: s.byte() > 128}
		for range panels {
			width := 1 + s.byte()%4
			p := PCAPanel{Title: s.label(), Images: s.table(s.size(40), width), Before: s.table(len(f.Classes), width),
				After: s.table(len(f.Classes), width)}
			for range p.Images {
				p.Labels = append(p.Labels, s.byte()%len(f.Classes))
			}
			f.Panels = append(f.Panels, p)
		}
		return f
	case 8:
		f := Bubbles{Title: title}
		for range panels {
			p := BubblePanel{Title: s.label()}
			classes := s.size(250)
			for range s.size(250) {
				row := make([]int, classes)
				for i := range row {
					row[i] = s.byte()
				}
				p.Counts = append(p.Counts, row)
			}
			if s.byte() > 128 {
				p.Domains = s.labels(len(p.Counts))
			}
			f.Panels = append(f.Panels, p)
		}
		return f
	case 9:
		f := Cost{Title: title, Bytes: s.label(), Seconds: s.label()}
		for range s.size(50) {
			f.Rows = append(f.Rows, CostRow{s.label(), s.number(), s.number()})
		}
		return f
	}
	n := 2 + s.size(20)
	if kind == 10 {
		f := Ranks{Title: title, Names: s.labels(n), Difference: 0.01 + float64(s.byte()), Note: s.label()}
		for range n {
			f.Mean = append(f.Mean, 1+math.Mod(float64(s.byte())/10, float64(n-1)))
		}
		return f
	}
	f := Significance{Title: title, Value: s.label(), Names: s.labels(n), Difference: s.table(n, n), P: s.table(n, n)}
	for _, row := range f.P {
		for i := range row {
			row[i] = math.Abs(math.Mod(row[i], 1))
		}
	}
	return f
}

// For any numbers, sizes and labels, the figure is drawn or the error has one line, and no text leaves the figure.
func FuzzDraw(f *testing.F) {
	r := invented()
	for kind := range 12 {
		for seed := range 3 {
			data := []byte{byte(kind)}
			for range 400 * seed {
				data = append(data, byte(r.IntN(256)))
			}
			f.Add(append(data, 250, 0, 0, 0, 0, 0, 0, 248, 127))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := source{data}
		fig, err := Draw(s.drawer())
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		texts, err := textsOf(fig)
		if err != nil {
			t.Error(err)
		}
		for _, w := range texts {
			if !w.inside(fig) {
				t.Errorf("%q leaves the figure", w.text)
			}
		}
		if _, err := fig.SVG(); err != nil {
			t.Error(err)
		}
	})
}
