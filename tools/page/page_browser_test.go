package page_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func TestPageIsQuiet(t *testing.T) {
	b := open(t, sample(20, 8))
	if !js[bool](b, `document.documentElement.dataset.ready === "true"`) {
		t.Fatal("the script did not run to its end")
	}
	for _, details := range []string{"#curves-data", "#partition-data", "#configuration > details", ".configs details"} {
		b.click(details + " summary")
		b.until(`document.querySelector("` + details + `").open`)
	}
	b.frame()
	b.quiet()
}

// A page that tries to reach out is stopped by its policy: without this, TestPageIsQuiet could pass for want of trying.
func TestPolicyForbidsTheNetwork(t *testing.T) {
	b := open(t, sample(3, 4))
	b.run(`const i = new Image(); i.onload = () => (window.image = "yes"); i.onerror = () => (window.image = "no"); i.src = "http://127.0.0.1:9/x.png"`)
	b.run(`fetch("http://127.0.0.1:9/").then(() => (window.fetched = "yes"), () => (window.fetched = "no"))`)
	b.run(`const s = document.createElement("script"); s.textContent = "window.ran = true"; document.body.append(s)`)
	b.until(`!!(window.image && window.fetched)`)
	if js[bool](b, "window.ran === true") || js[string](b, `window.image + window.fetched`) != "nono" {
		t.Error("the policy let a script, an image or a request through")
	}
	js[int](b, "1")
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if n := len(b.console); n < 3 || !strings.Contains(b.console[0], "Content Security Policy") {
		t.Errorf("the browser reports %d violations: %q", n, b.console)
	}
}

const firstColumn = `[...document.querySelectorAll("#results-1 tbody:first-of-type tr")].filter(r => !r.hidden).map(r => r.cells[0].textContent).join(" ")`

func TestSort(t *testing.T) {
	b := open(t, sample(3, 4))
	const written = "PromptFL FedPGP FedPHA SDFed pFedDC"
	const reversed = "pFedDC SDFed FedPHA FedPGP PromptFL"
	order := func(want, direction string) {
		t.Helper()
		if got := js[string](b, firstColumn); got != want {
			t.Errorf("rows are %s; want %s", got, want)
		}
		if got := js[string](b, `[...document.querySelectorAll("#results-1 th[aria-sort]")].map(e => e.textContent + " " + e.getAttribute("aria-sort")).join()`); got != direction {
			t.Errorf("aria-sort says %q; want %q", got, direction)
		}
		if got := js[string](b, `document.querySelector("#results-1 table").rows[document.querySelector("#results-1 table").rows.length-1].cells[0].textContent`); got != "Average" {
			t.Errorf("the last row is %s; the average stays below", got)
		}
	}
	order(written, "")
	header := `#results-1 th[data-column="2"] button`
	b.click(header)
	order(reversed, "Flowers102 descending")
	b.click(header)
	order(written, "Flowers102 ascending")

	b.focus(`#results-1 th[data-column="0"] button`)
	b.key(kb.Enter)
	order("FedPGP FedPHA pFedDC PromptFL SDFed", "method ascending")
	b.key(" ")
	order("SDFed PromptFL pFedDC FedPHA FedPGP", "method descending")
	b.key(kb.Enter)
	order(written, "")

	b.focus("#results-1 .rowfilter input")
	b.key("fedp 70")
	if got := js[string](b, firstColumn); got != "FedPGP" {
		t.Errorf("filtered rows are %s; only FedPGP has both words", got)
	}
	if got := js[string](b, `document.querySelector("#results-1 .status").textContent`); got != "1 of 5 rows" {
		t.Errorf("the filter says %q", got)
	}
	b.quiet()
}

// shown are the rounds that the plot shows.
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
	box := js[[]float64](b, `(() => { const r = document.querySelector("#curves-chart .u-over").getBoundingClientRect(); return [r.left, r.top, r.width, r.height] })()`)
	x := func(share float64) float64 { return box[0] + share*box[2] }
	y := box[1] + box[3]/2
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x(.25), y), chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, x(.25), y, chromedp.ButtonLeft, chromedp.ClickCount(1)),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x(.5), y, chromedp.ButtonLeft), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x(.75), y, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, x(.75), y, chromedp.ButtonLeft, chromedp.ClickCount(1)))
	from, to = part("a drag")
	if from < 11.5 || from > 13 || to < 36 || to > 37.5 { // quarters of 49 are 12.25 and 36.75
		t.Errorf("a drag over the middle half shows rounds %g to %g; want about 12.25 to 36.75", from, to)
	}
	b.click(`[data-zoom="reset"]`)
	whole("the reset button")

	wheel := func() {
		t.Helper()
		b.run(`document.querySelector("#curves-chart .u-over").dispatchEvent(new WheelEvent("wheel", {deltaY: -100, clientX: 640, bubbles: true, cancelable: true}))`)
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
	if got := js[string](b, `document.querySelector("#curves-chart .heard").textContent`); !strings.HasPrefix(got, "Round 1: pFedDC · OxfordPets ") {
		t.Errorf("Shift and the right arrow twice read %q", got)
	}
	if got := js[string](b, `document.querySelector(".tip").innerText`); !strings.HasPrefix(got, "Round 1") || js[bool](b, `document.querySelector(".tip").hidden`) {
		t.Errorf("the values shown are %q", got)
	}
	b.quiet()
}

