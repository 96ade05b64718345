package page_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
)

// coloured returns a page about the given methods on two sets, with groups named like their methods, and a table of
// them.
func coloured(methods ...string) page.Report {
	r := page.Report{Title: "colours", Metrics: []page.Metric{{Name: "accuracy", Unit: "%"}}, Methods: methods}
	t := page.Table{Title: "Accuracy", Columns: []page.Column{{Name: "method", Text: true}, {Name: "cat"}}}
	for i, m := range methods {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{{Text: m}, cellOf("1", 1)}})
		for j, set := range []string{"cat", "dog"} {
			r.Runs = append(r.Runs, page.Run{Name: m + " on " + set, Method: m,
				RunJSON: results.RunJSON{Seed: uint64(j)}, Labels: map[string]string{"method": m, "data": set},
				Config: "method: " + m + "\n",
				Curves: []page.Curve{{Metric: "accuracy", Rounds: []int{1, 2, 3}, Values: []float64{float64(10*i + j),
					float64(10*i + j + 3), float64(10*i + j + 5)}}}})
		}
	}
	r.Tables = []page.Table{t}
	return r
}

// shownColours returns a method's colours everywhere on the page: in the table of results, the table of runs, the
// configurations side by side and the legend, as "place colour".
func (b *tab) shownColours(method string) []string {
	b.Helper()
	return js[[]string](b, fmt.Sprintf(`(() => {
		const name = %q, out = [];
		const stroke = (e) => e && e.querySelector("svg path").getAttribute("stroke");
		const add = (place, list) => { for (const e of list) if (e.textContent.includes(name) && e.querySelector("svg"))
			out.push(place + " " + stroke(e)); };
		add("results", document.querySelectorAll("#results-1 tbody tr > :first-child"));
		add("runs", document.querySelectorAll("#runs-table tbody th"));
		add("configurations", document.querySelectorAll("#configuration thead th"));
		add("legend", document.querySelectorAll("#curves-legend button"));
		return out;
	})()`, method))
}

// TestOneColour: a method has the colour of its index in the report's list, as in the report's figures. This holds in
// every table, in the legend and on the canvas, for any selection of runs, in the light and the dark theme, and for a
// theme from an earlier visit. The ninth method has the first colour again.
func TestOneColour(t *testing.T) {
	methods := []string{"CoOp", "L2 CoOp", "PromptFL", "FedPHA", "FedAPPR", "FedOTP", "FedPGP", "pFedDC", "SDFed"}
	colours := figures.MethodColours(methods)
	b := open(t, coloured(methods...))
	dark := 0
	check := func(when string, shown ...string) {
		t.Helper()
		b.frame()
		for _, m := range shown {
			want := figures.LineColours[dark][colours[m]%len(figures.LineColours[dark])]
			got := b.shownColours(m)
			if len(got) < 3 {
				t.Errorf("%s: %s is shown %d times: %q", when, m, len(got), got)
			}
			for _, place := range got {
				if m == "CoOp" && strings.HasSuffix(place, figures.LineColours[dark][1]) {
					continue // skip L2 CoOp, whose name contains this name
				}
				if !strings.HasSuffix(place, want) {
					t.Errorf("%s: %s is %s, want %s", when, m, place, want)
				}
			}
			if n := b.painted(want); n < 40 {
				t.Errorf("%s: %d pixels have the colour of %s, %s", when, n, m, want)
			}
		}
	}
	check("at first", methods...)
	b.run(`location.hash = "#curves?q=method%3D%22L2+CoOp%22"`) // only its runs: two lines of one colour
	b.until(`document.querySelectorAll("#curves-legend button").length === 2`)
	check("of one method", "L2 CoOp")
	b.run(`location.hash = "#curves?lines=by:method&q=pFedDC+on"`)
	b.until(`document.querySelectorAll("#curves-legend button").length === 1`)
	check("of a mean by method", "pFedDC")
	b.run(`location.hash = "#curves?facet=data"`)
	b.until(`document.querySelectorAll("#curves-legend button").length === 9`)
	check("with a plot for each set", methods...)
	dark = 1
	b.click("#theme")
	check("in the dark", methods...)
	b.do(chromedp.Navigate(strings.SplitN(js[string](b, `location.href`), "#", 2)[0]+"?again#curves"),
		chromedp.WaitReady(chromedp.CSS(`html[data-ready="true"]`)))
	check("in the dark again", methods...)
	b.run(`localStorage.clear()`)
}

// TestColoursOfMixedLines: a line over several methods is grey. The same holds for a key with
// different methods in different plots.
func TestColoursOfMixedLines(t *testing.T) {
	b := open(t, coloured("CoOp", "L2 CoOp", "PromptFL"))
	none := func(when string, lines int) {
		t.Helper()
		b.until(fmt.Sprintf(`document.querySelectorAll("#curves-legend button").length === %d`, lines))
		strokes := js[[]string](b, `[...document.querySelectorAll("#curves-legend path")]
			.map((e) => e.getAttribute("stroke"))`)
		for i, s := range strokes {
			if want := figures.GroupColours[0][i]; s != want {
				t.Errorf("%s: line %d is %s, want %s", when, i, s, want)
			}
		}
	}
	b.choose("curves-lines", "by:data")
	none("means by set", 2)
	b.run(`location.hash = "#curves?facet=method"`)
	none("a plot for each method", 2)
}

// TestFirstLines: of many lines, those shown at first are of all methods.
func TestFirstLines(t *testing.T) {
	b := open(t, sample(5, 4))
	b.choose("curves-lines", "runs")
	b.until(`document.querySelectorAll("#curves-legend button").length === 45`)
	count := map[string]int{}
	for _, c := range js[[]string](b, `[...document.querySelectorAll("#curves-legend [aria-pressed=true] path")]
		.map((e) => e.getAttribute("stroke"))`) {
		count[c]++
	}
	for i := range madeMethods {
		if c := figures.LineColours[0][i]; count[c] != 2 {
			t.Errorf("%d of the first ten lines are %s, want 2", count[c], c)
		}
	}
}
