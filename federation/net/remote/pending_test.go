package remote

import (
	"errors"
	"os"
	"testing"

	"promptfed/federation/net/protocol"
)

// A full disk is not a wrong chunk: the client is not blamed, and the chunk does not count as stored.
func TestChunkOnAFullDisk(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	a := &partial{of: &protocol.Content{Size: 8}, file: f}
	defer a.close()
	if err := a.write(&protocol.Chunk{Data: make([]byte, 8)}); err == nil || errors.Is(err, errChunk) || a.have != 0 {
		t.Errorf("%v, %d bytes stored", err, a.have)
	}
	for _, c := range []*protocol.Chunk{{Offset: 1, Data: make([]byte, 7)}, {Data: make([]byte, 9)}} {
		if err := a.write(c); !errors.Is(err, errChunk) {
			t.Errorf("%d bytes at %d: %v", len(c.Data), c.Offset, err)
		}
	}
}
