package page_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
)

// shown returns the first and last visible round of the plot.
func (b *tab) shown() (from, to float64) {
	b.Helper()
	return number(b, "from"), number(b, "to")
}

func number(b *tab, name string) float64 {
	b.Helper()
	v, err := strconv.ParseFloat(js[string](b, `document.getElementById("curves-chart").dataset.`+name), 64)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

func TestZoom(t *testing.T) {
	b := open(t, sample(50, 8))
	whole := func(after string) {
		t.Helper()
		if from, to := b.shown(); from != 0 || to != 49 {
			t.Errorf("after %s the plot shows rounds %g to %g of 0 to 49", after, from, to)
		}
	}
	part := func(after string) (float64, float64) {
		t.Helper()
		from, to := b.shown()
		if to-from > 40 || to-from < 2 || from < 0 || to > 49 {
			t.Errorf("after %s the plot shows rounds %g to %g", after, from, to)
		}
		return from, to
	}
	whole("opening")
	b.focus("#curves-chart")
	b.key("+")
	part("+")
	b.key("+")
	from, to := part("+ +")
	b.key(kb.ArrowRight)
	if f, o := part("right"); f <= from || o <= to {
		t.Errorf("the right arrow moved rounds %g to %g to %g to %g", from, to, f, o)
	}
	b.key(kb.ArrowLeft)
	b.key("-")
	b.key("0")
	whole("0")

	// A drag over the middle half.
	b.run(`document.querySelector("#curves-chart").scrollIntoView({block: "center", behavior: "instant"})`)
	box := js[[]float64](b, `((r) => [r.left, r.top, r.width, r.height])(
		document.querySelector("#curves-chart .u-over").getBoundingClientRect())`)
	x := func(share float64) float64 { return box[0] + share*box[2] }
	y := box[1] + box[3]/2
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x(.25), y),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, x(.25), y, chromedp.ButtonLeft,
			chromedp.ClickCount(1)), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x(.5), y,
			chromedp.ButtonLeft), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x(.75), y,
			chromedp.ButtonLeft), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, x(.75), y,
			chromedp.ButtonLeft, chromedp.ClickCount(1)))
	from, to = part("a drag")
	if from < 11.5 || from > 13 || to < 36 || to > 37.5 { // quarters of 49 are 12.25 and 36.75
		t.Errorf("a drag over the middle half shows rounds %g to %g; want about 12.25 to 36.75", from, to)
	}
	b.click(`[data-zoom="reset"]`)
	whole("the reset button")

	wheel := func() {
		t.Helper()
		b.run(`document.querySelector("#curves-chart .u-over").dispatchEvent(new WheelEvent("wheel",
			{deltaY: -100, clientX: 640, bubbles: true, cancelable: true}))`)
	}
	wheel()
	whole("a wheel over a plot without the focus")
	b.focus("#curves-chart")
	for range 3 {
		wheel()
	}
	part("the wheel")
	b.click(`[data-zoom="in"]`)
	b.click(`[data-zoom="out"]`)
	part("the buttons")
	b.do(chromedp.DoubleClick(chromedp.CSS("#curves-chart .u-over")))
	whole("a double click")

	b.focus("#curves-chart")
	b.key(kb.ArrowRight, chromedp.ModifierShift)
	b.key(kb.ArrowRight, chromedp.ModifierShift)
	if got := b.text("#curves-chart .heard"); !strings.HasPrefix(got, "Round 1: pFedDC · OxfordPets ") {
		t.Errorf("Shift and the right arrow twice read %q", got)
	}
	if got := js[string](b, `document.querySelector(".tip").innerText`); !strings.HasPrefix(got, "Round 1") ||
		js[bool](b, `document.querySelector(".tip").hidden`) {
		t.Errorf("the values shown are %q", got)
	}
	b.quiet()
}

// painted counts the pixels of the plot of curves with a colour #rrggbb, as a proof that a line is visible.
func (b *tab) painted(colour string) int { b.Helper(); return b.paintedIn("curves-chart", colour) }

func (b *tab) paintedIn(chart, colour string) int {
	b.Helper()
	var red, green, blue int
	if _, err := fmt.Sscanf(colour, "#%02x%02x%02x", &red, &green, &blue); err != nil {
		b.Fatal(err)
	}
	return js[int](b, fmt.Sprintf(`(() => {
		const c = document.querySelector("#%s canvas"), want = [%d, %d, %d];
		const copy = new OffscreenCanvas(c.width, c.height).getContext("2d", { willReadFrequently: true });
		copy.drawImage(c, 0, 0);
		const p = copy.getImageData(0, 0, c.width, c.height).data;
		let n = 0;
		for (let i = 0; i < p.length; i += 4) {
			const off = want.reduce((sum, w, k) => sum + Math.abs(p[i+k] - w), 0);
			if (off < 24 && p[i+3] > 200) n++;
		}
		return n })()`, chart, red, green, blue))
}

