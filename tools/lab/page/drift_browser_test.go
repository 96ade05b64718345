package page_test

import (
	"testing"

	"promptfed/tools/lab/page"
)

// TestDrift shows the drift of a run's clients, of which one has no last cosine, and hides the panel of another run.
func TestDrift(t *testing.T) {
	r := sample(3, 8)
	r.Runs, r.Panels = r.Runs[:2], []page.Panel{{Name: "drift", Title: "Drift"}}
	r.Runs[0].Details = detailed(map[string]any{"drift": []map[string]any{
		{"client": 1, "rounds": []int{1, 3}, "norm": []float64{2, 0}, "cosine": []any{0.5, nil}},
		{"client": 3, "rounds": []int{2}, "norm": []float64{4}, "cosine": []float64{-0.25}}}})
	b := open(t, r)
	const shows = `document.querySelector("[data-panel=drift]").checkVisibility()`
	if !js[bool](b, shows) {
		t.Fatal("the panel is hidden")
	}
	b.click("#drift-data summary")
	if got, want := b.texts("#drift-data tbody tr"), "client 1 · cartoon · ViT-B/3230– | client 3 · sketch · "+
		"ViT-B/3224-0.25"; got != want {
		t.Errorf("the table has %q, want %q", got, want)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.colours(scheme)
		b.readable(scheme)
	}
	for _, width := range widths {
		b.fit(width, "with drift")
	}
	b.run(`document.activeElement.blur()`)
	b.key("j")
	b.until("!" + shows)
	b.quiet()
}
