package cli

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
)

// Shape is one form of what a command prints with --json.
type Shape struct {
	When  string // flags or arguments that select it; empty for the usual form
	Value any    // a value of the printed type
	Lines bool   // the command prints one such object on each line
}

// Printer prints the result of a command: as text, or with the flag --json as JSON on one line.
type Printer struct {
	JSON    bool
	command *cobra.Command
	shapes  []Shape
}

// AddJSON adds the flag --json to a command whose results have the type of usual, or one of other shapes.
func AddJSON(c *cobra.Command, usual any, others ...Shape) *Printer {
	return AddShapes(c, append([]Shape{{Value: usual}}, others...)...)
}

// AddShapes adds the flag --json to a command whose results have the given shapes.
func AddShapes(c *cobra.Command, shapes ...Shape) *Printer {
	p := &Printer{command: c, shapes: shapes}
	c.Flags().VarPF(p, "json", "", "print the result as JSON on standard output, and everything else on standard "+
		"error").NoOptDefVal = "true"
	return p
}

// Shapes returns what a command prints with --json; none without the flag.
func Shapes(c *cobra.Command) []Shape {
	if p := PrinterOf(c); p != nil {
		return p.shapes
	}
	return nil
}

// PrinterOf returns the printer of a command; nil without the flag --json.
func PrinterOf(c *cobra.Command) *Printer {
	if f := c.Flags().Lookup("json"); f != nil {
		return f.Value.(*Printer)
	}
	return nil
}

// Type returns the type of the flag's value.
func (p *Printer) Type() string   { return "bool" }
func (p *Printer) String() string { return strconv.FormatBool(p.JSON) }

// Set reads the flag's value.
func (p *Printer) Set(text string) (err error) {
	if p.JSON, err = strconv.ParseBool(text); err != nil {
		return fmt.Errorf("it takes no file; redirect standard output instead: --json > %s", text)
	}
	return nil
}

// Say prints a line of the text form.
func (p *Printer) Say(format string, a ...any) {
	if !p.JSON {
		fmt.Fprintf(p.command.OutOrStdout(), format+"\n", a...)
	}
}

// Print prints a result: with --json the value, whose type is that of one of the command's shapes, else the text.
func (p *Printer) Print(value any, text string) error {
	out := []byte(text)
	if p.JSON {
		b, err := json.Marshal(value, json.Deterministic(true), json.WithMarshalers(json.JoinMarshalers(
			finite[float32](), finite[float64]())))
		if err != nil {
			return fmt.Errorf("%s --json: %w", p.command.CommandPath(), err)
		}
		out = append(b, '\n')
	}

	if !slices.ContainsFunc(p.shapes, func(s Shape) bool { return reflect.TypeOf(s.Value) == reflect.TypeOf(value) }) {
		return fmt.Errorf("internal error: %s prints a %T, which is none of its shapes", p.command.CommandPath(), value)
	}

	_, err := p.command.OutOrStdout().Write(out)
	return err
}

// finite returns what writes null for numbers that are not finite.
func finite[T float32 | float64]() *json.Marshalers {
	return json.MarshalToFunc(func(e *jsontext.Encoder, v T) error {
		if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
			return e.WriteToken(jsontext.Null)
		}
		return errors.ErrUnsupported
	})
}

// redirected explains the earlier form --json FILE, whose file is now an argument too many.
func redirected(c *cobra.Command, args []string) string {
	if f := c.Flags().Lookup("json"); f != nil && f.Changed && len(args) > 0 &&
		strings.HasSuffix(args[len(args)-1], ".json") {
		return "; --json takes no file: redirect standard output, --json > " + args[len(args)-1]
	}
	return ""
}
