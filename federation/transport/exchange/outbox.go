package exchange

import (
	"errors"
	"hash/crc32"
	"os"
	"sync"

	"promptfed/federation/transport/protocol"
)

// piece is how many bytes of tensors travel at a time where they are too many for one message, and ahead how many
// pieces are on their way: so much must pass a slow link before the connection is taken for dead.
const (
	pieceSize   = 64 << 10
	maxInFlight = 4
)

func pieces(size int) int { return (size + pieceSize - 1) / pieceSize }

// bounds of a piece.
func bounds(size, n int) (from, to int) { return n * pieceSize, min(size, (n+1)*pieceSize) }

func crc(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// Outbox holds the tensors of the orders that are out: each once, however many members get it, in a file where they are
// many.
type Outbox struct {
	Dir      string
	InMemory int // from here on in a file
	mu       sync.Mutex
	held     map[string]*stored // by digest
}

// stored is what an Outbox holds.
type stored struct {
	size int
	uses int
	body []byte   // nil where it is in a file
	file *os.File // without a name, so that it goes with the process
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
		if p.file, err = UnnamedFile(s.Dir, "order-*"); err != nil {
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

// Read gives some bytes of what is held.
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

// size is that of what is held.
func (s *Outbox) size(sum string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.held[sum]; p != nil {
		return p.size, nil
	}
	return 0, ErrGone
}

// Release forgets what was put once.
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

// Clear forgets all.
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

// UnnamedFile makes a file that goes when it is closed; where an open file cannot lose its name, the next start removes
// it.
func UnnamedFile(dir, pattern string) (*os.File, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err == nil {
		os.Remove(f.Name())
	}
	return f, err
}

// incoming is tensors that come in pieces, in any order.
type incoming struct {
	id   string // of the order that they answer
	sum  string
	size int
	file *os.File
	have []byte // one bit a piece
	left int    // pieces that are missing
}

func newIncoming(dir, id string, c protocol.Content) (*incoming, error) {
	f, err := UnnamedFile(dir, "reply-*")
	if err != nil {
		return nil, err
	}
	n := pieces(c.Size)
	return &incoming{id: id, sum: c.Sum, size: c.Size, file: f, have: make([]byte, (n+7)/8), left: n}, nil
}

// write keeps a piece. It tells whether that was one.
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

// body is all of it.
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
