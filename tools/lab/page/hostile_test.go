package page_test

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"promptfed/configs"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
)

const hostile = `</script><img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'"` +
	"`${window.harmed=1}`<!--\u2028"

// hostileReport returns a report with the same text in every text field.
func hostileReport() page.Report {
	h := hostile
	r := sample(3, 4)
	r.Title, r.Subtitle, r.Notes = h, h, []string{h}
	r.Card = &configs.PaperTable{Paper: h, Item: h, Title: h, Wrong: []string{h},
		Differs: []configs.Difference{{Paper: h, Here: h, Why: h}}, LeftOut: []configs.LeftOut{{What: h, Why: h}}}
	r.Tables[0].Title, r.Tables[0].Caption = h, h
	r.Tables[0].Columns[0].Name, r.Tables[0].Columns[1].Over = h, h
	r.Tables[0].Rows[0].Cells[0] = page.Cell{Text: h, Paper: h, Note: h}
	r.Figures = []page.Figure{{Title: h, Caption: h,
		SVG: []byte(`<svg xmlns="http://www.w3.org/2000/svg" onload="parent.harmed=1">` +
			`<script>parent.harmed=1</script><text y="20">` + html.EscapeString(h) + `</text></svg>`)}}
	r.Metrics[0].Title, r.Metrics[1].Unit = h, h
	r.Environment = []page.Pair{{Name: h, Value: h}}
	r.Runs[0].State, r.Runs[0].Why, r.Runs[0].Labels["data"] = results.Failed, h, h
	for i := range r.Runs {
		run := &r.Runs[i]
		run.Name += h
		run.Group += h
		run.Config = "name: a\n" + h + "\nkey: " + h + run.Name + "\n"
		run.Clients.Classes = append([]string{h}, run.Clients.Classes[1:]...)
		for k := range run.Clients.Clients {
			run.Clients.Clients[k].Domain += h
			run.Clients.Clients[k].Backbone += h
		}
	}
	return r
}

func TestHostileNamesAreText(t *testing.T) {
	var b bytes.Buffer
	if err := page.Write(&b, complete(hostileReport())); err != nil {
		t.Fatal(err)
	}
	doc, err := html.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	scripts, titles := 0, 0
	for n := range doc.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data == "title" && n.Data == hostile {
			titles++
		}
		if n.Type == html.CommentNode {
			t.Errorf("a comment: %q", n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data == "script" {
			scripts++
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || (a.Key == "src" && !strings.HasPrefix(a.Val,
				"data:image/svg+xml;base64,")) {
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			}
		}
	}
	if scripts != 2 || titles != 1 {
		t.Errorf("%d scripts and %d titles; the page has two (its data and its own) and one", scripts, titles)
	}
}

func TestHostileNamesDoNothing(t *testing.T) {
	b := open(t, hostileReport())
	if !js[bool](b, `document.documentElement.dataset.ready === "true"`) {
		t.Fatal("the script did not run to its end")
	}
	b.run(`document.querySelectorAll("details").forEach((d) => (d.open = true))`)
	b.choose("curves-lines", "clients")
	b.focus("#curves-chart")
	b.key("+")
	b.focus("#partition-grid")
	b.key(" ")
	b.choose("partition-order", "domain")
	b.frame()
	if js[bool](b, `"harmed" in window || document.querySelectorAll("img").length !== 1`) {
		t.Error("a name came alive")
	}
	if got := b.text("h1"); got != hostile {
		t.Errorf("the heading is %q", got)
	}
	if wide := js[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
		t.Errorf("long names make the page %d wider than the window", wide)
	}
	b.quiet()
}
