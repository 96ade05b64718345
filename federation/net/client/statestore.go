package client

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/state"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/atomicfile"
)

// stateStore holds a client's states in a folder: one file for each training instruction that it answered, until the
// server has accepted or rejected the upload.
type stateStore struct {
	dir string

	mu sync.Mutex
	storeHeader
}

const (
	// StoreFile is the file that makes a folder that of a client of a server's run.
	StoreFile   = "client.json"
	stateFile   = "state-"
	stateSuffix = ".safetensors"
)

// storeHeader is the content of StoreFile.
type storeHeader struct {
	Run    string `json:"run"`
	Client int    `json:"client"`
	Done   bool   `json:"done,omitempty"`   // the run is over, and the client has the final parameters
	Server []byte `json:"server,omitempty"` // the server's key
	Safe   string `json:"safe,omitempty"`   // instruction of the last upload in the server's checkpoint
}

// write replaces StoreFile; the caller holds the lock, or is alone.
func (v *stateStore) write() error {
	return atomicfile.WritePrivate(filepath.Join(v.dir, StoreFile), atomicfile.JSON(v.storeHeader, ""))
}

// finish records that the run is over.
func (v *stateStore) finish() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Done = true
	return v.write()
}

// checkServer returns why these uploads cannot be the last accepted one and the last one in the server's checkpoint. A
// server never goes back before its checkpoint, so the client keeps all states since then.
func (v *stateStore) checkServer(accepted, safe string) error {
	v.mu.Lock()
	known := v.Safe
	v.mu.Unlock()
	files, _, err := v.files()
	if err != nil {
		return err
	}

	rounds := map[string]int{}
	for _, f := range files {
		rounds[f.id] = f.round
	}

	first := rounds[known]
	for _, id := range []string{accepted, safe} {
		round, ok := rounds[id]
		switch {
		case id == "" && known == "":
		case id == "":
			return fmt.Errorf("it lacks uploads of this client that the server's checkpoint has, such as %.12s", known)
		case !ok:
			return fmt.Errorf("it counts upload %.12s of this client, which %s has no record of", id, v.dir)
		case round < first:
			return fmt.Errorf("it goes back to round %d, before the server's last checkpoint in round %d", round+1,
				first+1)
		}
	}

	return nil
}

// FinishedRun returns the identity of the finished run of a client's folder, or "".
func FinishedRun(dir string) string {
	var o storeHeader
	if _, err := atomicfile.ReadJSON(filepath.Join(dir, StoreFile), &o); err != nil || !o.Done {
		return ""
	}
	return o.Run
}

// HasStates reports whether a client's folder holds states of a run, so that the client may have sent uploads.
func HasStates(dir, run string) bool {
	store := stateStore{dir: dir}
	there, err := atomicfile.ReadJSON(filepath.Join(dir, StoreFile), &store.storeHeader)
	files, _, unread := store.files()
	return there && errors.Join(err, unread) == nil && store.Run == run && len(files) > 0
}

// MakeFolder makes a client's folder, which only its owner may open. A folder that holds anything keeps its mode,
// which other things there may need; each secret file has a mode of its own.
func MakeFolder(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var content []os.DirEntry
		content, err = os.ReadDir(dir)
		if err == nil && len(content) == 0 {
			err = os.Chmod(dir, 0o700)
		}
	}

	if err != nil {
		return fmt.Errorf("cannot make the client's folder: %w; use another --state", err)
	}

	return nil
}

