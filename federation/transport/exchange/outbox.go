package exchange

import (
	"errors"
	"hash/crc32"
	"os"
	"sync"

	"promptfed/federation/transport/protocol"
)

// piece is the size of a piece of tensors that are too large for one message, in bytes, and ahead the number of pieces
// in flight: so much must pass a slow link before the connection counts as dead.
const (
	pieceSize   = 64 << 10
	maxInFlight = 4
)

func pieces(size int) int { return (size + pieceSize - 1) / pieceSize }

// bounds of a piece.
func bounds(size, n int) (from, to int) { return n * pieceSize, min(size, (n+1)*pieceSize) }

func crc(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// Outbox holds the tensors of current instructions, each once for all members; large ones are in files.
type Outbox struct {
	Dir      string
	InMemory int // from here on in a file
	mu       sync.Mutex
	held     map[string]*stored // by digest
}

// stored is an entry of an Outbox.
type stored struct {
	size int
	uses int
	body []byte   // nil if in a file
	file *os.File // unnamed, so it disappears with the process
}

// Put stores encoded tensors until Release has been called once per Put, or until Clear.
func (s *Outbox) Put(sum string, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.held[sum]; p != nil {
		p.uses++
		return nil
	}
	p := &stored{size: len(body), uses: 1}
	if len(body) <= s.InMemory {
		p.body = body
	} else {
		var err error
		if p.file, err = TemporaryFile(s.Dir, "order-*"); err != nil {
			return err
		}
		if _, err := p.file.WriteAt(body, 0); err != nil {
			p.file.Close()
			return err
		}
	}
	if s.held == nil {
		s.held = map[string]*stored{}
	}
	s.held[sum] = p
	return nil
}

var ErrGone = errors.New("those tensors are not available any more")

// Read returns some bytes of an entry.
func (s *Outbox) Read(sum string, from, to int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.held[sum]
	if p == nil || from < 0 || to < from || to > p.size {
		return nil, ErrGone
	}
	if p.file == nil {
		return p.body[from:to], nil
	}
	b := make([]byte, to-from)
	_, err := p.file.ReadAt(b, int64(from))
	return b, err
}

// size returns the size of an entry.
func (s *Outbox) size(sum string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.held[sum]; p != nil {
		return p.size, nil
	}
	return 0, ErrGone
}

// Release undoes one Put.
func (s *Outbox) Release(sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.held[sum]; p != nil {
		if p.uses--; p.uses == 0 {
			p.close()
			delete(s.held, sum)
		}
	}
}

// Clear removes all entries.
func (s *Outbox) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.held {
		p.close()
	}
	s.held = nil
}

func (p *stored) close() {
	if p.file != nil {
		p.file.Close()
	}
}

// TemporaryFile creates a file that disappears when it is closed. On systems where an open file cannot lose its name,
// the next start removes it.
func TemporaryFile(dir, pattern string) (*os.File, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err == nil {
		os.Remove(f.Name())
	}
	return f, err
}

// incoming holds tensors that arrive in pieces, in any order.
type incoming struct {
	id   string // identity of the instruction they answer
	sum  string
	size int
	file *os.File
	have []byte // one bit for each piece
	left int    // pieces that are missing
}

func newIncoming(dir, id string, c protocol.Content) (*incoming, error) {
	f, err := TemporaryFile(dir, "reply-*")
	if err != nil {
		return nil, err
	}
	n := pieces(c.Size)
	return &incoming{id: id, sum: c.Sum, size: c.Size, file: f, have: make([]byte, (n+7)/8), left: n}, nil
}

// write stores a piece and reports whether it was valid.
func (a *incoming) write(n int, b []byte) (bool, error) {
	if n < 0 || n >= pieces(a.size) {
		return false, nil
	}
	from, to := bounds(a.size, n)
	if len(b) != to-from {
		return false, nil
	}
	if a.have[n/8]&(1<<(n%8)) != 0 {
		return true, nil
	}
	if _, err := a.file.WriteAt(b, int64(from)); err != nil {
		return false, err
	}
	a.have[n/8] |= 1 << (n % 8)
	a.left--
	return true, nil
}

// body returns the complete tensors.
func (a *incoming) body() ([]byte, error) {
	b := make([]byte, a.size)
	_, err := a.file.ReadAt(b, 0)
	return b, err
}

func (a *incoming) close() {
	if a != nil {
		a.file.Close()
	}
}
