package page_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
)

// settingsSample returns two methods at three learning rates, two decades apart, with two seeds. The accuracy of the
// first method is 10, 20, 30, that of the second 50, 60, 70; a second seed has 1 more. Only the second method has the
// option rank, which is 4 or, with the second seed, 8. The option init_std differs only between the methods.
func settingsSample() page.Report {
	r := page.Report{Title: "grid", Methods: []string{"PromptFL", "FedPGP"}, Metrics: []page.Metric{{Name: "accuracy",
		Title: "Accuracy", Unit: "%"}, {Name: "loss", Title: "Loss"}}}
	for m, method := range r.Methods {
		for i, lr := range []string{"0.001", "0.01", "0.1"} {
			for seed := range 2 {
				run := page.Run{Name: fmt.Sprintf("%s %s seed %d", method, lr, seed), Group: method + lr,
					Method: method, RunJSON: results.RunJSON{Seed: uint64(seed)}, Labels: map[string]string{"lr": lr},
					Config: fmt.Sprintf("method: %s\nseed: %d\ntrain: {lr: %s}\n", method, seed, lr)}
				run.Config += fmt.Sprintf("options: {init_std: 0.0%d", 1+m)
				if m == 1 {
					run.Config += fmt.Sprintf(", rank: %d", 4+4*seed)
				}
				run.Config += "}\n"
				v := float64(10 + 40*m + 10*i + seed)
				for k, metric := range []string{"accuracy", "loss"} {
					run.Curves = append(run.Curves, page.Curve{Metric: metric, Rounds: []int{0, 1},
						Values: []float64{0, v * float64(1-2*k)}})
				}
				r.Runs = append(r.Runs, run)
			}
		}
	}
	return r
}

// varied returns the sample with several settings that differ, some of them numbers.
func varied(rounds, clients int) page.Report {
	r := sample(rounds, clients)
	for i := range r.Runs {
		r.Runs[i].Config += fmt.Sprintf("options:\n  tokens: %d\n  regularization_weight: %g\n"+
			"  personal_prompt_length: %d\n  initial_words: a photo of %c\n",
			4<<(i%3), 0.001*float64(1+i%5), i%7, 'a'+i%4)
	}
	return r
}

// kept fails unless so many of twelve runs are inside the brushes, in the table of statuses, points and lines.
func (b *tab) kept(want int, after string) {
	b.Helper()
	status := b.text("#settings-status")
	points := js[string](b, `document.getElementById("settings-chart").dataset.points`)
	lines := js[int](b, `document.querySelectorAll("#parallel .lines path:not(.out)").length`)
	if status != fmt.Sprintf("%d of 12 runs", want) || points != fmt.Sprint(want) || lines != want {
		b.Errorf("after %s: %s, %s points, %d lines; want %d", after, status, points, lines, want)
	}
}

const axleOf = `[...document.querySelectorAll("#parallel .axle")].find((g) =>
	g.getAttribute("aria-label") === "Brush of %s")`

