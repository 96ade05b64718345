package page_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/figures"
)

func TestPageIsQuiet(t *testing.T) {
	b := open(t, sample(20, 8))
	if !js[bool](b, `document.documentElement.dataset.ready === "true"`) {
		t.Fatal("the script did not run to its end")
	}
	for _, details := range []string{"#curves-data", "#partition-data", ".choose", "#run-config-part"} {
		b.click(details + " summary")
		b.until(`document.querySelector("` + details + `").open`)
	}
	b.frame()
	b.quiet()
}

// The policy blocks a page's requests to outside. Otherwise TestPageIsQuiet could pass without a test of the policy.
func TestPolicyForbidsTheNetwork(t *testing.T) {
	b := open(t, sample(3, 4))
	b.run(`const i = new Image(); i.onload = () => (window.image = "yes"); i.onerror = () => (window.image = "no");
		i.src = "http://127.0.0.1:9/x.png"`)
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

const firstColumn = "#results-1 tbody:first-of-type tr > :first-child"

func TestSort(t *testing.T) {
	b := open(t, sample(3, 4))
	const written = "PromptFL | FedPGP | FedPHA | SDFed | pFedDC"
	const reversed = "pFedDC | SDFed | FedPHA | FedPGP | PromptFL"
	order := func(want, direction string) {
		t.Helper()
		if got := b.texts(firstColumn); got != want {
			t.Errorf("rows are %s; want %s", got, want)
		}
		if got := js[string](b, `[...document.querySelectorAll("#results-1 th[aria-sort]")]
			.map((e) => e.textContent + " " + e.getAttribute("aria-sort")).join()`); got != direction {
			t.Errorf("aria-sort says %q; want %q", got, direction)
		}
		if got := b.text("#results-1 tbody:last-of-type tr:last-child > :first-child"); got != "Average" {
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
	order("FedPGP | FedPHA | pFedDC | PromptFL | SDFed", "method ascending")
	b.key(" ")
	order("SDFed | PromptFL | pFedDC | FedPHA | FedPGP", "method descending")
	b.key(kb.Enter)
	order(written, "")

	b.focus("#results-1 .rowfilter input")
	b.key("fedp 70")
	if got := b.texts(firstColumn); got != "FedPGP" {
		t.Errorf("filtered rows are %s; only FedPGP has both words", got)
	}
	if got := b.text("#results-1 .status"); got != "1 of 5 rows" {
		t.Errorf("the filter says %q", got)
	}
	b.quiet()
}

// contrast returns WCAG's contrast (L1+0.05)/(L2+0.05) of the visible text with the lowest contrast.
const contrast = `(() => {
	const parse = (c) => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
	const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
	const light = (c) => { const [r, g, b] = c.map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor);
			if (c.length < 4 || c[3] === 1) return c.slice(0, 3);
		}
		return [255, 255, 255];
	};
	let worst = { ratio: 99, text: "", seen: 0 };
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
		if (!text || !e.checkVisibility() || e.closest("script, .u-wrap, option")) continue;
		worst.seen++;
		const style = getComputedStyle(e), colour = e.closest("svg") ? style.fill : style.color;
		const a = light(parse(colour).slice(0, 3)), b = light(behind(e));
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
	b := open(t, varied(10, 8))
	light := js[string](b, colours)
	b.readable("light")
	b.colours("dark")
	b.frame()
	dark := js[string](b, colours)
	if dark == light {
		t.Errorf("a dark system leaves the colours at %s", light)
	}
	b.readable("dark")
	if n := b.painted(figures.LineColours[1][0]); n < 100 {
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
	const box = `document.querySelector("#results-1 .scroll")`
	if !js[bool](b, box+`.scrollWidth > `+box+`.clientWidth && `+box+`.classList.contains("more")`) {
		t.Error("the table does not scroll in its box")
	}
	b.run(box + `.scrollLeft = 9999`)
	b.until(`!` + box + `.classList.contains("more")`)
	if wide, inner := js[int](b, "document.documentElement.scrollWidth"), js[int](b, "innerWidth"); wide > inner ||
		inner != 360 {
		t.Errorf("the page is %d wide in a window of %d: %s", wide, inner, js[string](b,
			`[...document.querySelectorAll("main *")].filter((e) => e.checkVisibility() &&
				e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, .plot"))
				.map((e) => e.tagName + "." + e.className + "#" + e.id).join(" ")`))
	}
	b.quiet()
}

func TestTabReachesEverything(t *testing.T) {
	b := open(t, varied(5, 4))
	b.run(`document.activeElement.blur()`)
	controls := js[[]string](b, `
		[...document.querySelectorAll("a[href], button, select, input, summary, [tabindex='0']")]
			.filter((e) => e.checkVisibility() && !e.disabled && e.tabIndex >= 0)
			.map((e, i) => (e.dataset.stop = String(i)))`)
	if len(controls) < 90 {
		t.Fatalf("only %d controls", len(controls))
	}
	var reached []string
	outline := true
	for range len(controls) + 5 {
		b.key(kb.Tab)
		s := js[[]string](b, `((e) => [e.dataset.stop || "", getComputedStyle(e).outlineStyle, e.tagName])(
			document.activeElement)`)
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
		t.Errorf("the Tab key reaches %d of %d controls, or not in their order: %v", len(reached), len(controls),
			reached)
	}
	if outline && js[string](b, `document.querySelector(".skip").hash`) != "#main" {
		t.Error("the first stop does not skip to the results")
	}
	b.quiet()
}

func TestWithoutScript(t *testing.T) {
	b := newTab(t)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.load(write(t, sample(5, 4)))
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Contains(t, text, "FedPHA, Table 1", "76.00 ± 0.70", "paper 84.0 ± 0.3", "2 of 3 seeds",
		"The curves need JavaScript", "ONNX Runtime", "raise partition.min_size")
	if strings.Contains(text, "Show all") {
		t.Error("without script the page shows controls that do nothing")
	}
}
