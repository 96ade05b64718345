package distributed

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// On a terminal a client takes part after the user says yes, or with --yes. After a restart it asks only about changed
// terms. Without a terminal the first terms are printed, recorded and accepted, and changed terms need --yes.
func TestConsent(t *testing.T) {
	first := []joinTerm{{"method", "fedpha"}, {"rounds", "5"}}
	other := []joinTerm{{"method", "fedpha"}, {"rounds", "6"}, {"statistics", "none"}}
	path := filepath.Join(t.TempDir(), agreedFile)
	for i, c := range []struct {
		terms         []joinTerm
		terminal, yes bool
		answer        string
		asks          bool
		err, says     string
	}{
		{terms: first, terminal: true, answer: "", asks: true, err: "does not take"}, // end of input
		{terms: first, terminal: true, answer: "n\n", asks: true, err: "does not take"},
		{terms: first, terminal: true, answer: "y\n", asks: true},
		{terms: first, terminal: true, says: "fedpha"},
		{terms: first},
		{terms: other, err: "rounds was 5, is 6; statistics is none"},
		{terms: other, terminal: true, answer: "no\n", asks: true, err: "does not take", says: "rounds was 5, is 6"},
		{terms: other, yes: true},
		{terms: other, terminal: true},
		{terms: first, terminal: true, answer: "YES\n", asks: true, says: "rounds was 6, is 5; statistics was none"},
	} {
		var out bytes.Buffer
		err := consent{Path: path, Yes: c.yes, Terminal: c.terminal, In: strings.NewReader(c.answer), Out: &out}.take(
			context.Background(), c.terms, []joinTerm{{"data here", "9 images"}})
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("case %d: %v, want %q", i, err, c.err)
		}
		if text := out.String(); strings.Contains(text, "take part? [y/N]") != c.asks ||
			!strings.Contains(text, c.says) || !strings.Contains(text, "9 images") {
			t.Errorf("case %d:\n%s", i, text)
		}
	}
	path = filepath.Join(t.TempDir(), agreedFile)
	for i, c := range []struct {
		terms     []joinTerm
		yes       bool
		err, says string
	}{
		{terms: first, says: "recorded in " + path},
		{terms: first},
		{terms: other, err: "rounds was 5, is 6; statistics is none; read them and add --yes"},
		{terms: other, err: "--yes"}, // a refusal records nothing
		{terms: other, yes: true},
		{terms: other},
		{terms: first, err: "rounds was 6, is 5; statistics was none"},
	} {
		var out bytes.Buffer
		err := consent{Path: path, Yes: c.yes, Out: &out}.take(t.Context(), c.terms, nil)
		if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) ||
			strings.Contains(err.Error(), "\n")) || !strings.Contains(out.String(), c.says) {
			t.Errorf("service, case %d: %v, want %q:\n%s", i, err, c.err, &out)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	never, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	err = consent{Path: filepath.Join(t.TempDir(), "x"), Terminal: true, In: never, Out: &bytes.Buffer{}}.take(ctx,
		first, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a client that is stopped while it asks: %v", err)
	}
}
