package state

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// The server's state is one file. Its atomic replacement at the end of a round commits the round.
const CheckpointFile = "server.safetensors"

// HasCheckpoint reports whether a run folder holds a checkpoint, so that at least one round is finished.
func HasCheckpoint(runFolder string) bool {
	_, err := os.Stat(filepath.Join(runFolder, record.CheckFolder, CheckpointFile))
	return err == nil
}

// version is that of the checkpoint.
const version = 3

// Checkpoint is the part of a checkpoint beside the server's tensors.
type Checkpoint struct {
	Version     int    `json:"version"` // set by SaveCheckpoint
	Round       int    `json:"round"`   // rounds done
	Fingerprint string `json:"fingerprint"`
	// Planned is the number of rounds that the method depends on; 0 if it does not depend on it.
	Planned int    `json:"planned,omitempty"`
	Best    string `json:"best,omitempty"` // FileSum of the file with the best round's prompts; empty if none is kept
	// of the last round, in case its line was not written any more
	Record record.Record       `json:"record"`
	Infos  []method.ClientInfo `json:"peers,omitempty"` // clients that the method knows, where they join

	Cohort message.Saved `json:"-"`
}

// position is a Checkpoint as the metadata of its file.
type position struct {
	Checkpoint
	Cohort map[string]json.RawMessage `json:"cohort"`
}

// cohortFolder is the prefix of the cohort's tensors.
const cohortFolder = "cohort"

// SaveCheckpoint commits a round: it replaces CheckpointFile in dir by the server's tensors under shared/, down/, kept/
// and each/CLIENT/, the cohort's under cohort/, and the checkpoint as metadata.
func SaveCheckpoint(dir string, global *method.Global, checkpoint Checkpoint) error {
	tensors := tensor.Map{}.Put("shared", global.Shared).Put("down", global.Broadcast).Put("kept", global.State).
		Put(cohortFolder, checkpoint.Cohort.Tensors)
	for id, e := range global.PerClient {
		tensors.Put("each/"+strconv.Itoa(id), e)
	}

	checkpoint.Version = version
	meta, err := json.Marshal(position{checkpoint, checkpoint.Cohort.Texts})
	if err != nil {
		return err
	}

	if err := WriteChecksummed(filepath.Join(dir, CheckpointFile), tensors,
		map[string]string{"position": string(meta)}); err != nil {
		return fmt.Errorf("checkpoint of round %d: %w", checkpoint.Round, err)
	}

	return nil
}

// LoadCheckpoint reads the last committed round; ok is false when there is none yet.
func LoadCheckpoint(dir string, global *method.Global) (checkpoint Checkpoint, ok bool, err error) {
	path := filepath.Join(dir, CheckpointFile)
	m, meta, err := ReadChecksummed(path)
	if errors.Is(err, fs.ErrNotExist) {
		return checkpoint, false, nil
	}

	if err != nil {
		return checkpoint, false, fmt.Errorf("cannot resume: %w", err)
	}

	if checkpoint, err = restore(global, m, meta["position"]); err != nil {
		return checkpoint, false, fmt.Errorf("cannot resume: %s: %w", path, err)
	}

	return checkpoint, true, nil
}

// restore sets the server's state to that of a checkpoint.
func restore(global *method.Global, tensors tensor.Map, meta string) (checkpoint Checkpoint, err error) {
	var at position
	if err := json.Unmarshal([]byte(meta), &at); err != nil {
		return checkpoint, errors.New("it has no position, so promptfed run did not write it")
	}

	checkpoint = at.Checkpoint
	if checkpoint.Version != version {
		return checkpoint, fmt.Errorf("it has version %d, this program reads version %d; finish the run with the "+
			"release that began it, or choose another --out", checkpoint.Version, version)
	}

	if checkpoint.Round < 1 {
		return checkpoint, fmt.Errorf("it counts %d rounds; it must count 1 or more", checkpoint.Round)
	}

	global.Shared, global.Broadcast, global.State = tensors.WithoutPrefix("shared"),
		tensors.WithoutPrefix("down"), tensors.WithoutPrefix("kept")
	global.PerClient = map[int]tensor.Map{}
	each := tensors.WithoutPrefix("each")
	for name, t := range each {
		client, rest, _ := strings.Cut(name, "/")
		id, err := strconv.Atoi(client)
		if err != nil {
			return checkpoint, fmt.Errorf("its tensor each/%s belongs to no client of the run", name)
		}
		if global.PerClient[id] == nil {
			global.PerClient[id] = tensor.Map{}
		}
		global.PerClient[id][rest] = t
	}

	global.Round, checkpoint.Cohort = checkpoint.Round, message.Saved{Texts: at.Cohort,
		Tensors: tensors.WithoutPrefix(cohortFolder)}
	return checkpoint, nil
}

// checksumKey is the metadata key of a file's checksum; the safetensors format has none of its own.
const checksumKey = "sha256"

// WriteChecksummed writes tensors and metadata with a checksum over both, atomically.
func WriteChecksummed(path string, m tensor.Map, meta map[string]string) error {
	meta = maps.Clone(meta)
	if meta == nil {
		meta = map[string]string{}
	}
	meta[checksumKey] = checksum(m, meta)
	return safetensors.WritePrivateFile(path, m, meta)
}

// ReadChecksummed reads a file of WriteChecksummed and refuses one that was changed since.
func ReadChecksummed(path string) (tensor.Map, map[string]string, error) {
	m, meta, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}

	if checksum(m, meta) != meta[checksumKey] {
		return nil, nil, fmt.Errorf("%s is damaged: its content does not match its checksum; restore a copy or start "+
			"again in another folder", path)
	}

	return m, meta, nil
}

// FileSum returns the SHA-256 of a file's content, in hex.
func FileSum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()

	hash := sha256.New()
	_, err = io.Copy(hash, file)
	return hex.EncodeToString(hash.Sum(nil)), err
}

func checksum(m tensor.Map, meta map[string]string) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q\n", meta["position"])
	var buffer []byte
	for _, name := range m.Names() {
		t := m[name]
		fmt.Fprintf(hash, "%q %v\n", name, t)
		buffer = buffer[:0]
		for _, v := range t.Data {
			buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(v))
		}
		for _, v := range t.Ints {
			buffer = binary.LittleEndian.AppendUint64(buffer, uint64(v))
		}
		hash.Write(buffer)
	}

	return hex.EncodeToString(hash.Sum(nil))
}