func TestLegendAndLines(t *testing.T) {
	b := open(t, sample(20, 8))
	frame := b.frame
	lines := func() int { return int(number(b, "lines")) }
	first := `#curves-legend button[data-key="PromptFL · Caltech101"]`
	frame()
	if n := lines(); n != 15 {
		t.Fatalf("%d lines; 5 methods on 3 sets are 15", n)
	}
	if n := b.painted(figures.LineColours[0][0]); n < 300 {
		t.Errorf("the first line has %d pixels on the canvas", n)
	}
	b.click(`#curves-none`)
	b.click(first)
	frame()
	alone := b.painted(figures.LineColours[0][0])
	if lines() != 1 || alone < 300 || js[string](b, `document.querySelector('`+first+
		`').getAttribute("aria-pressed")`) != "true" {
		t.Errorf("switched on alone: %d lines, %d pixels", lines(), alone)
	}
	b.focus(first)
	b.key(" ")
	frame()
	if lines() != 0 || b.painted(figures.LineColours[0][0]) != 0 || js[string](b, `document.querySelector('`+first+
		`').getAttribute("aria-pressed")`) != "false" {
		t.Errorf("switched off with the keyboard: %d lines, %d pixels", lines(), b.painted(figures.LineColours[0][0]))
	}
	b.key(kb.ArrowRight)
	b.key(kb.Enter)
	if js[string](b, `document.activeElement.dataset.key`) != "PromptFL · Flowers102" || lines() != 1 {
		t.Errorf("the arrow key and Enter gave %d lines", lines())
	}

	b.choose("curves-lines", "runs")
	if n := lines(); n != 10 { // the first ten of 45 runs, stated beside the legend
		t.Errorf("%d lines of 45 runs are shown at first", n)
	}
	if got := b.text("#curves-shown"); got != "10 of 45 lines shown" {
		t.Errorf("the legend says %q", got)
	}
	b.choose("curves-lines", "clients")
	b.choose("curves-run", "PromptFL · Flowers102, seed 2")
	if n := lines(); n != 9 { // 8 clients and their mean
		t.Errorf("%d lines for 8 clients", n)
	}
	if got := b.text(`#curves-legend [data-key="c3"]`); !strings.HasPrefix(got,
		"client 3 · sketch · ViT-B/32") {
		t.Errorf("the fourth client is called %q", got)
	}
	b.choose("curves-lines", "groups")
	b.choose("curves-metric", "bytes")
	if got := b.text("#curves-axis"); got != "Bytes per round by round" {
		t.Errorf("the axis is called %q", got)
	}

	b.click("#curves-data summary")
	b.until(`document.querySelectorAll("#curves-data tbody tr").length === 20`)
	b.quiet()
}

func TestPartition(t *testing.T) {
	r := sample(3, 8)
	b := open(t, r)
	read := func() string { return b.text("#partition-read") }
	sum := 0
	for _, c := range r.Runs[0].Clients.Clients {
		for _, n := range c.Train {
			sum += n
		}
	}
	if want := "8 clients, 14 classes, " + strconv.Itoa(sum) + " training examples"; read() != want {
		t.Errorf("the partition reads %q; want %q", read(), want)
	}
	b.focus("#partition-grid")
	b.key(kb.ArrowDown)
	b.key(kb.ArrowDown)
	b.key(kb.ArrowRight)
	second := r.Runs[0].Clients.Clients[1]
	sum = 0
	for _, n := range second.Train {
		sum += n
	}
	if want := "Client 1 · cartoon · ViT-B/32: " + strconv.Itoa(second.Train[1]) + " of elephant, of " +
		strconv.Itoa(sum) + " training examples"; read() != want {
		t.Errorf("at the second class of the second client it reads %q; want %q", read(), want)
	}
	b.choose("partition-split", "test")
	b.choose("partition-form", "cells")
	b.choose("partition-order", "domain")
	b.click("#partition-data summary")
	b.until(`document.querySelectorAll("#partition-data tbody tr").length === 8`)
	b.quiet()
}

// TestAlong: the horizontal axis can be any quantity that grows with the rounds. With 8 clients a round of the sample
// sends 2*4*16*512*8 = 524,288 bytes. 20 rounds therefore reach from 0.5243 to 10.49 MB in the page's four digits.
// Zooming, reading, the table and the address follow.
func TestAlong(t *testing.T) {
	r := sample(20, 8)
	r.Metrics = append(r.Metrics, page.Metric{Name: "total-bytes", Title: "Bytes of all rounds so far", Unit: "bytes"})
	for i := range r.Runs {
		all := page.Curve{Metric: "total-bytes"}
		for k := range 20 {
			all.Rounds, all.Values = append(all.Rounds, k), append(all.Values, 524288*float64(k+1))
		}
		r.Runs[i].Curves = append(r.Runs[i].Curves, all)
	}
	b := open(t, r)
	b.choose("curves-x", "total-bytes")
	if from, to := b.shown(); from != 524300 || to != 10490000 {
		t.Errorf("the plot shows %g to %g bytes", from, to)
	}
	if got := b.text("#curves-axis"); got != "Accuracy (%) by Bytes of all rounds so far" {
		t.Errorf("the axis is %q", got)
	}
	if got := b.text("#curves-range"); got != "524.3 kB–10.49 MB" {
		t.Errorf("the range is %q", got)
	}
	b.focus("#curves-chart")
	b.key("+")
	if from, to := b.shown(); to-from > 7e6 || to-from < 4e6 {
		t.Errorf("zoomed in, the plot shows %g to %g bytes", from, to)
	}
	b.key("0")
	b.key(kb.ArrowRight, chromedp.ModifierShift)
	if got := b.text("#curves-chart .heard"); !strings.HasPrefix(got, "524.3 kB: ") {
		t.Errorf("it reads %q", got)
	}
	b.click("#curves-data summary")
	b.until(`document.querySelectorAll("#curves-data tbody tr").length === 20`)
	if got := js[string](b, `location.hash`); !strings.Contains(got, "x=total-bytes") {
		t.Errorf("the address is %s", got)
	}
	b.choose("curves-x", "")
	if from, to := b.shown(); from != 0 || to != 19 {
		t.Errorf("the plot shows rounds %g to %g", from, to)
	}
	b.quiet()
}
