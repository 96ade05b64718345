package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/page/browser"
)

// unreachable matches the errors of npm about a registry that does not answer.
var unreachable = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|TIMEDOUT|ENETUNREACH|ERR_SOCKET`)

// `make site` makes a page of README.md and of every file of docs/, its check finds broken links, and the search of a
// page finds a word of another page, on a server of static files. It takes PROMPTFED_TEST_SOAK (make soak): it
// needs npm packages and half a minute.
func TestSite(t *testing.T) {
	if !busytest.Soak() {
		t.Skip("make soak builds the site; PROMPTFED_TEST_SOAK=1 does it here")
	}
	for _, name := range []string{"make", "npm", "node"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s, which make site needs, is not installed", name)
		}
	}
	build := exec.Command("make", "site")
	build.Dir = root
	if out, err := build.CombinedOutput(); unreachable.Match(out) {
		t.Skipf("the registry of npm packages cannot be reached:\n%s", out)
	} else if err != nil {
		t.Fatalf("make site: %v\n%s", err, out)
	}
	site := filepath.Join(root, "build", "site")
	list, err := documents(root)
	goldentest.NoError(t, err)
	tag := regexp.MustCompile(`<[^>]*>`)
	pages := 0
	for _, d := range list {
		if filepath.Ext(d.path) != ".md" {
			continue
		}
		pages++
		name := strings.TrimSuffix(filepath.Base(d.path), ".md")
		if name == "README" {
			name = "index"
		}
		html, err := os.ReadFile(filepath.Join(site, name+".html"))
		if err != nil {
			t.Error(err)
			continue
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(d.is, "# "), "\n")
		_, body, _ := strings.Cut(string(html), "<h1")
		if !strings.HasPrefix(tag.ReplaceAllString("<h1"+body, ""), title) {
			t.Errorf("%s.html does not begin with %q", name, title)
		}
	}
	if pages < 25 {
		t.Errorf("only %d pages", pages)
	}
	t.Run("links", func(t *testing.T) { checkFindsLinks(t) })
	t.Run("search", func(t *testing.T) { searchFinds(t, site) })
}

// checkFindsLinks passes two pages with a broken link of each kind to the check of the built site.
func checkFindsLinks(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.html": `<p id="here"></p><a href="#here"></a><a href="/b.html#there"></a><a href="./b.html"></a>` +
			`<a href="https://example.com/none"></a><img src="/p.png">`,
		"b.html": `<p id="there"></p><a class="x" href="/c.html"></a><a href="/a.html#there"></a><img src="/q.png">`,
		"p.png":  "",
	} {
		filetest.Write(t, filepath.Join(dir, name), text)
	}
	node := exec.Command("node", "--input-type=module", "-e", `const { default: config } = await import(
		process.cwd() + '/.vitepress/config.mjs'); config.buildEnd({ outDir: process.argv[1] })`, dir)
	node.Dir = filepath.Join(root, "build", ".site")
	out, err := node.CombinedOutput()
	want := "links that lead nowhere:\n/b.html: /c.html\n/b.html: /a.html#there\n/b.html: /q.png\n"
	if err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

// searchFinds types a word of one page into the search of another.
func searchFinds(t *testing.T, site string) {
	path, err := browser.Find()
	if err != nil {
		t.Skip(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(site)))
	defer server.Close()
	b, stop, err := browser.Start(busytest.Context(t), path)
	goldentest.NoError(t, err)
	defer stop()
	input := chromedp.CSS(".VPLocalSearchBox input")
	if err := chromedp.Do(b, chromedp.Navigate(server.URL+"/grad.html"), chromedp.WaitVisible(chromedp.CSS(
		"button.DocSearch")), chromedp.Click(chromedp.CSS("button.DocSearch")), chromedp.WaitVisible(input),
		chromedp.SendKeys(input, "stragglers"), chromedp.WaitVisible(chromedp.CSS(
			`.VPLocalSearchBox a.result[href*="simulated-time"]`))); err != nil {
		t.Errorf("no result for a word of docs/simulated-time.md: %v", err)
	}
}
