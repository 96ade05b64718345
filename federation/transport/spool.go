package transport

import (
	"errors"
	"hash/crc32"
	"os"
	"sync"
)

// piece is how many bytes of tensors travel at a time where they are too many for one message, and ahead how many
// pieces are on their way: so much must pass a slow link before the connection is taken for dead.
const (
	piece = 64 << 10
	ahead = 4
)

func pieces(size int) int { return (size + piece - 1) / piece }

// bounds of a piece.
func bounds(size, n int) (from, to int) { return n * piece, min(size, (n+1)*piece) }

func crc(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// spool holds the tensors of the orders that are out: each once, however many members get it, in a file where they are
// many.
type spool struct {
	dir   string
	large int // from here on in a file
	mu    sync.Mutex
	held  map[string]*parcel // by digest
}

// parcel is what a spool holds.
type parcel struct {
	size int
	uses int
	body []byte   // nil where it is in a file
	file *os.File // without a name, so that it goes with the process
}

// put takes tensors in, until drop was called as often as put, or clear.
func (s *spool) put(sum string, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.held[sum]; p != nil {
		p.uses++
		return nil
	}
	p := &parcel{size: len(body), uses: 1}
	if len(body) <= s.large {
		p.body = body
	} else {
		var err error
		if p.file, err = nameless(s.dir, "order-*"); err != nil {
			return err
		}
		if _, err := p.file.WriteAt(body, 0); err != nil {
			p.file.Close()
			return err
		}
	}
	if s.held == nil {
		s.held = map[string]*parcel{}
	}
	s.held[sum] = p
	return nil
}

var errGone = errors.New("those tensors are not to be had")

// read gives some bytes of what is held.
func (s *spool) read(sum string, from, to int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.held[sum]
	if p == nil || from < 0 || to < from || to > p.size {
		return nil, errGone
	}
	if p.file == nil {
		return p.body[from:to], nil
	}
	b := make([]byte, to-from)
	_, err := p.file.ReadAt(b, int64(from))
	return b, err
}

// size is that of what is held.
func (s *spool) size(sum string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.held[sum]; p != nil {
		return p.size, nil
	}
	return 0, errGone
}

// drop forgets what was put once.
func (s *spool) drop(sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.held[sum]; p != nil {
		if p.uses--; p.uses == 0 {
			p.close()
			delete(s.held, sum)
		}
	}
}

// clear forgets all.
func (s *spool) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.held {
		p.close()
	}
	s.held = nil
}

func (p *parcel) close() {
	if p.file != nil {
		p.file.Close()
	}
}

// nameless makes a file that goes when it is closed; where an open file cannot lose its name, the next start removes
// it.
func nameless(dir, pattern string) (*os.File, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err == nil {
		os.Remove(f.Name())
	}
	return f, err
}

// arrival is tensors that come in pieces, in any order.
type arrival struct {
	id   string // of the order that they answer
	sum  string
	size int
	file *os.File
	have []byte // one bit a piece
	left int    // pieces that are missing
}

func newArrival(dir, id string, c content) (*arrival, error) {
	f, err := nameless(dir, "reply-*")
	if err != nil {
		return nil, err
	}
	n := pieces(c.Size)
	return &arrival{id: id, sum: c.Sum, size: c.Size, file: f, have: make([]byte, (n+7)/8), left: n}, nil
}

// take keeps a piece. It tells whether that was one.
func (a *arrival) take(n int, b []byte) (bool, error) {
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
func (a *arrival) body() ([]byte, error) {
	b := make([]byte, a.size)
	_, err := a.file.ReadAt(b, 0)
	return b, err
}

func (a *arrival) close() {
	if a != nil {
		a.file.Close()
	}
}
