package state

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"promptfed/federation/engine/message"
)

// Store holds clients' states between rounds. With a folder the states are on disk: those of one round in one file, one
// after another, each as an encoded message, so that memory does not grow with the number of clients. The server's
// checkpoint decides which bytes count for a client, so that a crash between the two writes changes nothing.
type Store struct {
	dir string

	mu     sync.Mutex
	index  map[int]Location // by client
	placed map[int]Location // of clients whose upload has not been accepted yet
	round  int              // of placed
	file   *os.File         // of that round, with a folder
	end    int64            // of the file
}

// Location is the place of a client's state in the folder, or without a folder the state.
type Location struct {
	Round int    `json:"round"` // whose file it is in
	At    int64  `json:"at"`    // first byte
	Size  int64  `json:"size"`
	Sum   string `json:"sha256"`
	state *message.ClientState
}

// NewStore returns an empty store that writes to dir, or keeps everything in memory when dir is empty.
func NewStore(dir string) *Store {
	return &Store{dir: dir, index: map[int]Location{}, placed: map[int]Location{}}
}

// Get returns the state of a client; empty if none was ever accepted.
func (s *Store) Get(client int) (message.ClientState, error) {
	s.mu.Lock()
	location := s.index[client]
	s.mu.Unlock()
	switch {
	case location.state != nil:
		return *location.state, nil
	case location.Size == 0:
		return message.ClientState{}, nil
	}

	b, err := s.read(location)
	if err != nil {
		return message.ClientState{}, err
	}

	m, err := message.DecodeTensors(b)
	if err != nil {
		return message.ClientState{}, fmt.Errorf("%s: %w", s.path(location.Round), err)
	}

	return message.ParseClientState(m)
}

// Clients lists the clients with a state, sorted.
func (s *Store) Clients() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.index))
}

// Stage keeps the state of a client until its round is accepted, or another round begins.
func (s *Store) Stage(round, client int, st message.ClientState) error {
	if s.dir == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.round != round {
			s.round, s.placed = round, map[int]Location{}
		}
		s.placed[client] = Location{state: &st}
		return nil
	}

	data, err := message.EncodeTensors(st.Tensors())
	if err != nil {
		return err
	}

	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(round); err != nil {
		return err
	}

	if _, err := s.file.WriteAt(data, s.end); err != nil {
		return s.failed(round, err)
	}

	s.placed[client] = Location{Round: round, At: s.end, Size: int64(len(data)), Sum: sum}
	s.end += int64(len(data))
	return nil
}

// begin opens the file of a round, which no checkpoint refers to yet.
func (s *Store) begin(round int) error {
	if s.file != nil && s.round == round {
		return nil
	}

	s.close()
	f, err := os.OpenFile(s.path(round), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		err = f.Chmod(0o600) // where an older release left one
	}

	if err != nil {
		return s.failed(round, err)
	}

	s.file, s.round, s.end, s.placed = f, round, 0, map[int]Location{}
	return nil
}

func (s *Store) failed(round int, err error) error {
	return fmt.Errorf("checkpoint of round %d: cannot write %s (the previous checkpoint is intact): %w", round+1,
		s.path(round), err)
}

func (s *Store) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// Accept commits the staged states of some clients, and drops those of the others.
func (s *Store) Accept(round int, clients []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		if err := s.file.Sync(); err != nil {
			return s.failed(round, err)
		}
		s.close()
	}

	for _, id := range clients {
		if p, ok := s.placed[id]; ok {
			s.index[id] = p
		}
	}

	s.placed = map[int]Location{}
	return nil
}

func (s *Store) path(round int) string {
	return filepath.Join(s.dir, fmt.Sprintf("clients-%06d.states", round))
}

// read returns the bytes of a state, and refuses bytes that were changed since.
func (s *Store) read(location Location) ([]byte, error) {
	file, err := os.Open(s.path(location.Round))
	if err != nil {
		return nil, err
	}
	defer file.Close()

	st, err := file.Stat()
	if err != nil {
		return nil, err
	}

	damaged := fmt.Errorf("%s is damaged: a client's state does not match its checksum; restore a copy or start "+
		"again in another folder", file.Name())
	if location.At < 0 || location.Size < 0 || location.At > st.Size() || location.Size > st.Size()-location.At {
		return nil, damaged
	}

	b := make([]byte, location.Size)
	if _, err := file.ReadAt(b, location.At); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}

	if fmt.Sprintf("%x", sha256.Sum256(b)) != location.Sum {
		return nil, damaged
	}

	return b, nil
}

// Locations returns where each client's state is, for the server's checkpoint.
func (s *Store) Locations() map[int]Location {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.index)
}

// Load restores the locations of a checkpoint, and reads all states once.
func (s *Store) Load(places map[int]Location) error {
	for _, id := range slices.Sorted(maps.Keys(places)) {
		if _, err := s.read(places[id]); err != nil {
			return err
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.index)
	maps.Copy(s.index, places)
	return nil
}

// GC removes files that no client's state is in any more.
func (s *Store) GC() {
	if s.dir == "" {
		return
	}

	live := map[string]bool{}
	for _, p := range s.Locations() {
		live[s.path(p.Round)] = true
	}

	files, _ := fs.Glob(os.DirFS(s.dir), "clients-*.states")
	for _, name := range files {
		if path := filepath.Join(s.dir, name); !live[path] {
			os.Remove(path)
		}
	}
}
