package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"strings"
	"sync"
)

//go:embed page.html
var source string

// The chart library is uPlot 1.6.32 (MIT), as its npm package has it: it draws and zooms fast, and a page may carry 50
// KB.
//
//go:embed assets
var assets embed.FS

// scripts are the page's scripts in the order of execution, inside one function. Those of panels follow run.js.
var scripts = []string{"dom.js", "state.js", "data.js", "theme.js", "copy.js", "tables.js", "format.js", "lines.js",
	"chart.js", "zoom.js", "legend.js", "runs.js", "curves.js", "parallel.js", "settings.js", "grid.js", "run.js",
	"panels/*.js", "compare.js", "live.js", "keys.js", "start.js"}

func dataURL(svg []byte) string {
	return "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(svg)
}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"image":  func(svg []byte) template.URL { return template.URL(dataURL(svg)) },
	"source": func(svg []byte) template.Srcset { return template.Srcset(dataURL(svg)) }}).Parse(source))

// view is the input of the template.
type view struct {
	Report
	Policy                 string // Content-Security-Policy
	Style                  template.CSS
	Script, Data           template.JS
	Results, Tests, Failed []tableView
	HasCurves              bool
	Left                   []string
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
func newView(report Report) (shown view, data block, err error) {
	shown = view{Report: report, HasCurves: report.Live, Style: template.CSS(style()), Script: template.JS(script())}
	shown.Results, shown.Tests = viewTables("results", report.Tables), viewTables("significance", report.Significance)
	shown.Failed = viewTables("failures", failureTables(report.Runs))
	data, shown.Left = newBlock(report)
	for _, run := range data.Runs {
		shown.HasCurves = shown.HasCurves || len(run.Curves) > 0
	}

	packed, err := json.Marshal(data) // escapes <, > and &
	shown.Data = template.JS(packed)
	shown.Policy = fmt.Sprintf("default-src 'none'; img-src data:; style-src '%s'; script-src '%s'; base-uri 'none'; "+
		"form-action 'none'", sum(style()), sum(script()))
	if shown.Live {
		shown.Policy += "; connect-src 'self'"
	}

	return shown, data, err
}

// style and script are the page's; its policy allows only these two.
var (
	style = sync.OnceValue(func() string {
		return texts("uplot/uPlot.min.css", "page.css", "settings.css", "samples.css")
	})
	script = sync.OnceValue(func() string {
		licence, code, _ := strings.Cut(texts("uplot/LICENSE", "uplot/uPlot.iife.min.js"), "/*!")
		return texts("language.js") + "/* uPlot:\n" + licence + "*/\n/*!" + code + "\n(() => {\n\"use strict\";\n" +
			texts(scripts...) + "})();\n"
	})
)

// texts concatenates the embedded files of names and patterns.
func texts(patterns ...string) string {
	var out strings.Builder
	for _, pattern := range patterns {
		names, _ := fs.Glob(assets, "assets/"+pattern) // a name or a pattern above, which is valid
		for _, name := range names {
			text, err := assets.ReadFile(name)
			if err != nil {
				panic(err) // a name that was just listed
			}
			out.Write(text)
		}
	}

	return out.String()
}

// sum returns the hash of an inline element for the policy.
func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(h[:])
}