// TestSettings shows a point and a line for each run, and brushes them with keys and with the pointer.
func TestSettings(t *testing.T) {
	b := open(t, settingsSample())
	if got := js[string](b, `[...document.getElementById("settings-x").options].map((o) => o.text).join()`); got !=
		"lr,options.rank" {
		t.Errorf("settings are %s", got) // train.lr is the axis lr, and seeds are no settings
	}
	if got := b.text("#settings-axis"); got != "Accuracy (%) of the last round by lr, logarithmic" {
		t.Errorf("the axis is %q", got)
	}
	if got := js[string](b, `[...document.querySelectorAll("#parallel text.name title")].map((e) => e.textContent).join(
		" | ")`); got != "lr | method | options.rank | Accuracy" {
		t.Errorf("the axes are %s", got)
	}
	b.kept(12, "opening")
	// the outlines of six points of PromptFL, without lines
	if n := b.paintedIn("settings-chart", figures.LineColours[0][0]); n < 50 || n > 600 {
		t.Errorf("the first method has %d pixels", n)
	}

	b.focus("#settings-chart")
	b.key(kb.ArrowRight, chromedp.ModifierShift)
	if got := b.text("#settings-chart .heard"); got != "lr 0.001: FedPGP 0.001 seed 1 51.00, "+
		"FedPGP 0.001 seed 0 50.00, PromptFL 0.001 seed 1 11.00, PromptFL 0.001 seed 0 10.00" {
		t.Errorf("it reads %q", got)
	}
	b.key(kb.ArrowDown)
	b.key(kb.ArrowDown)
	if got := b.text("#settings-chart .heard"); got != "PromptFL 0.001 seed 1 11.00" {
		t.Errorf("two runs further it reads %q", got)
	}
	b.key(kb.Enter)
	run := func(want string) {
		t.Helper()
		b.until(fmt.Sprintf(`document.getElementById("run-run").value === %q`, want))
	}
	run("PromptFL 0.001 seed 1")

	b.run(`window.lr = ` + fmt.Sprintf(axleOf, "lr") + `; window.rank = ` + fmt.Sprintf(axleOf, "options.rank"))
	says := func(axis, want string) {
		t.Helper()
		if got := js[string](b, fmt.Sprintf(axleOf, axis)+`.getAttribute("aria-valuetext")`); got != want {
			t.Errorf("the brush of %s says %q, want %q", axis, got, want)
		}
	}
	b.run(`lr.focus()`)
	b.key(kb.ArrowUp)
	says("lr", "0.01 to 0.1")
	b.kept(8, "moving the lower end up")
	b.key(kb.ArrowDown, chromedp.ModifierShift)
	b.key(kb.ArrowDown, chromedp.ModifierShift) // the ends do not pass each other
	says("lr", "0.01 to 0.01")
	b.kept(4, "moving the upper end down")
	b.run(fmt.Sprintf(axleOf, "options.rank") + `.focus()`)
	b.key(kb.ArrowUp)
	b.kept(1, "rank 8 at lr 0.01") // runs without the option are outside
	link := js[string](b, "location.href")
	b.key(kb.Escape)
	b.kept(4, "Escape")
	other := newTab(t)
	other.do(chromedp.Navigate(link), chromedp.WaitReady(chromedp.CSS(`html[data-ready="true"]`)))
	other.kept(1, "following the link")
	other.run(`location.hash = '#settings?brush={"lr":["0.01","0.1"]}'`) // texts, as a hand may write them
	other.until(`document.getElementById("settings-status").textContent === "8 of 12 runs"`)
	other.kept(8, "an address with texts")
	other.quiet()
	b.click("#settings-data summary")
	b.until(`document.querySelectorAll("#settings-data tbody tr").length === 4`)
	if got := b.text("#settings-data tbody tr:nth-child(4)"); got != "FedPGP 0.01 seed 10.01FedPGP861.00" {
		t.Errorf("the last row is %q", got)
	}
	b.click("#settings-clear")
	b.kept(12, "clearing")

	// drags over the upper half of the metric, then the click that ends the brush
	b.run(`document.getElementById("parallel").scrollIntoView({block: "center", behavior: "instant"})`)
	box := js[[]float64](b, `((r) => [r.left + r.width / 2, r.top + 8, r.height - 16])(`+
		fmt.Sprintf(axleOf, "Accuracy")+`.querySelector(".strip").getBoundingClientRect())`)
	mouse := func(kind input.DispatchMouseEventType, share float64) {
		t.Helper()
		b.do(chromedp.MouseEvent(kind, box[0], box[1]+share*box[2], chromedp.ButtonLeft, chromedp.ClickCount(1)))
	}
	mouse(input.DispatchMouseEventTypeMousePressed, 0)
	mouse(input.DispatchMouseEventTypeMouseMoved, 0.3)
	// everything is drawn again, as by a new round on a live page, and the drag goes on
	b.run(`document.getElementById("theme").click()`)
	mouse(input.DispatchMouseEventTypeMouseMoved, 0.4)
	mouse(input.DispatchMouseEventTypeMouseReleased, 0.4) // 71 - 0.4 * 61 is 46.6
	b.run(`document.getElementById("theme").click(); localStorage.clear()`)
	says("Accuracy", "50 to 71")
	b.kept(6, "a drag")
	mouse(input.DispatchMouseEventTypeMousePressed, 0.2)
	mouse(input.DispatchMouseEventTypeMouseReleased, 0.2)
	b.kept(12, "a click on the axis")

	// the line of the best run, near the metric
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, box[0]-30, box[1]+2))
	b.until(`!document.querySelector("#parallel .tip").hidden`)
	if got := js[string](b, `document.querySelector("#parallel .tip").innerText`); !strings.HasPrefix(got,
		"FedPGP 0.1 seed 1\nlr\n0.1\n") {
		t.Errorf("the tip says %q", got)
	}
	mouseAt := func(kind input.DispatchMouseEventType) {
		b.do(chromedp.MouseEvent(kind, box[0]-30, box[1]+2, chromedp.ButtonLeft, chromedp.ClickCount(1)))
	}
	mouseAt(input.DispatchMouseEventTypeMousePressed)
	mouseAt(input.DispatchMouseEventTypeMouseReleased)
	run("FedPGP 0.1 seed 1")
	b.focus("#parallel")
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 2, 2)) // off the plot
	b.key(kb.Escape)
	b.key(kb.ArrowDown)
	b.key(kb.ArrowDown)
	if got := b.text("#parallel .heard"); !strings.HasPrefix(got, "FedPGP 0.1 seed 0, lr 0.1, method FedPGP, ") {
		t.Errorf("the second best run is read as %q", got)
	}
	b.key(kb.Enter)
	run("FedPGP 0.1 seed 0")

	b.run(`lr.isConnected || (window.lr = ` + fmt.Sprintf(axleOf, "lr") + `); lr.focus()`)
	b.key(kb.ArrowUp)
	b.click("#settings-only")
	b.until(`document.getElementById("runs-status").textContent === "12 of 12 runs, 8 in curves"`)
	if got := b.text("#settings-status"); got != "8 of 8 runs" {
		t.Errorf("the others are off: %s", got)
	}
	b.choose("settings-y", "loss")
	if got := b.text("#settings-axis"); got != "Loss of the last round by lr" { // one decade is left
		t.Errorf("the axis is %q", got)
	}
	b.choose("settings-x", "options.rank")
	if n := js[string](b, `document.getElementById("settings-chart").dataset.points`); n != "4" {
		t.Errorf("%s of 8 runs have the option", n)
	}
	b.find("lr=0.1")
	b.until(`document.getElementById("parallel-tool").checkVisibility() &&
		document.querySelectorAll("#parallel .lines path").length === 4`)
	b.find("nothing")
	b.until(`document.getElementById("settings").hidden`)
	b.quiet()
}

