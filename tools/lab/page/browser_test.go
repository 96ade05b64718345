package page_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"promptfed/runtime/busytest"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/page/browser"
)

// chromium is one browser for all tests; every test has its own tab.
var chromium struct {
	sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(code)
}

// tab is a page in the browser, with its messages and requests.
type tab struct {
	*testing.T
	ctx     context.Context
	console []string
	asked   []string
	mutex   sync.Mutex
}

// open shows a report in a tab of 1280 x 900 points with light colours.
func open(t *testing.T, r page.Report) *tab {
	t.Helper()
	b := newTab(t)
	b.load(write(t, r))
	return b
}

func newTab(t *testing.T) *tab {
	t.Helper()
	chromium.Do(func() {
		path, err := browser.Find()
		if err != nil {
			chromium.err = err
			return
		}
		chromium.ctx, chromium.stop, chromium.err = browser.Start(context.Background(), path)
	})
	if chromium.err != nil {
		if os.Getenv("PROMPTFED_BROWSER") == "required" {
			t.Fatal(chromium.err)
		}
		t.Skip(chromium.err)
	}
	ctx, cancel := chromedp.NewContext(chromium.ctx)
	t.Cleanup(cancel)
	context.AfterFunc(busytest.Context(t), cancel)
	b := &tab{T: t, ctx: ctx}
	messages, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.mutex.Lock()
			b.console = append(b.console, m.String())
			b.mutex.Unlock()
		}
	}()
	go func() {
		for r, err := range requests {
			if err != nil {
				return
			}
			b.mutex.Lock()
			b.asked = append(b.asked, r.Request.URL)
			b.mutex.Unlock()
		}
	}()
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	b.colours("light")
	b.window(1280, 900)
	return b
}

func (b *tab) load(file string) {
	b.Helper()
	b.do(chromedp.Navigate((&url.URL{Scheme: "file", Path: filepath.ToSlash(file)}).String()))
	b.do(chromedp.WaitReady(chromedp.CSS("body")))
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

func (b *tab) window(width, height int64) { b.Helper(); b.do(chromedp.EmulateViewport(width, height)) }

// colours sets the system's preferred colour scheme: light or dark. Motion is always reduced, so that clicks hit
// elements at rest.
func (b *tab) colours(scheme string) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion",
				Value: "reduce"}}}); err != nil {
		b.Fatal(err)
	}
}

// js returns the value of an expression in the page.
func js[T any](b *tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// text returns the text of the first element of a selector.
func (b *tab) text(selector string) string {
	b.Helper()
	return js[string](b, fmt.Sprintf(`document.querySelector(%q).textContent`, selector))
}

// texts returns the texts of all visible elements of a selector, joined by " | ".
func (b *tab) texts(selector string) string {
	b.Helper()
	return js[string](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].filter((e) => e.checkVisibility())
		.map((e) => e.textContent.trim()).join(" | ")`, selector))
}

// run runs statements in the page.
func (b *tab) run(statements string) { b.Helper(); js[bool](b, statements+"; true") }

// until waits for an expression to become true.
func (b *tab) until(expression string) {
	b.Helper()
	busytest.Until(b, expression, func() bool { return js[bool](b, expression) })
}

// frame waits until pending changes of the page are painted: until the second next frame, and the tasks before it.
func (b *tab) frame() {
	b.Helper()
	b.run(`window.painted = false;
		requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => (window.painted = true))))`)
	b.until(`window.painted`)
}

func (b *tab) click(selector string) {
	b.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// key presses keys in the focused element.
func (b *tab) key(keys string, modifiers ...chromedp.Modifier) {
	b.Helper()
	b.do(chromedp.KeyEvent(keys, chromedp.KeyModifiers(modifiers...)))
}

func (b *tab) focus(selector string) { b.Helper(); b.do(chromedp.Focus(chromedp.CSS(selector))) }

// choose selects an option with a change event, like a user.
func (b *tab) choose(id, value string) {
	b.Helper()
	if !js[bool](b, `(() => { const s = document.getElementById("`+id+`"); s.value = "`+value+
		`"; s.dispatchEvent(new Event("change")); return s.value === "`+value+`" })()`) {
		b.Fatalf("%s has no option %s", id, value)
	}
}

// find writes into the filter of the runs' table.
func (b *tab) find(text string) {
	b.Helper()
	b.run(`{ const f = document.getElementById("runs-find"); f.value = "` + text + `";
		f.dispatchEvent(new Event("input")) }`)
}

// quiet fails the test if the page logged an error or a warning, or requested anything except itself.
func (b *tab) quiet() {
	b.Helper()
	js[int](b, "1") // earlier messages of the page have arrived after this answer
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, m := range b.console {
		b.Errorf("console: %s", m)
	}
	for _, address := range b.asked {
		if !strings.HasSuffix(address, "/report.html") && !strings.HasPrefix(address, "data:") {
			b.Errorf("the page asked for %s", address)
		}
	}
	if len(b.asked) == 0 {
		b.Error("not even the page itself was asked for: the test does not see requests")
	}
}
