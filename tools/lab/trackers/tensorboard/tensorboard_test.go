package tensorboard

import (
	"bytes"
	"testing"
	"time"

	"promptfed/runtime/filetest"
)

// TestAgainstTensorBoard: the file equals, byte for byte, the output of TensorBoard's own record writer and protocol
// buffers for the same events (tools/golden/events.py).
func TestAgainstTensorBoard(t *testing.T) {
	want := filetest.Read(t, "testdata/events")
	var got bytes.Buffer
	at := func(ms int64) time.Time { return time.UnixMilli(1_700_000_000_000 + ms) }
	w := NewWriter(&got, at(0))
	w.Add(0, at(250), map[string]float64{"loss": 2.5, "accuracy": 0.125})
	w.Add(300, at(500), map[string]float64{"accuracy": 0.7})
	if w.Err != nil {
		t.Fatal(w.Err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got\n%x\nwant\n%x", got.Bytes(), want)
	}
}
