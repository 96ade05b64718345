package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// The server's state is one file, replaced atomically at the end of every round; that moment commits the round.
const checkpointFile = "server.safetensors"

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
		return fmt.Errorf("checkpoint of round %d: %w", p.Round-1, err)
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
