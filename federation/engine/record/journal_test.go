package record

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

func unsettled([]Record) {}

func FuzzJournal(f *testing.F) {
	line := `{"format":2,"round":0,"loss":1,"tested":false,"clients":[0],"lr":1,"bytes_up":1,"bytes_down":1,` +
		`"seconds":1}` + "\n"
	f.Add([]byte(line+strings.Replace(line, `"round":0`, `"round":1`, 1)), 2)
	f.Add([]byte(line[:40]), 0)
	f.Add([]byte("\n\n{}\nnull\n[1]\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, done int) {
		done = max(0, done%5)
		last := Record{Round: done - 1}
		records, text, err := parseJournal(b, done, last, unsettled)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than one line: %q", err)
			}
			return
		}
		again, same, err := parseJournal(text, done, last, unsettled)
		if err != nil || len(records) != done || len(again) != done || !bytes.Equal(text, same) {
			t.Fatalf("%d records, read again %d: %v", len(records), len(again), err)
		}
	})
}

// A line of another format is refused, whatever the checkpoint says: its round must not be dropped or replaced.
func TestJournalOfAnotherFormat(t *testing.T) {
	line := `{"format":2,"round":0,"loss":1,"tested":false,"clients":[0],"lr":1,"bytes_up":1,"bytes_down":1,` +
		`"seconds":1}` + "\n"
	later := strings.NewReplacer(`"format":2`, `"format":9`, `"round":0`, `"round":1`).Replace(line)
	for done := range 3 {
		_, _, err := parseJournal([]byte(line+later), done, Record{Round: done - 1}, unsettled)
		goldentest.WantErrorOf(t, fmt.Sprint(done), err, "it has format 9")
	}
}
