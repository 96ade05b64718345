package cli

import (
	"bytes"
	"math"
	"testing"

	"github.com/spf13/cobra"
)

// A result is one line of JSON, in which a number that is not finite is null and a list without elements is empty. A
// result of another type than the command states is an error, and nothing is printed.
func TestPrint(t *testing.T) {
	type result struct {
		Value  float64            `json:"value"`
		Share  float32            `json:"share"`
		ByName map[string]float64 `json:"by_name"`
		Names  []string           `json:"names"`
		Known  *float64           `json:"known"`
	}
	v := result{Value: math.NaN(), Share: float32(math.Inf(1)), ByName: map[string]float64{"b": 0.1, "a": math.NaN()}}
	for _, c := range []struct{ flags, want string }{
		{"--json", `{"value":null,"share":null,"by_name":{"a":null,"b":0.1},"names":[],"known":null}` + "\n"},
		{"--json=false", "said\ntext\n"},
	} {
		cmd, out := &cobra.Command{Use: "x"}, bytes.Buffer{}
		cmd.SetOut(&out)
		p := AddJSON(cmd, result{})
		if err := cmd.ParseFlags([]string{c.flags}); err != nil {
			t.Fatal(err)
		}
		p.Say("%s", "said")
		if err := p.Print(v, "text\n"); err != nil || out.String() != c.want {
			t.Errorf("%s: %q, %v; want %q", c.flags, out.String(), err, c.want)
		}
		out.Reset()
		if err := p.Print(&v, "text\n"); err == nil || out.Len() > 0 {
			t.Errorf("%s: another type: %v, %q", c.flags, err, out.String())
		}
	}
}
