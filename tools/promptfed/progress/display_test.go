package progress

import (
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
)

// said returns what is written to standard error, which is not a terminal. Time is virtual.
func said(t *testing.T, do func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stderr
	os.Stderr = w
	defer func() { os.Stderr = was }()
	synctest.Test(t, func(*testing.T) { do() })
	w.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Lines name the seed and the remaining time, which depends only on the rounds of this call: after 8 rounds of an
// earlier call and one of this one, which took a second, one is left and takes as long.
func TestLines(t *testing.T) {
	conf := experiment.Defaults()
	conf.Name, conf.Seed = "small", 7
	text := said(t, func() {
		d := New(conf)
		d.Start(10, 2)
		for i := range 8 {
			d.Round(record.Record{Round: i})
		}
		d.Turn(message.Instruction{Kind: message.Train, Round: 8, Clients: []int{0, 1}}, 0)
		d.began = time.Now().Add(-time.Second)
		d.spoke = time.Now().Add(-2 * pause)
		d.Turn(message.Instruction{Kind: message.Train, Round: 8, Clients: []int{0, 1, 2}}, 1)
		d.Round(record.Record{Round: 8})
		d.Note("decoding bounds the rate")
		d.Close()
	})
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 11 || lines[10] != "small, seed 7: decoding bounds the rate" ||
		!strings.HasPrefix(lines[8], "small, seed 7: round 9/10, client 2/3") ||
		!strings.HasPrefix(lines[9], "small, seed 7: round 9/10, ") || !strings.HasSuffix(lines[9], ", about 1s left") {
		t.Errorf("%q", lines)
	}
}

// Each of two runs of five rounds has one round of an earlier call, takes two seconds for a second one, and stops then.
// After that of the first run 3 + 5 rounds are left, after that of the second 3, at two seconds each.
func TestSeries(t *testing.T) {
	text := said(t, func() {
		conf := experiment.Defaults()
		conf.Train.Rounds = 5
		s := NewSeries([]experiment.Config{conf, conf})
		for range 2 {
			d := s.New(conf)
			d.Start(5, 1)
			d.Round(record.Record{Round: 0})
			d.Turn(message.Instruction{Kind: message.Train, Round: 1, Clients: []int{0}}, 0)
			d.Round(record.Record{Round: 1, Seconds: 2})
			d.Close()
		}
	})
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 4 || !strings.HasSuffix(lines[1], ", about 16s left for all runs") || !strings.HasPrefix(lines[2],
		"run, seed 1 (run 2 of 2): round 1/5") || !strings.HasSuffix(lines[3], ", about 6s left for all runs") {
		t.Errorf("%q", lines)
	}
}

// The pace of one method says nothing about another: after a run of one, the time of two rounds of the other is unknown
// until its first round, which takes nine seconds.
func TestSeriesOfMethods(t *testing.T) {
	text := said(t, func() {
		fast, slow := experiment.Defaults(), experiment.Defaults()
		fast.Train.Rounds, slow.Train.Rounds, slow.Method = 1, 2, "cocoop"
		s := NewSeries([]experiment.Config{fast, slow})
		for _, one := range []experiment.Config{fast, slow} {
			d := s.New(one)
			d.Start(one.Train.Rounds, 1)
			d.Turn(message.Instruction{Kind: message.Train, Clients: []int{0}}, 0)
			d.Round(record.Record{Seconds: 9})
		}
	})
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], ", time left for all runs unknown") ||
		!strings.HasSuffix(lines[1], ", about 9s left for all runs") {
		t.Errorf("%q", lines)
	}
}

// Long preparation prints its progress if there is no bar.
func TestSlowWork(t *testing.T) {
	text := said(t, func() {
		d := New(experiment.Defaults())
		d.Work("features of x", 1, 100)
		d.began, d.spoke = time.Now().Add(-3*time.Second), time.Now().Add(-2*pause)
		d.Work("features of x", 50, 100)
		d.Work("features of x", 100, 100)
	})
	if !strings.Contains(text, "features of x, 50 of 100 images, about 3s left\n") || strings.Count(text, "\n") != 2 {
		t.Errorf("%q", text)
	}
}
