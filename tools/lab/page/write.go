package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var source string

// The chart library is uPlot 1.6.32 (MIT), as its npm package has it: it draws and zooms fast, and a page may carry 50
// KB.
//
//go:embed assets
var assets embed.FS

// scripts are the page's scripts in the order of execution, inside one function.
var scripts = []string{"dom.js", "state.js", "model.js", "theme.js", "copy.js", "tables.js", "format.js", "lines.js",
	"chart.js", "zoom.js", "legend.js", "runs.js", "curves.js", "grid.js", "partition.js", "run.js", "compare.js",
	"live.js", "keys.js", "start.js"}

var pageTemplate = template.Must(template.New("page").Parse(source))

// view is the input of the template.
type view struct {
	Report
	Policy    string // Content-Security-Policy
	Style     template.CSS
	Script    template.JS
	Data      template.JS
	Results   []tableView
	Tests     []tableView
	Drawings  []drawing
	Failed    *tableView
	HasCurves bool
	Left      []string
}

// drawing is a figure as an image with embedded bytes.
type drawing struct {
	Title, Caption string
	Source         template.URL
}

// Write writes the page. The same report produces the same bytes.
func Write(w io.Writer, r Report) error {
	v, _, err := newView(r)
	if err != nil {
		return fmt.Errorf("report page %q: %w", r.Title, err)
	}
	return pageTemplate.Execute(w, v)
}

// newView returns the input of the template and the data of its script.
func newView(r Report) (view, block, error) {
	v := view{Report: r}
	var err error
	if v.Results, err = viewTables("results", r.Tables); err != nil {
		return view{}, block{}, err
	}
	if v.Tests, err = viewTables("significance", r.Significance); err != nil {
		return view{}, block{}, err
	}
	if len(r.Failures) > 0 {
		f, err := viewTable("failures-1", failureTable(r.Failures))
		if err != nil {
			return view{}, block{}, err
		}
		v.Failed = &f
	}
	for _, f := range r.Figures {
		data := "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(f.SVG)
		v.Drawings = append(v.Drawings, drawing{f.Title, f.Caption, template.URL(data)})
	}
	data, left, err := newBlock(r)
	if err != nil {
		return view{}, block{}, err
	}
	v.Left, v.HasCurves = left, r.Live
	for _, run := range data.Runs {
		v.HasCurves = v.HasCurves || len(run.Curves) > 0
	}
	packed, err := json.Marshal(data) // escapes <, > and &
	if err != nil {
		return view{}, block{}, err
	}
	v.Data = template.JS(packed)
	return v, data, v.embed()
}

// embed puts style and script into the page, with a policy that allows only these two.
func (v *view) embed() error {
	style, err := texts("uplot/uPlot.min.css", "page.css")
	if err != nil {
		return err
	}
	library, err := texts("uplot/LICENSE", "uplot/uPlot.iife.min.js")
	if err != nil {
		return err
	}
	before, err := texts("language.js")
	if err != nil {
		return err
	}
	own, err := texts(scripts...)
	if err != nil {
		return err
	}
	licence, code, _ := strings.Cut(library, "/*!")
	script := before + "/* uPlot:\n" + licence + "*/\n/*!" + code + "\n(() => {\n\"use strict\";\n" + own + "})();\n"
	v.Style, v.Script = template.CSS(style), template.JS(script)
	asks := ""
	if v.Live {
		asks = "; connect-src 'self'"
	}
	v.Policy = fmt.Sprintf("default-src 'none'; img-src data:; style-src '%s'; script-src '%s'; base-uri 'none'; "+
		"form-action 'none'%s", sum(style), sum(script), asks)
	return nil
}

// texts concatenates embedded files.
func texts(names ...string) (string, error) {
	var b strings.Builder
	for _, name := range names {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	return b.String(), nil
}

// sum returns the hash of an inline element for the policy.
func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(h[:])
}
