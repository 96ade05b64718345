package secure

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/privacy/secagg"
	"promptfed/federation/wire"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// Party is where one side of secure aggregation is that has the other elsewhere.
type Party struct {
	Run    string          // identity of the run
	Agreed string          // what all sides of the run have in common, such as spec.RunSpec
	Dir    string          // folder of what outlasts a restart
	Who    secagg.Identity // signs for the client that is here; on the server's side it only verifies
	// MaxNorm is how far the mean of a sum may move the shared parameters, by the Euclidean norm; 0 for
	// message.MostMove, below 0 for any distance.
	MaxNorm float64
}

// Files of a Party's folder.
const (
	RecordFile = "secagg.json"      // what this side remembers, with a client's secrets of the round
	KeysFile   = "secagg-keys.json" // keys of the others
	LogFile    = "secagg.jsonl"     // what a client saw, a line for each sum and each refusal
)

// inProcess is the party of clients and a server of one process.
func inProcess() Party { return Party{Who: &secagg.Local{}, MaxNorm: -1} }

// context is the digest that all messages of a run are bound to.
func (p Party) context() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q", p.Run, p.Agreed))
}

// HasJoined tells whether a folder is that of a client that took part in a session.
func HasJoined(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, RecordFile))
	return err == nil
}

// read tells whether there was a file to read.
func (p Party) read(name string, into any) (bool, error) {
	if p.Dir == "" {
		return false, nil
	}
	return atomicfile.ReadJSON(filepath.Join(p.Dir, name), into)
}

func (p Party) write(name string, v any) error {
	if p.Dir == "" {
		return nil
	}
	return atomicfile.WritePrivate(filepath.Join(p.Dir, name), atomicfile.JSON(v, ""))
}

// version tells whether a file is the one that was written last.
func (p Party) version(name string) string {
	text, err := os.ReadFile(filepath.Join(p.Dir, name))
	if p.Dir == "" || err != nil {
		return ""
	}
	sum := sha256.Sum256(text) // two writes may have one time
	return string(sum[:])
}

// appendLog adds a line to the client's list.
func (p Party) appendLog(v any) error {
	if p.Dir == "" {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(p.Dir, LogFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}

// modelDigest is the digest of what the clients of a round train from, which must be the same for all.
func modelDigest(o message.Instruction) (sum [sha256.Size]byte, err error) {
	down := tensor.Map{}
	for name, t := range o.Broadcast {
		if !strings.HasPrefix(name, message.GuardPart+"/") {
			down[name] = t
		}
	}
	b, err := wire.Encode(tensor.Map{}.Put("shared", o.Shared).Put("down", down))
	return sha256.Sum256(b), err
}
