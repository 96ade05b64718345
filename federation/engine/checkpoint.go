package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// The server's state is one file, replaced atomically at the end of every round; that moment commits the round.
const checkpointFile = "server.safetensors"

// HasCheckpoint tells whether a run folder holds a round that counts.
func HasCheckpoint(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, CheckFolder, checkpointFile))
	return err == nil
}

// position is what the checkpoint says beside tensors.
type position struct {
	Round       int                 `json:"round"` // rounds done
	Fingerprint string              `json:"fingerprint"`
	Clients     map[int]place       `json:"clients"`          // where each client's state lies
	Record      Record              `json:"record"`           // of the last round, in case its line was not written any more
	Remote      []byte              `json:"remote,omitempty"` // what a cohort elsewhere remembers
	Peers       []method.ClientInfo `json:"peers,omitempty"`  // of such a cohort, those that the method knows

	optimizer tensor.Map // of sharedOptimizer, among the tensors
}

func saveCheckpoint(dir string, g *method.Global, p position) error {
	m := tensor.Map{}.Put("shared", g.Shared).Put("down", g.Broadcast).Put("kept", g.State).
		Put("optimizer", p.optimizer)
	for id, e := range g.PerClient {
		m.Put("each/"+strconv.Itoa(id), e)
	}
	meta, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := writeSealed(filepath.Join(dir, checkpointFile), m,
		map[string]string{"position": string(meta)}); err != nil {
		return fmt.Errorf("checkpoint of round %d: %w", p.Round, err)
	}
	return nil
}

// loadCheckpoint reads the last committed round; ok is false when there is none yet.
func loadCheckpoint(dir string, g *method.Global) (p position, ok bool, err error) {
	path := filepath.Join(dir, checkpointFile)
	m, meta, err := readSealed(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("cannot resume: %w", err)
	}
	if p, err = restore(g, m, meta["position"]); err != nil {
		return p, false, fmt.Errorf("cannot resume: %s: %w", path, err)
	}
	return p, true, nil
}

// restore sets the server's state to what a checkpoint holds.
func restore(g *method.Global, m tensor.Map, meta string) (p position, err error) {
	if err := json.Unmarshal([]byte(meta), &p); err != nil {
		return p, errors.New("it has no position; was it written by promptfed run?")
	}
	if p.Round < 1 {
		return p, fmt.Errorf("it counts %d rounds; it must count 1 or more", p.Round)
	}
	g.Shared, g.Broadcast, g.State = m.Under("shared"), m.Under("down"), m.Under("kept")
	g.PerClient = map[int]tensor.Map{}
	each := m.Under("each")
	for name, t := range each {
		client, rest, _ := strings.Cut(name, "/")
		id, err := strconv.Atoi(client)
		if err != nil {
			return p, fmt.Errorf("its tensor each/%s belongs to no client", name)
		}
		if g.PerClient[id] == nil {
			g.PerClient[id] = tensor.Map{}
		}
		g.PerClient[id][rest] = t
	}
	g.Round, p.optimizer = p.Round, m.Under("optimizer")
	return p, nil
}

// journal is rounds.jsonl, one record a line.
type journal struct {
	path    string
	Records []Record

	best     tensor.Map // of a run without a folder: what the best round on validation data left
	zeroShot []ZeroShot
}

// openJournal reads the lines of rounds that are done and drops what a crash left behind them.
func openJournal(path string, done int, last Record) (*journal, error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	records, text, err := parseJournal(b, done, last)
	if err != nil {
		return nil, fmt.Errorf("cannot resume: %s: %w", path, err)
	}
	return &journal{path: path, Records: records}, atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// parseJournal gives the records of the rounds that are done, and their lines.
func parseJournal(b []byte, done int, last Record) (records []Record, text []byte, err error) {
	for line := range splitLines(b) {
		var r Record
		if json.Unmarshal(line, &r) != nil || r.Round >= done || r.Round != len(records) {
			break
		}
		records = append(records, r)
	}
	if done > 0 && len(records) == done-1 {
		records = append(records, last)
	}
	if len(records) != done {
		return nil, nil, fmt.Errorf("it has %d readable rounds, the checkpoint %d; put back the file or start again "+
			"in another folder", len(records), done)
	}
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return nil, nil, err
		}
		text = append(append(text, line...), '\n')
	}
	return records, text, nil
}

func splitLines(b []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			i := 0
			for i < len(b) && b[i] != '\n' {
				i++
			}
			if i == len(b) || !yield(b[:i]) { // a line without its end was not finished
				return
			}
			b = b[i+1:]
		}
	}
}

func (j *journal) add(r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.Write(append(line, '\n')); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	j.Records = append(j.Records, r)
	return f.Close()
}