// TestSettingsOfMethods: points and lines have the colours of their methods in both themes, and those of a run without
// a method are grey. Without a number that differs, the page has neither the section nor a link to it.
func TestSettingsOfMethods(t *testing.T) {
	const link = `document.querySelector("nav a[href='#settings']").checkVisibility()`
	if b := open(t, sample(3, 4)); js[bool](b, link) || !js[bool](b, `document.getElementById("settings").hidden`) {
		t.Error("runs without a numeric setting have a plot of settings")
	}
	r := settingsSample()
	r.Methods = []string{"FedPGP", "PromptFL"}
	r.Runs[0].Method = ""
	b := open(t, r)
	if !js[bool](b, link) {
		t.Error("no link leads to the settings")
	}
	for i, scheme := range []string{"light", "dark"} {
		b.colours(scheme)
		b.frame()
		lines, greys := figures.LineColours[i], figures.GroupColours[i]
		// lines from the best run to the worst
		want := append(append(slices.Repeat(lines[:1], 6), slices.Repeat(lines[1:2], 5)...), greys[0])
		if got := js[[]string](b, `[...document.querySelectorAll("#parallel .lines path")]
			.map((e) => e.getAttribute("stroke"))`); !slices.Equal(got, want) {
			t.Errorf("%s: lines are %v, want %v", scheme, got, want)
		}
		key := []string{greys[0], lines[1], lines[0]} // in the order of the runs
		if got := js[[]string](b, `[...document.querySelectorAll("#settings-key path")]
			.map((e) => e.getAttribute("stroke"))`); !slices.Equal(got, key) {
			t.Errorf("%s: the key is %v, want %v", scheme, got, key)
		}
		for _, c := range key {
			if n := b.paintedIn("settings-chart", c); n < 8 {
				t.Errorf("%s: %d pixels of a plot are %s", scheme, n, c)
			}
		}
		b.readable(scheme)
	}
	b.quiet()
}
