// Package oneline writes texts and errors of other code on one line, for messages, logs and tables. It imports nothing
// of this module.
package oneline

import (
	"strings"
	"unicode/utf8"
)

// limit is the largest number of bytes of a Short text before its dots.
const limit = 400

// Text joins the lines of a text. A line break becomes "; ", or a space behind a line that ends in ':', ';', ',' or
// '.'. Empty lines go, other white space becomes one space, and invalid UTF-8 becomes "?".
func Text(s string) string {
	var joined strings.Builder
	breaks := func(r rune) bool { return r == '\n' || r == '\r' }
	for line := range strings.FieldsFuncSeq(strings.ToValidUTF8(s, "?"), breaks) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			continue
		}

		if before := joined.String(); before != "" {
			if !strings.ContainsRune(":;,.", rune(before[len(before)-1])) {
				joined.WriteByte(';')
			}
			joined.WriteByte(' ')
		}

		joined.WriteString(line)
	}

	return joined.String()
}

// Short is Text for values of untrusted files: it cuts the line after 400 bytes, and marks the cut with "...".
func Short(text string) string {
	text = Text(text)
	if len(text) <= limit {
		return text
	}

	end := limit
	for !utf8.RuneStart(text[end]) {
		end--
	}

	return text[:end] + "..."
}

// Error returns an error whose text is Text of that of err, and which unwraps to err. It returns err itself where the
// text is one line already, and nil for nil.
func Error(err error) error {
	if err == nil {
		return nil
	}

	text := err.Error()
	line := Text(text)
	if line == text {
		return err
	}

	return &joined{line, err}
}

// joined is an error whose text was changed by Error.
type joined struct {
	text string
	err  error
}

func (e *joined) Error() string { return e.text }
func (e *joined) Unwrap() error { return e.err }
