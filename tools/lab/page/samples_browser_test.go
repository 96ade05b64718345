package page_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"promptfed/runtime/filetest"
	"promptfed/tools/lab/report"
	"promptfed/tools/lab/ui"
	"promptfed/tools/promptfed/command"
)

// TestSamples trains a run on generated images, of which each of two clients tests more than a page classifies. The
// live page shows images with their predictions, and the report of the run does not.
func TestSamples(t *testing.T) {
	b := newTab(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	run := filepath.Join(t.TempDir(), "run")
	conf := filepath.Join(t.TempDir(), "shapes.yaml")
	text := "name: shapes\nmethod: promptfl\nbackbones: [tiny-vit-b16]\ndata: {set: synthetic, shots: 2, " +
		"generator: {classes: [circle, square, star, heart], test: 10}}\n" +
		"partition: {kind: iid, clients: 2}\ntrain: {rounds: 1}\n"
	filetest.Write(t, conf, text)
	args := []string{"run", conf, "--out", run, "--quiet"}
	if code := command.Execute(t.Context(), args); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if html, err := os.ReadFile(filepath.Join(run, "report.html")); err != nil || bytes.Contains(html,
		[]byte(`data-panel="samples"`)) || bytes.Contains(html, []byte("data:image/png")) {
		t.Errorf("the report has a part for test images, or cannot be read: %v", err)
	}
	address := served(t, ui.New(report.Live([]string{run})))
	b.do(chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS(`html[data-ready="true"]`)))
	if n := js[int](b, `document.querySelectorAll("#samples-grid li").length`); n != 0 {
		t.Errorf("%d images before the button", n)
	}
	classify := func(view string) {
		t.Helper()
		b.click("#samples-start")
		b.until(`document.getElementById("samples-start").hidden && !!document.querySelector("#samples-grid li")`)
		if got := b.text("#samples-status"); !strings.HasPrefix(got, view+" evaluation: ") ||
			!strings.Contains(got, " of 96 images right, of 120 that the client has; 24 shown") {
			t.Errorf("it says %q", got)
		}
	}
	classify("global")
	// the policy of the page lets the images load; the generator's have 64 pixels a side
	b.until(`[...document.querySelectorAll("#samples-grid img")].every((i) => i.complete)`)
	if !js[bool](b, `[...document.querySelectorAll("#samples-grid img")].every((i) => i.naturalWidth === 64)`) {
		t.Error("an image does not load")
	}
	b.choose("samples-kind", "right")
	if got := b.texts("#samples-grid .wrong"); got != "" {
		t.Errorf("among the right ones are %s", got)
	}
	b.choose("samples-kind", "wrong")
	if wrong, all := js[int](b, `document.querySelectorAll("#samples-grid .wrong").length`),
		js[int](b, `document.querySelectorAll("#samples-grid li").length`); wrong != all {
		t.Errorf("%d of the %d wrong ones are marked", wrong, all)
	}
	b.choose("samples-kind", "")
	b.choose("samples-client", "1")
	classify("global")
	b.choose("samples-view", "personal")
	classify("personal")
	b.choose("samples-client", "0")
	b.until(`!document.getElementById("samples-start").hidden`) // not asked yet
	b.choose("samples-view", "")
	b.until(`document.getElementById("samples-start").hidden`) // known
	for _, width := range widths {
		b.fit(width, "with test images")
	}
	for _, scheme := range []string{"light", "dark"} {
		b.colours(scheme)
		b.readable(scheme)
	}
	if err := os.Remove(filepath.Join(run, "prompts.safetensors")); err != nil {
		t.Fatal(err)
	}
	b.choose("samples-view", "personal")
	b.click("#samples-start")
	b.until(fmt.Sprintf(`document.getElementById("samples-status").textContent.includes(%q)`, "prompts.safetensors"))
}
