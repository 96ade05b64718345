package metrics

import "slices"

// OwnClasses is the name of the accuracy where only the classes compete that a client trains on.
const OwnClasses = "own-classes"

// ownCorrect is the number of examples whose label has the largest score among the classes that the client trains on.
var ownCorrect = send(Statistic{Name: "own_correct", Size: 1,
	Title: "number of images that are correct among the client's own classes",
	Compute: func(e Examples) []float64 {
		n := 0.0
		for i, y := range e.Labels {
			row := e.Scores.Row(i).Data
			if slices.Contains(e.Own, y) && !slices.ContainsFunc(e.Own, func(j int64) bool {
				return row[j] > row[y] || row[j] == row[y] && j < y
			}) {
				n++
			}
		}
		return []float64{n}
	},
	Check: func(v []float64, of ReportedTest) error { return whole(of.Examples, v...) }})

var _ = define(Definition{Name: OwnClasses, Column: 70, Title: "accuracy among each client's own classes",
	Unit: Percent, Statistics: []*Statistic{ownCorrect}, Merge: meanClients,
	Value: meanOver(func(c Client) float64 { return c.rate(ownCorrect) })})
