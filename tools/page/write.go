package page

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var source string

var pageTemplate = template.Must(template.New("page").Parse(source))

// Write writes the page. The same report gives the same bytes.
func Write(w io.Writer, r Report) error { return pageTemplate.Execute(w, r) }
