package bench

import (
	"context"
	"testing"

	"promptfed/federation/methods/parts/projection"
	"promptfed/runtime/goldentest"
)

// Every projector has a row for both lengths of prompts, and all times are measured.
func TestSVD(t *testing.T) {
	r, err := Measure(context.Background(), Options{Quick: true}, SVD)
	goldentest.NoError(t, err)
	rows := r.Tables[0].Rows
	if want := 2 * len(projection.Kinds()); len(rows) != want {
		t.Errorf("%d rows, want %d", len(rows), want)
	}
	for _, row := range rows {
		for _, cell := range row[2:] {
			if n, ok := cell.(Number); !ok || !(n.Value > 0) {
				t.Errorf("%v", row)
			}
		}
	}
}