// painted counts the pixels of the plot that have a colour's hue: whether a line is really drawn.
func (b *tab) painted(red, green, blue int) int {
	b.Helper()
	return js[int](b, `(() => { const c = document.querySelector("#curves-chart canvas"), p = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; let n = 0;
		for (let i = 0; i < p.length; i += 4) if (Math.abs(p[i]-`+strconv.Itoa(red)+`) + Math.abs(p[i+1]-`+strconv.Itoa(green)+`) + Math.abs(p[i+2]-`+strconv.Itoa(blue)+`) < 24 && p[i+3] > 200) n++; return n })()`)
}

func TestLegendAndLines(t *testing.T) {
	b := open(t, sample(20, 8))
	frame := b.frame
	lines := func() int { return int(number(b, "lines")) }
	first := `#curves-legend button[data-key="g0"]`
	frame()
	if n := lines(); n != 15 {
		t.Fatalf("%d lines; 5 methods on 3 sets are 15", n)
	}
	if n := b.painted(0x0b, 0x57, 0xc2); n < 300 {
		t.Errorf("the first line has %d pixels on the canvas", n)
	}
	b.click(`#curves-none`)
	b.click(first)
	frame()
	alone := b.painted(0x0b, 0x57, 0xc2)
	if lines() != 1 || alone < 300 || js[string](b, `document.querySelector('`+first+`').getAttribute("aria-pressed")`) != "true" {
		t.Errorf("switched on alone: %d lines, %d pixels", lines(), alone)
	}
	b.focus(first)
	b.key(" ")
	frame()
	if lines() != 0 || b.painted(0x0b, 0x57, 0xc2) != 0 || js[string](b, `document.querySelector('`+first+`').getAttribute("aria-pressed")`) != "false" {
		t.Errorf("switched off with the keyboard: %d lines, %d pixels", lines(), b.painted(0x0b, 0x57, 0xc2))
	}
	b.key(kb.ArrowRight)
	b.key(kb.Enter)
	if js[string](b, `document.activeElement.dataset.key`) != "g1" || lines() != 1 {
		t.Errorf("the arrow key and Enter gave %d lines", lines())
	}

	b.choose("curves-lines", "runs")
	if n := lines(); n != 10 { // of 45 runs the first ten, said beside the legend
		t.Errorf("%d lines of 45 runs are shown at first", n)
	}
	if got := js[string](b, `document.getElementById("curves-shown").textContent`); got != "10 of 45 lines shown" {
		t.Errorf("the legend says %q", got)
	}
	b.choose("curves-lines", "clients")
	b.choose("curves-run", "4")
	if n := lines(); n != 9 { // 8 clients and their mean
		t.Errorf("%d lines for 8 clients", n)
	}
	if got := js[string](b, `document.querySelector('#curves-legend [data-key="c3"]').textContent`); !strings.HasPrefix(got, "client 3 · sketch · ViT-B/32") {
		t.Errorf("the fourth client is called %q", got)
	}
	b.choose("curves-lines", "groups")
	b.choose("curves-metric", "2")
	if got := js[string](b, `document.getElementById("curves-axis").textContent`); got != "Bytes per round by round" {
		t.Errorf("the axis is called %q", got)
	}

	b.click("#curves-data summary")
	b.until(`document.querySelectorAll("#curves-data tbody tr").length === 20`)
	b.quiet()
}