// openStateStore makes or opens the folder. It refuses a folder of another run, client or server; server is the
// server's key.
func openStateStore(dir, run string, client int, server []byte) (*stateStore, error) {
	store := &stateStore{dir: dir, storeHeader: storeHeader{Run: run, Client: client, Server: server}}
	if err := MakeFolder(dir); err != nil {
		return store, err
	}

	path := filepath.Join(dir, StoreFile)
	var header storeHeader
	there, err := atomicfile.ReadJSON(path, &header)
	if err == nil && !there {
		err = store.write()
	}

	if err != nil || !there {
		return store, err
	}

	files, _, err := store.files()
	if err != nil {
		return store, err
	}

	// the client did not train in that run
	if header.Run != run && header.Client == client && len(files) == 0 && !header.Done {
		return store, store.write()
	}

	if header.Run != run || header.Client != client {
		return store, fmt.Errorf("%s belongs to another client, or to client %d of another run; use another --state",
			dir, header.Client)
	}

	if len(header.Server) > 0 && len(server) > 0 && !bytes.Equal(header.Server, server) {
		return store, fmt.Errorf("%w; if that is intended, remove %s", certs.ErrOtherKey, path)
	}

	store.storeHeader = header
	return store, nil
}

// savedState is a file of the store: the state after a training instruction.
type savedState struct {
	name  string
	round int
	id    string
	// when it was written
	written time.Time
}

// files returns the files of the store, and incomplete files after a crash.
func (v *stateStore) files() (files []savedState, left []string, err error) {
	entries, err := os.ReadDir(v.dir)
	for _, entry := range entries {
		name, whole := strings.CutSuffix(entry.Name(), stateSuffix)
		rest, ours := strings.CutPrefix(name, stateFile)
		round, id, _ := strings.Cut(rest, "-")
		if n, err := strconv.Atoi(round); whole && ours && err == nil && wire.ID.MatchString(id) {
			info, err := entry.Info()
			if err != nil {
				return nil, nil, err
			}
			files = append(files, savedState{entry.Name(), n, id, info.ModTime()})
		} else if strings.HasPrefix(entry.Name(), "."+stateFile) {
			left = append(left, entry.Name())
		}
	}

	return files, left, err
}

// put stores the client's state after a training instruction of a round.
func (v *stateStore) put(round int, id string, s message.ClientState) error {
	return state.WriteState(filepath.Join(v.dir, fmt.Sprintf("%s%06d-%s%s", stateFile, round, id, stateSuffix)), s)
}

// get returns that state; without an identity it returns that of a new client.
func (v *stateStore) get(id string) (message.ClientState, error) {
	if id == "" {
		return message.ClientState{}, nil
	}

	files, _, err := v.files()
	if err != nil {
		return message.ClientState{}, err
	}

	for _, f := range files {
		if f.id == id {
			return state.ReadState(filepath.Join(v.dir, f.name))
		}
	}

	return message.ClientState{}, fmt.Errorf("the server counts an upload of this client that its folder %s has no "+
		"record of; give the folder that it used before with --state", v.dir)
}

// prune removes states that cannot become valid any more, given an instruction with the last accepted upload and the
// last one in the server's checkpoint. It keeps these two, and the states of the current round, which the server may
// not have decided about, unless the instruction is to train. If the checkpoint is the known one, it also keeps the
// first few states since then, because a crashed server may have accepted one without reporting it.
func (v *stateStore) prune(instruction *wire.Instruction) error {
	files, left, err := v.files()
	if err != nil {
		return err
	}

	v.mu.Lock()
	news := instruction.Safe != v.Safe
	if news {
		v.Safe = instruction.Safe
		err = v.write()
	}

	v.mu.Unlock()
	if err != nil {
		return err
	}

	slices.SortFunc(files, func(a, b savedState) int { return a.written.Compare(b.written) })
	spare := 0
	for _, f := range files {
		if f.id == instruction.Accepted || f.id == instruction.Safe || f.id == instruction.Id ||
			f.round == int(instruction.Round) && instruction.Kind != string(message.Train) {
			continue
		}
		if spare++; news || spare > maxSpare {
			left = append(left, f.name)
		}
	}

	for _, name := range left {
		if err := os.Remove(filepath.Join(v.dir, name)); err != nil {
			return err
		}
	}

	return nil
}

// maxSpare is how many states a client keeps in addition to those that the server names.
const maxSpare = 8
