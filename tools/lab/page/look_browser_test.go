package page_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"promptfed/tools/lab/figures"
)

// clipped lists visible titles, legends, labels and pictures that are cut, or that leave the window. A box that scrolls
// must say so: it fades at its right end, as class more.
const clipped = `(() => {
	const bad = [], name = (e) => e.tagName + "#" + e.id + "." + e.className + " " + e.textContent.trim().slice(0, 30);
	for (const e of document.querySelectorAll("main *, header *, nav *")) {
		if (!e.checkVisibility() || e.closest(".heard, svg, .u-wrap, .tip, option")) continue;
		const box = e.closest(".scroll"), r = e.getBoundingClientRect();
		if (!box && r.width > 0 && (r.left < -1 || r.right > innerWidth + 1)) bad.push("outside: " + name(e));
		const more = e.scrollWidth - e.clientWidth;
		if (e === box) {
			if (e.scrollLeft === 0 && more > 2 && !e.classList.contains("more")) bad.push("hides: " + name(e));
			if (more > 2 && e.matches(".drawing") && !e.closest(".long")) bad.push("scrolls: " + name(e));
		} else if (!box && more > 1 && !["inline", "contents"].includes(getComputedStyle(e).display) &&
			!e.matches("select, input, .choose")) bad.push("clipped: " + name(e));
	}
	for (const svg of document.querySelectorAll(".parallel svg")) {
		const box = svg.getBoundingClientRect(), names = [];
		for (const e of [...svg.querySelectorAll("text")].filter((e) => e.checkVisibility())) {
			const r = e.getBoundingClientRect();
			if (r.left < box.left || r.right > box.right || r.top < box.top || r.bottom > box.bottom ||
				e.textContent.endsWith("…")) bad.push("cut: " + name(e));
			if (e.matches(".name")) names.push(r);
		}
		if (names.some((a, i) => names.some((b, k) => k > i && a.left < b.right && b.left < a.right &&
			a.top < b.bottom && b.top < a.bottom))) bad.push("names of axes meet");
	}
	const legend = document.getElementById("curves-legend"); // up to 24 lines
	const cut = legend.scrollHeight > legend.clientHeight + 1;
	if (legend.children.length < 25 && innerWidth < 1600 && cut) bad.push("legend");
	return bad;
})()`

// widths of windows, from a phone to a large screen.
var widths = []int64{360, 390, 768, 1440, 2560}

// fit opens all details in a window of a width. It fails if the page is wider, or if something in it is cut.
func (b *tab) fit(width int64, where string) {
	b.Helper()
	b.window(width, 900)
	b.run(`document.querySelectorAll("details").forEach((d) => (d.open = true))`)
	b.frame()
	if got := js[int](b, `document.documentElement.scrollWidth`); got != int(width) {
		b.Errorf("the page is %d wide in a window of %d", got, width)
	}
	if bad := js[[]string](b, clipped); len(bad) > 0 {
		b.Errorf("%d points, %s: %q", width, where, bad[:min(len(bad), 12)])
	}
}

// TestWidths: from a phone to a large screen nothing is wider than the window, and no heading, legend, label or figure
// is cut. Tables, and figures that cannot be narrower, scroll in a box that shows it.
func TestWidths(t *testing.T) {
	b := newTab(t)
	r := varied(20, 60)
	for i := range r.Runs { // names without blanks are the hardest to fit
		r.Runs[i].Name = strings.ReplaceAll(r.Runs[i].Name, " ", "_") + "_with_a_long_name_of_one_word"
	}
	file := write(t, r)
	for _, width := range widths {
		for _, lines := range []string{"groups", "clients"} {
			b.window(width, 900)
			b.load(file)
			b.until(`document.documentElement.dataset.ready === "true"`)
			b.choose("curves-lines", lines)
			b.fit(width, lines)
		}
	}
	if !js[bool](b, `document.getElementById("curves-legend").getBoundingClientRect().left >=
		document.getElementById("curves-plots").getBoundingClientRect().right`) {
		t.Error("a large screen does not show the legend beside the plot")
	}
	b.quiet()
}

// TestPrint: on a sheet of A4 all columns of all tables fit beside each other, and definitions are printed.
func TestPrint(t *testing.T) {
	b := newTab(t)
	b.window(794, 1123) // A4 at 96 dots per inch
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Media: "print"}); err != nil {
		t.Fatal(err)
	}
	b.load(write(t, varied(20, 8)))
	b.run(`dispatchEvent(new Event("beforeprint"))`)
	b.frame()
	if got := js[int](b, `document.documentElement.scrollWidth`); got != 794 {
		t.Errorf("the printed page is %d wide: %q", got, js[[]string](b, `[...document.querySelectorAll("main *")]
			.filter((e) => e.getBoundingClientRect().right > 795).map((e) => e.tagName + "#" + e.id).slice(0, 12)`))
	}
	if js[float64](b, `document.querySelector("#definitions dd").getBoundingClientRect().height`) == 0 {
		t.Error("definitions are not printed")
	}
	if !js[bool](b, `["#settings-chart canvas", "#parallel svg"].every((s) => {
		const r = document.querySelector(s).getBoundingClientRect();
		return r.width > 300 && r.height > 200 && r.right <= 794 })`) {
		t.Error("the plots of settings are not printed, or are wider than the sheet")
	}
	b.quiet()
}

