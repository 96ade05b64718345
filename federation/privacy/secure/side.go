package secure

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"promptfed/federation/engine/message"
	"promptfed/federation/privacy/secagg"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// Side describes one side of secure aggregation if the other side is on another machine.
type Side struct {
	Run    string          // identity of the run
	Agreed string          // settings that all sides share, such as spec.RunSpec
	Dir    string          // folder of the files that survive a restart
	Who    secagg.Identity // signs for the local client; the server only verifies
	// MaxNorm is the largest Euclidean norm by which the mean of a sum may change the shared parameters; 0 for
	// message.MaxUpdateNorm, below 0 for no limit.
	MaxNorm float64
}

// Files in the folder of a Side.
const (
	RecordFile = "secagg.json"      // state of this side, with a client's secrets of the round
	KeysFile   = "secagg-keys.json" // keys of the others
	LogFile    = "secagg.jsonl"     // a client's log, with a line for each sum and each refusal
)

// inProcess returns the side of clients and a server in one process.
func inProcess() Side { return Side{Who: &secagg.LocalIdentity{}, MaxNorm: -1} }

// context returns the digest that all messages of a run are bound to.
func (p Side) context() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q", p.Run, p.Agreed))
}

// HasJoined reports whether a folder belongs to a client that took part in a session.
func HasJoined(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, RecordFile))
	return err == nil
}

// read reads a file of the folder, and reports whether there was one.
func (p Side) read(name string, into any) (bool, error) {
	if p.Dir == "" {
		return false, nil
	}
	return atomicfile.ReadJSON(filepath.Join(p.Dir, name), into)
}

func (p Side) write(name string, v any) error {
	if p.Dir == "" {
		return nil
	}
	return atomicfile.WritePrivate(filepath.Join(p.Dir, name), atomicfile.JSON(v, ""))
}

// version returns a digest of a file's content, by which another process's write is noticed.
func (p Side) version(name string) string {
	text, err := os.ReadFile(filepath.Join(p.Dir, name))
	if p.Dir == "" || err != nil {
		return ""
	}
	sum := sha256.Sum256(text) // two writes may have one time
	return string(sum[:])
}

// appendLog appends a line to the client's log.
func (p Side) appendLog(v any) error {
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

// modelDigest returns the digest of the tensors that the clients of a round train from, which must be the same for all.
func modelDigest(instruction message.Instruction) (sum [sha256.Size]byte, err error) {
	b, err := message.EncodeTensors(tensor.Map{}.Put("shared", instruction.Shared).
		Put("down", message.WithoutGuardPart(instruction.Broadcast)))
	return sha256.Sum256(b), err
}
