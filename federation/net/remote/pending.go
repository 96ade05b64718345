package remote

import (
	"errors"
	"fmt"
	"os"
	"time"

	"promptfed/federation/net/protocol"
	"promptfed/runtime/tensor"
)

// pending is an instruction to a client and the state of its reply. Server.mu guards it.
type pending struct {
	*protocol.Instruction                 // as last sent, without its tensors
	body                  []byte          // tensors of the instruction
	reply                 *protocol.Reply // whose tensors come in chunks
	upload                *partial        // these tensors
	most                  int64           // largest size of the reply's tensors, in bytes
	forms                 tensor.Specs    // of these tensors
	of                    *collection
}

// deliver makes an instruction the pending one of a client, or repeats it as a new attempt. The client's stream sends
// it, now or when the client is connected again. Server.mu must be held.
func (h *Server) deliver(client int, x *pending) {
	k := &h.clients[client]
	if old := k.pending; old != nil && old.Id == x.Id {
		x.reply, x.upload, old.upload = old.reply, old.upload, nil
	}
	k.finish()
	h.seq = max(h.seq+1, time.Now().UnixNano())
	x.Attempt, x.Seq, k.seq, k.pending = protocol.NewID(), h.seq, h.seq, x
	if k.session != nil {
		notify(k.session.wake)
	}
}

// finish ends the pending instruction and discards an incomplete reply. Server.mu must be held.
func (k *clientRecord) finish() {
	if k.pending != nil {
		k.pending.upload.close()
		k.pending = nil
	}
}

// partial holds tensors that arrive in chunks, in order. A file keeps them while the connection is lost.
type partial struct {
	of   *protocol.Content
	file *os.File
	have int64
}

// accepts reports whether these are the announced tensors.
func (a *partial) accepts(c *protocol.Content) bool {
	return a != nil && a.of.Sum == c.Sum && a.of.Size == c.Size
}

// missing returns the request for the chunks that are missing.
func (a *partial) missing() *protocol.Fetch {
	return &protocol.Fetch{Sum: a.of.Sum, Offset: uint64(a.have)}
}

// errChunk refuses a chunk that is not the next one.
var errChunk = errors.New("it is not the next chunk")

// write appends a chunk. Other errors than errChunk are those of the file.
func (a *partial) write(c *protocol.Chunk) error {
	n := int64(len(c.Data))
	if int64(c.Offset) != a.have || a.have+n > int64(a.of.Size) {
		return fmt.Errorf("%w: %d bytes at %d of %d; those at %d are expected", errChunk, n, c.Offset,
			a.of.Size, a.have)
	}
	_, err := a.file.WriteAt(c.Data, a.have)
	if err == nil {
		a.have += n
	}
	return err
}

func (a *partial) complete() bool { return a.have == int64(a.of.Size) }

// body returns the complete tensors.
func (a *partial) body() ([]byte, error) {
	b := make([]byte, a.have)
	_, err := a.file.ReadAt(b, 0) // of all bytes, so that there is no io.EOF
	return b, err
}

func (a *partial) close() {
	if a != nil {
		a.file.Close()
	}
}

// chunkSize is the size of a chunk of tensors that are too large for one message, in bytes.
const chunkSize = 64 << 10

// chunkOf returns the chunk of tensors that begins at an offset; nil behind their end.
func chunkOf(body []byte, at *protocol.Fetch) *protocol.Chunk {
	if at.Offset >= uint64(len(body)) {
		return nil
	}
	return &protocol.Chunk{Sum: at.Sum, Offset: at.Offset,
		Data: body[at.Offset:min(at.Offset+chunkSize, uint64(len(body)))]}
}

// after returns the place behind a chunk; nil behind the last one.
func after(c *protocol.Chunk) *protocol.Fetch {
	if len(c.Data) < chunkSize {
		return nil
	}
	return &protocol.Fetch{Sum: c.Sum, Offset: c.Offset + chunkSize}
}

// temporaryFile creates a file that disappears when it is closed. On systems where an open file cannot lose its name,
// the next start removes it.
func temporaryFile(dir, pattern string) (*os.File, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err == nil {
		os.Remove(f.Name())
	}
	return f, err
}
