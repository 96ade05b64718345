package noise

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"promptfed/federation/method"
	"promptfed/runtime/atomicfile"
)

// Noise is where one side of a run takes the noise of differential privacy from, where nobody else can know it: a key
// made from the system's random source that never leaves its file, and what was released with it. Noise is a function
// of the key and of what it is added to. So what is released again, after a crash or because a message was lost, has
// the same bytes, and no mean of several tells more; and two different numbers never have the same noise, which their
// difference would not have.
type Noise struct {
	path string
	mu   sync.Mutex
	noiseFile
}

// noiseFile is the file.
type noiseFile struct {
	Run      string           `json:"run"`
	Key      []byte           `json:"key"`
	Released map[int][]string `json:"released"` // by round, layers and digests of what noise was added to
}

// New is Noise with a new key that no file keeps.
func New() (*Noise, error) {
	n := &Noise{}
	return n, n.renew("")
}

// renew forgets everything and makes a new key.
func (n *Noise) renew(run string) error {
	n.noiseFile = noiseFile{Run: run, Key: make([]byte, sha256.Size), Released: map[int][]string{}}
	if _, err := rand.Read(n.Key); err != nil {
		return fmt.Errorf("cannot read the system's random source: %w", err)
	}
	return nil
}

// Client is the noise of one of the clients that are in the process that holds the key. It has a key of its own, and no
// file: such a client is only given the same instruction again, whose release has the same bytes.
func (n *Noise) Client(id int) *Noise {
	return &Noise{noiseFile: noiseFile{Key: n.derive("client", strconv.Itoa(id)), Released: map[int][]string{}}}
}

// OpenNoise reads the file of a run, or makes one with a new key where there is none, or one of another run.
func OpenNoise(path, run string) (*Noise, error) {
	n := &Noise{path: path}
	if _, err := atomicfile.ReadJSON(path, &n.noiseFile); err != nil {
		return nil, err
	}
	if n.Run == run && len(n.Key) == sha256.Size && n.Released != nil {
		return n, nil
	}
	if err := n.renew(run); err != nil {
		return nil, err
	}
	return n, n.write()
}

func (n *Noise) write() error {
	if n.path == "" {
		return nil
	}
	return atomicfile.WritePrivate(n.path, atomicfile.JSON(n.noiseFile, ""))
}

// Rand is a source of random numbers that depends on the key and a path of words.
func (n *Noise) Rand(path ...string) *mathrand.Rand {
	return mathrand.New(mathrand.NewChaCha8([32]byte(n.derive(path...))))
}

// derive gives a key that depends on the key and a path of words.
func (n *Noise) derive(path ...string) []byte {
	h := hmac.New(sha256.New, n.Key)
	io.WriteString(h, strings.Join(path, "/"))
	return h.Sum(nil)
}

// errReleased is the error of a second release in a round.
var errReleased = errors.New("another update of this client was released in this round; a second one would cost " +
	"privacy that epsilon does not count")

// Of is the noise of a round. It keeps what is released before anybody gets it. With once each layer has one release.
func (n *Noise) Of(round int, once bool) method.Noise {
	return func(layer string, release []byte) (*mathrand.Rand, int, error) {
		digest := sha256.Sum256(release)
		name := layer + " " + hex.EncodeToString(digest[:])
		n.mu.Lock()
		defer n.mu.Unlock()
		list, releases := n.Released[round], 0
		for _, other := range list {
			if strings.HasPrefix(other, layer+" ") {
				releases++
			}
		}
		if !slices.Contains(list, name) {
			if once && releases > 0 {
				return nil, 0, errReleased
			}
			n.Released[round] = append(list, name)
			if err := n.write(); err != nil {
				n.Released[round] = list
				return nil, 0, err
			}
			releases++
		}
		return n.Rand("round", strconv.Itoa(round), name), releases, nil
	}
}
