package page_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"promptfed/runtime/filetest"
	"promptfed/tools/lab/page"
)

func render(t *testing.T, r page.Report) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := page.Write(&b, complete(r)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func parse(t *testing.T, text []byte) *html.Node {
	t.Helper()
	doc, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func inner(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

func TestSameReportSameBytes(t *testing.T) {
	if !bytes.Equal(render(t, sample(5, 4)), render(t, sample(5, 4))) {
		t.Error("two pages of one report differ")
	}
}

func TestStructure(t *testing.T) {
	doc := parse(t, render(t, sample(5, 4)))
	ids := map[string]int{}
	var links, headings, head, first, sums []string
	bold := 0
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if id := attr(n, "id"); id != "" {
			ids[id]++
		}
		switch n.Data {
		case "a":
			links = append(links, strings.TrimPrefix(attr(n, "href"), "#"))
		case "h2":
			headings = append(headings, inner(n))
		case "strong":
			bold++
		case "div":
			if attr(n, "id") != "results-1" {
				continue
			}
			for c := range n.Descendants() {
				switch {
				case c.Data == "th" && c.Parent.Parent.Data == "thead":
					head = append(head, fmt.Sprintf("%s/%s/%s/%s", inner(c), attr(c, "scope"), attr(c, "colspan"),
						attr(c, "rowspan")))
				case c.Data == "td" && len(first) < 4:
					first = append(first, attr(c, "data-key")+":"+inner(c))
				case c.Data == "tr" && attr(c.Parent, "class") == "summary":
					sums = append(sums, inner(c.FirstChild))
				}
			}
		}
	}
	for id, n := range ids {
		if n > 1 {
			t.Errorf("%d elements are called %s", n, id)
		}
	}
	for _, l := range links {
		if ids[l] == 0 {
			t.Errorf("a link goes to %q, which is not in the page", l)
		}
	}
	check := func(what string, got []string, want string) {
		t.Helper()
		if s := strings.Join(got, " | "); s != want {
			t.Errorf("%s:\ngot  %s\nwant %s", what, s, want)
		}
	}
	check("sections", headings, "Results | Failed runs | Runs | Curves | Settings | Figures | One run | "+
		"Significance | Configurations | Environment | Keys")
	check("heading", head, "method/col//2 | data/colgroup/3/ | Average/col//2 | Caltech101/col// | Flowers102/col// "+
		"| OxfordPets/col//")
	check("first row", first, "60:60.00 ± 0.30 paper 68.0 ± 0.3 | 66:66.00 ± 0.30 paper 74.0 ± 0.3 | "+
		"72:72.00 ± 0.30 paper 80.0 ± 0.3 | 66:66.00")
	check("summary", sums, "Average")
	if bold < 4 {
		t.Errorf("%d bold texts; the best of four columns are", bold)
	}
}

func TestEmptyReport(t *testing.T) {
	text := string(render(t, page.Report{Title: "nothing"}))
	if strings.Contains(text, "<section") || strings.Contains(text, "<li><a") {
		t.Error("an empty report has sections")
	}
}

// The policy names the exact bytes of style and script. A page with another policy would be empty.
func TestPolicyFits(t *testing.T) {
	var policy, style, script, data string
	for n := range parse(t, render(t, sample(3, 4))).Descendants() {
		switch {
		case n.Type != html.ElementNode:
		case n.Data == "meta" && attr(n, "http-equiv") == "Content-Security-Policy":
			policy = attr(n, "content")
		case n.Data == "style":
			style = inner(n)
		case n.Data == "script" && attr(n, "id") == "data":
			data = inner(n)
		case n.Data == "script":
			script = inner(n)
		}
	}
	hash := func(text string) string {
		h := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(h[:]) + "'"
	}
	want := "default-src 'none'; img-src data:; style-src " + hash(style) + "; script-src " + hash(script) +
		"; base-uri 'none'; form-action 'none'"
	if policy != want || len(style) < 5000 || len(script) < 50_000 {
		t.Errorf("got  %s\nwant %s", policy, want)
	}
	var block struct{ Runs []struct{ Name string } }
	if err := json.Unmarshal([]byte(data), &block); err != nil || len(block.Runs) != 45 ||
		block.Runs[0].Name != "PromptFL · Caltech101, seed 1" {
		t.Errorf("the data block: %v, %d runs", err, len(block.Runs))
	}
}

// The chart library is the published one: checksums of the files in the npm package uplot 1.6.32, computed at download.
func TestChartLibraryIsThePublishedOne(t *testing.T) {
	for name, want := range map[string]string{
		"LICENSE": "26ad5134b24da27b0a962f68d6d7a72a206aa69c4cb376c494f32fd887cd5346" +
			"d7c329ae88cc91978510807e395494c147539768312ddfe43e58f1f53be0cd55",
		"uPlot.iife.min.js": "8df9b8c2bc60abbdd95c5cf260f46681f41def2623b6c1f9ed2cdf823a62797e" +
			"2b8277c700c01926043560b4ec73a1ce5fed6d9c68e7905b9eadb73ca08da626",
		"uPlot.min.css": "c57618bc6a0fa8e8e13309299315930efec7be5cab93212acdce14485aff66d0" +
			"580bb7a4944dc33410dc72a88c8f657344a49f7d9cdea9545c91d633271f6a7d",
	} {
		text := filetest.Read(t, "assets/uplot/"+name)
		if sum := sha512.Sum512(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s was altered", name)
		}
	}
}

// hundred returns a report of 100 runs of 100 rounds with 100 clients.
func hundred() page.Report {
	r := sample(1, 1)
	r.Runs = nil
	for i := range 100 {
		r.Runs = append(r.Runs, madeRun(fmt.Sprintf("method %d", i/4), "m", "set", uint64(i%4), 60, 100, 100))
		r.Runs[i].Name = fmt.Sprintf("run %d", i)
	}
	return r
}

func TestLargeReport(t *testing.T) {
	text := render(t, hundred())
	if len(text) >= 15<<20 {
		t.Errorf("100 runs of 100 rounds with 100 clients make a page of %d bytes; less than 15 MB is promised",
			len(text))
	}
	t.Logf("%d bytes", len(text))
	b := newTab(t)
	file := write(t, hundred())
	start := time.Now()
	b.load(file)
	b.until(`document.documentElement.dataset.ready === "true"`)
	opened := time.Since(start)
	start = time.Now()
	b.choose("curves-lines", "clients")
	b.frame()
	t.Logf("opened in %v, lines of 100 clients in %v", opened, time.Since(start))
	// It has 2,819 elements. One for each round of each run would be 10,000 more.
	if n := js[int](b, `document.querySelectorAll("*").length`); n > 10_000 {
		t.Errorf("the page has %d elements", n)
	}
	if n := int(number(b, "lines")); n != 101 {
		t.Errorf("%d lines for 100 clients and their mean", n)
	}
	b.quiet()
}
