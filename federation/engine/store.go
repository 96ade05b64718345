package engine

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"promptfed/runtime/tensor"
)

// Store holds what clients remember between rounds. With a folder, the states of one round go into one file; which file
// counts for a client is decided by the server's checkpoint, so that a crash between the two changes nothing.
type Store struct {
	dir string

	mu     sync.Mutex
	states map[int]State
	round  map[int]int // the round whose file holds a client's state
}

// NewStore returns an empty store that writes to dir, or keeps everything in memory when dir is empty.
func NewStore(dir string) *Store {
	return &Store{dir: dir, states: map[int]State{}, round: map[int]int{}}
}

// Get gives the state of a client; one that was never put is empty.
func (s *Store) Get(client int) (State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[client], nil
}

// Put replaces the states of some clients.
func (s *Store) Put(round int, states map[int]State) error {
	if len(states) == 0 {
		return nil
	}
	if s.dir != "" {
		m := tensor.Map{}
		for id, st := range states {
			st.put(m, strconv.Itoa(id))
		}
		if err := writeSealed(s.file(round), m, nil); err != nil {
			return fmt.Errorf("checkpoint of round %d: %w", round, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, st := range states {
		s.states[id], s.round[id] = st, round
	}
	return nil
}

func (st State) put(m tensor.Map, id string) {
	m.Put(id+"/private", st.Private).Put(id+"/own", st.Own).Put(id+"/kept", st.Kept)
}

func (s *Store) file(round int) string {
	return filepath.Join(s.dir, fmt.Sprintf("clients-%06d.safetensors", round))
}

// rounds says which round's file holds each client's state.
func (s *Store) rounds() map[int]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.round)
}

// load reads the states that a checkpoint counts.
func (s *Store) load(rounds map[int]int) error {
	files := map[int]tensor.Map{}
	for id, r := range rounds {
		if files[r] == nil {
			m, _, err := readSealed(s.file(r))
			if err != nil {
				return fmt.Errorf("cannot resume: %w", err)
			}
			files[r] = m
		}
		mine := files[r].Under(strconv.Itoa(id))
		s.states[id] = State{Private: mine.Under("private"), Own: mine.Under("own"), Kept: mine.Under("kept")}
		s.round[id] = r
	}
	return nil
}

// sweep removes files that no client's state is in any more.
func (s *Store) sweep() {
	if s.dir == "" {
		return
	}
	live := slices.Collect(maps.Values(s.rounds()))
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		n, ok := strings.CutPrefix(e.Name(), "clients-")
		r, err := strconv.Atoi(strings.TrimSuffix(n, ".safetensors"))
		if ok && err == nil && !slices.Contains(live, r) {
			os.Remove(filepath.Join(s.dir, e.Name()))
		}
	}
}