// TestDefinitions: meanings of columns are on the page once, closed at first, and open with the keyboard.
func TestDefinitions(t *testing.T) {
	r := sample(10, 8)
	b := open(t, r)
	const seen = `document.querySelector("#definitions dd").checkVisibility()`
	if js[bool](b, seen) {
		t.Error("definitions are open at first")
	}
	b.focus("#definitions summary")
	b.key(kb.Enter)
	b.until(seen)
	text := b.text("main")
	for _, d := range r.Definitions {
		if n := strings.Count(text, d.Value); n != 1 {
			t.Errorf("%q is on the page %d times", d.Value, n)
		}
	}
	b.quiet()
}

// cell returns the colour #rrggbb at the middle of a cell of a grid.
func (b *tab) cell(grid string, column, row, columns, rows int) string {
	b.Helper()
	return js[string](b, fmt.Sprintf(`(() => {
		const c = document.querySelector("#%s .body"), w = c.width / %d, h = c.height / %d;
		const copy = new OffscreenCanvas(c.width, c.height).getContext("2d", { willReadFrequently: true });
		copy.drawImage(c, 0, 0);
		const [r, g, b] = copy.getImageData((%d + 0.5) * w, (%d + 0.5) * h, 1, 1).data;
		return "#" + [r, g, b].map((x) => x.toString(16).padStart(2, "0")).join("");
	})()`, grid, columns, rows, column, row))
}

// TestOneColourMap: shares of confusion matrices and counts of partitions have the colours of the figures' heat maps,
// in both themes, and classes stand from top to bottom.
func TestOneColourMap(t *testing.T) {
	r := sample(10, 8)
	colours, n := figures.SequentialColours(64), len(madeClasses)
	b := open(t, r)
	b.choose("partition-form", "cells")
	counts := r.Runs[0].Clients.Clients
	largest, client, class := 0, 0, 0
	for k, c := range counts {
		for j, v := range c.Train {
			if v > largest {
				largest, client, class = v, k, j
			}
		}
	}
	for range 2 {
		b.frame()
		for _, w := range []struct {
			column, row int
			want        string
		}{{0, 0, colours[47]}, {1, 0, colours[16]}, {1, 1, colours[63]}, {2, 0, colours[0]}} { // 3/4, 1/4, 1, 0
			if got := b.cell("confusion-grid", w.column, w.row, n, n); got != w.want {
				t.Errorf("class %d predicted as %d is %s, want %s", w.row, w.column, got, w.want)
			}
		}
		if got := b.cell("partition-grid", client, class, len(counts), n); got != colours[63] {
			t.Errorf("the largest count is %s, want %s", got, colours[63])
		}
		b.click("#theme")
	}
	b.run(`localStorage.clear()`)
	svg := string(r.Figures[1].SVG)
	fifths := figures.SequentialColours(6)
	for _, c := range []string{fifths[0], fifths[1], fifths[4]} { // 0, 0.2 and 0.8
		if !strings.Contains(svg, strings.ToUpper(c)) {
			t.Errorf("the figure of matrices has no %s", c)
		}
	}
	b.quiet()
}

// TestOtherColours: clients, domains and backbones have greys, which no method has.
func TestOtherColours(t *testing.T) {
	for i, list := range figures.GroupColours {
		for _, c := range list {
			if slices.Contains(figures.LineColours[i], c) {
				t.Errorf("%s is a colour of methods and of groups", c)
			}
		}
	}
	b := open(t, sample(10, 8))
	b.choose("curves-lines", "clients")
	b.frame()
	strokes := js[[]string](b, `[...document.querySelectorAll("#curves-legend path, #partition-key path")]
		.map((e) => e.getAttribute("stroke"))`)
	if want := figures.LineColours[0][slices.Index(madeMethods, "PromptFL")]; len(strokes) < 9+4 || strokes[0] != want {
		t.Fatalf("the mean of a run of PromptFL and %d others: %v, want %s first", len(strokes)-1, strokes, want)
	}
	for _, s := range strokes[1:] {
		if !slices.Contains(figures.GroupColours[0], s) {
			t.Errorf("a client, domain or backbone is %s", s)
		}
	}
	b.quiet()
}
