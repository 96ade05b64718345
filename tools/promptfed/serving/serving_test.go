package serving

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"promptfed/federation/experiment/inference"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
)

// brightness is a classifier whose scores are the means of red and of blue, over 32. Their softmax is worked out by
// hand.
func brightness(t *testing.T) *inference.File {
	t.Helper()
	g := graph.New()
	in := g.Input(inference.ClassifierInput, graph.Uint8, graph.Shape{graph.Sym("B"), graph.Sym("H"), graph.Sym("W"),
		graph.StaticDim(3)})
	mean := in.Cast(graph.Float).Mean(1, 2).MulScalar(1. / 32) // [B,3]
	red, blue := mean.Slice(1, 0, 1), mean.Slice(1, 2, 3)
	m, err := graph.Model(graph.Output{Name: inference.ClassifierOutput, Node: graph.Concat(1, red, blue).Softmax(-1)})
	if err != nil {
		t.Fatal(err)
	}
	m.MetadataProps = []*onnx.StringStringEntryProto{{Key: inference.MetaClasses, Value: `["red","blue"]`},
		{Key: "method", Value: "promptfl"}}
	path := filepath.Join(t.TempDir(), "c.onnx")
	encoded, err := onnx.Marshal(m)
	if err == nil {
		err = os.WriteFile(path, encoded, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := inference.OpenFile(path, ort.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func filled(c color.RGBA) []byte {
	img := image.NewRGBA(image.Rect(0, 0, 5, 4))
	for i := range img.Pix {
		img.Pix[i] = []uint8{c.R, c.G, c.B, 255}[i%4]
	}
	var b bytes.Buffer
	png.Encode(&b, img)
	return b.Bytes()
}

// sized is the start of a PNG with a given size and no data.
func sized(w, h uint32) []byte {
	header := append([]byte("IHDR"), binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)...)
	header = append(header, 8, 2, 0, 0, 0) // 8 bits of red, green and blue
	out := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	return binary.BigEndian.AppendUint32(append(out, header...), crc32.ChecksumIEEE(header))
}

// Images in concurrent requests get their own answers. A file that is no image, an image that is too large and a
// request that is not POST are refused with the reason.
func TestHandler(t *testing.T) {
	server := httptest.NewServer(Handler(brightness(t)))
	defer server.Close()
	ask := func(method, path string, body []byte) (int, map[string]any) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, nil
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0, nil
		}
		defer answer.Body.Close()
		var out map[string]any
		json.NewDecoder(answer.Body).Decode(&out)
		return answer.StatusCode, out
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			colour, class := color.RGBA{R: 64, B: 32}, "red"
			if i%2 == 1 {
				colour, class = color.RGBA{R: 32, B: 64}, "blue"
			}
			status, out := ask("POST", "/", filled(colour))
			p, _ := out["probabilities"].(map[string]any)
			v, _ := p[class].(float64)
			if status != 200 || out["class"] != class || v < 0.7310 || v > 0.7311 { // 1 / (1 + exp(1 - 2))
				t.Errorf("%d: %d %v", i, status, out)
			}
		})
	}
	all.Wait()
	status, out := ask("GET", "/", nil)
	if classes, _ := out["classes"].([]any); status != 200 || out["method"] != "promptfl" || len(classes) != 2 {
		t.Errorf("%d %v", status, out)
	}
	for _, c := range []struct {
		method, path string
		body         []byte
		status       int
		word         string
	}{
		{"POST", "/", []byte("no image"), 422, "not a JPEG"},
		{"POST", "/", nil, 422, "not a JPEG"},
		{"POST", "/", filled(color.RGBA{})[:60], 422, "damaged"},
		{"POST", "/", make([]byte, maxBody+1), 413, "32 MiB"},
		{"POST", "/", sized(4096, 6145), 413, "25165824 pixels"}, // one line above 24 Mi
		{"POST", "/", sized(4096, 6144), 422, "damaged"},         // accepted, but it has no data
		{"PUT", "/", nil, 405, ""},
		{"GET", "/metrics", nil, 404, ""},
	} {
		status, out := ask(c.method, c.path, c.body)
		if said, _ := out["error"].(string); status != c.status || !strings.Contains(said, c.word) {
			t.Errorf("%s %s: %d %q, want %d with %q", c.method, c.path, status, said, c.status, c.word)
		}
	}
}

// Eight requests that announce the largest files and send nothing hold no part of the budget.
func TestStalledBodies(t *testing.T) {
	server := httptest.NewServer(Handler(brightness(t)))
	defer server.Close()
	for range maxBodies / maxBody {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
			maxBody)
		line, err := bufio.NewReader(c).ReadString('\n') // the handler reads the body
		if err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	answer, err := http.Post(server.URL, "", bytes.NewReader(filled(color.RGBA{R: 64})))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Error(answer.Status)
	}
}

// A file takes chunks of the budget as its bytes arrive, and an error if there are none left.
func TestArriving(t *testing.T) {
	budget := semaphore.NewWeighted(2 * chunk)
	var first, second parts
	a := &arriving{Reader: io.LimitReader(rand.Reader, 5*chunk), held: &first, slots: budget}
	b := make([]byte, chunk)
	for range 2 {
		if _, err := io.ReadFull(a, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Read(b[:1]); !errors.Is(err, errBusy) {
		t.Error(err)
	}
	first.release()
	if err := second.take(t.Context(), budget, 2*chunk); err != nil {
		t.Error(err)
	}
}

// A request that gets no part of the budget in time gets an error, and released parts are available to others.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := semaphore.NewWeighted(10)
		var first, second parts
		if err := first.take(t.Context(), budget, 10); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := second.take(t.Context(), budget, 1); !errors.Is(err, errBusy) || time.Since(began) != maxWait {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		first.release()
		if err := second.take(t.Context(), budget, 10); err != nil {
			t.Error(err)
		}
		second.release()
		if !budget.TryAcquire(10) {
			t.Error("a part was not given back")
		}
	})
}

// A port in use is an error at once, and serving ends with its context.
func TestListen(t *testing.T) {
	f := brightness(t)
	for _, address := range []string{"192.0.2.1:99999", "nowhere", "192.0.2.1:0"} {
		if err := Listen(t.Context(), address, f); err == nil || !strings.Contains(err.Error(), "give HOST:PORT") {
			t.Errorf("%s: %v", address, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Listen(ctx, ":0", f); err != nil {
		t.Error(err)
	}
}
