package noise

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
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

// Noise is a source of noise for differential privacy that only one side of a run knows. It holds a key from the
// system's random source, which stays in its file, and the releases made with the key. The noise is a function of the
// key and of the released numbers. A repeated release, after a crash or a lost message, therefore has the same bytes,
// and averaging repetitions reveals nothing. Different numbers never get the same noise, so that their difference has
// noise too.
type Noise struct {
	path string
	mu   sync.Mutex
	noiseFile
}

type noiseFile struct {
	Run      string           `json:"run"`
	Key      []byte           `json:"key"`
	Released map[int][]string `json:"released"` // by round: layers and digests of releases
}

// Client returns the noise of a client in the same process, with a key derived from this key and without a file. Such a
// client only repeats an instruction to release the same bytes.
func (n *Noise) Client(id int) *Noise {
	return &Noise{noiseFile: noiseFile{Key: n.derive("client", strconv.Itoa(id)), Released: map[int][]string{}}}
}

// Open reads the file of a run. If there is none, or if it belongs to another run, Open writes one with a new key,
// unless the run has used a key: a repeated release would get other noise, which epsilon does not count. A key without
// a path is in no file.
func Open(path, run string, used bool) (*Noise, error) {
	noise := &Noise{path: path}
	_, err := atomicfile.ReadJSON(path, &noise.noiseFile)
	switch there := noise.Run == run && len(noise.Key) == sha256.Size && noise.Released != nil; {
	case err != nil || there:
		return noise, err
	case used:
		return noise, fmt.Errorf("cannot resume: %s is missing or of another run; it has the key of the noise so far: "+
			"restore the file, or start another run", path)
	}

	noise.noiseFile = noiseFile{Run: run, Key: make([]byte, sha256.Size), Released: map[int][]string{}}
	rand.Read(noise.Key)
	return noise, noise.write()
}

func (n *Noise) write() error {
	if n.path == "" {
		return nil
	}
	return atomicfile.WritePrivate(n.path, atomicfile.JSON(n.noiseFile, ""))
}

// Rand returns a random generator that depends on the key and a path of words.
func (n *Noise) Rand(path ...string) *mathrand.Rand {
	return mathrand.New(mathrand.NewChaCha8([32]byte(n.derive(path...))))
}

// derive returns a key that depends on the key and a path of words.
func (n *Noise) derive(path ...string) []byte {
	h := hmac.New(sha256.New, n.Key)
	io.WriteString(h, strings.Join(path, "/"))
	return h.Sum(nil)
}

// errReleased refuses a second release in a round.
var errReleased = errors.New("another update of this client was released in this round; a second one would cost " +
	"privacy that epsilon does not count")

// ForRound returns the noise of a round. It records each release before it returns the noise. With once, a layer has
// one release.
func (n *Noise) ForRound(round int, once bool) method.Noise {
	return func(layer string, release []byte) (*mathrand.Rand, int, error) {
		name := fmt.Sprintf("%s %x", layer, sha256.Sum256(release))
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