func TestPartition(t *testing.T) {
	r := sample(3, 8)
	b := open(t, r)
	read := func() string { return js[string](b, `document.getElementById("partition-read").textContent`) }
	sum := 0
	for _, c := range r.Runs[0].Clients {
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
	second := r.Runs[0].Clients[1]
	sum = 0
	for _, n := range second.Train {
		sum += n
	}
	if want := "Client 1 · cartoon · ViT-B/32: " + strconv.Itoa(second.Train[1]) + " of elephant, of " + strconv.Itoa(sum) + " training examples"; read() != want {
		t.Errorf("at the second class of the second client it reads %q; want %q", read(), want)
	}
	b.choose("partition-split", "2")
	b.choose("partition-form", "cells")
	b.choose("partition-order", "d")
	b.click("#partition-data summary")
	b.until(`document.querySelectorAll("#partition-data tbody tr").length === 8`)
	b.quiet()
}

// contrast is WCAG's contrast of the text with the least, of all that is visible: (L1+0.05)/(L2+0.05).
const contrast = `(() => {
	const parse = (c) => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
	const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c.slice(0, 3); } return [255, 255, 255]; };
	let worst = { ratio: 99, text: "", seen: 0 };
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
		if (!text || !e.checkVisibility() || e.closest("script, .u-wrap, option")) continue;
		worst.seen++;
		const a = light(parse(getComputedStyle(e).color).slice(0, 3)), b = light(behind(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < worst.ratio) Object.assign(worst, { ratio, text: e.tagName + ": " + text });
	}
	return worst;
})()`

type worst struct {
	Ratio float64 `json:"ratio"`
	Text  string  `json:"text"`
	Seen  int     `json:"seen"`
}

func (b *tab) readable(where string) {
	b.Helper()
	b.run(`document.querySelectorAll("details").forEach((d) => (d.open = true))`)
	b.frame()
	if w := js[worst](b, contrast); w.Ratio < 4.5 || w.Seen < 100 {
		b.Errorf("%s: contrast %.2f at %q (of %d texts); AA asks for 4.5", where, w.Ratio, w.Text, w.Seen)
	}
}

const colours = `getComputedStyle(document.body).backgroundColor + " " + getComputedStyle(document.body).color`

func TestDark(t *testing.T) {
	b := open(t, sample(10, 8))
	light := js[string](b, colours)
	b.readable("light")
	b.colours("dark")
	b.frame()
	dark := js[string](b, colours)
	if dark == light {
		t.Errorf("a dark system leaves the colours at %s", light)
	}
	b.readable("dark")
	if n := b.painted(0x6a, 0xa9, 0xff); n < 100 {
		t.Errorf("the dark plot has %d pixels of its first line", n)
	}
	b.click("#theme")
	if got := js[string](b, colours); got != light {
		t.Errorf("the button made %s of dark; light is %s", got, light)
	}
	b.click("#theme")
	if got := js[string](b, colours); got != dark {
		t.Errorf("the button made %s of light; dark is %s", got, dark)
	}
	b.run("localStorage.clear()")
	b.quiet()
}

func TestPhone(t *testing.T) {
	b := newTab(t)
	b.window(360, 740)
	b.load(write(t, sample(20, 60)))
	b.choose("curves-lines", "clients")
	b.run(`document.querySelectorAll("details").forEach((d) => (d.open = true))`)
	b.frame()
	if wide, inner := js[int](b, "document.documentElement.scrollWidth"), js[int](b, "innerWidth"); wide > inner || inner != 360 {
		t.Errorf("the page is %d wide in a window of %d", wide, inner)
	}
	b.quiet()
}

func TestTabReachesEverything(t *testing.T) {
	b := open(t, sample(5, 4))
	b.run(`document.querySelector("#configuration details").open = true; document.activeElement.blur()`)
	controls := js[[]string](b, `[...document.querySelectorAll("a[href], button, select, input, summary, [tabindex='0']")].filter((e) => e.checkVisibility() && !e.disabled && e.tabIndex >= 0).map((e, i) => (e.dataset.stop = String(i)))`)
	if len(controls) < 90 {
		t.Fatalf("only %d controls", len(controls))
	}
	var reached []string
	outline := true
	for range len(controls) + 5 {
		b.key(kb.Tab)
		s := js[[]string](b, `[document.activeElement.dataset.stop || "", getComputedStyle(document.activeElement).outlineStyle, document.activeElement.tagName]`)
		if s[0] == "" {
			break
		}
		if s[1] == "none" {
			outline = false
			t.Errorf("the focus cannot be seen on stop %s (%s)", s[0], s[2])
		}
		reached = append(reached, s[0])
	}
	if !slices.Equal(reached, controls) {
		t.Errorf("the Tab key reaches %d of %d controls, or not in their order: %v", len(reached), len(controls), reached)
	}
	if outline && js[string](b, `document.querySelector(".skip").hash`) != "#main" {
		t.Error("the first stop does not skip to the results")
	}
	b.quiet()
}

func TestWithoutScript(t *testing.T) {
	b := newTab(t)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.load(write(t, sample(5, 4)))
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FedPHA, Table 1", "76.00 ± 0.70", "paper 84.0 ± 0.3", "2 of 3 seeds", "The curves are drawn by the page's own script", "ONNX Runtime", "raise partition.min_size"} {
		if !strings.Contains(text, want) {
			t.Errorf("without script the page does not show %q", want)
		}
	}
	if strings.Contains(text, "Show all") {
		t.Error("without script the page shows controls that do nothing")
	}
}
