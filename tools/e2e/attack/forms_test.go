package attack

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/goldentest"
)

// envelope returns a message as gRPC sends it: a byte of flags, its length and its bytes.
func envelope(flags byte, m proto.Message) []byte {
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(body))), body...)
}

// The server speaks one form of messages: gRPC with uncompressed protobuf over HTTP/2. A client with a certificate
// that sends another form is refused before the server decodes anything: JSON, Connect, gRPC-Web, other methods and
// paths, compressed messages, among them a bomb of 512 MiB in 0.5 MB, and HTTP/1.1.
func TestMessageFormats(t *testing.T) {
	t.Parallel()
	s := serve(t, 1, "--set", "partition.clients=9", "--wait", "3", "--quorum", "0.3")
	peak := s.peak()
	small, large := s.attacker("client-3"), 3
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 512 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	compressed := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(bomb.Len())), bomb.Bytes()...)
	before := peak()
	join, invitation := wire.FederationAnswerProcedure, wire.FederationInviteProcedure
	plain := envelope(0, &wire.InvitationRequest{Version: wire.Version})
	for _, c := range []struct {
		what, method, path, kind string
		body                     []byte
		status                   int
		code                     connect.Code // of gRPC, if the status is 200
		headers                  []string
	}{
		{"the form that counts", "POST", invitation, "application/grpc", plain, 200, 0, nil},
		{"protobuf by its full name", "POST", invitation, "application/grpc+proto", plain, 200, 0, nil},
		{"JSON in gRPC", "POST", invitation, "application/grpc+json", []byte("\x00\x00\x00\x00\x02{}"), 415, 0, nil},
		{"Connect with JSON", "POST", invitation, "application/json", []byte("{}"), 415, 0, nil},
		{"Connect", "POST", invitation, "application/proto", plain[5:], 415, 0, nil},
		{"a stream of Connect", "POST", join, "application/connect+proto", plain, 415, 0, nil},
		{"gRPC-Web", "POST", invitation, "application/grpc-web", plain, 415, 0, nil},
		{"text of gRPC-Web", "POST", invitation, "application/grpc-web-text", plain, 415, 0, nil},
		{"Connect with GET", "GET", invitation + "?encoding=json&message=%7B%7D&connect=v1", "", nil, 415, 0, nil},
		{"GET", "GET", invitation, "application/grpc", nil, 405, 0, nil},
		{"CORS", "OPTIONS", invitation, "", nil, 415, 0, []string{"Origin", "https://evil.example"}},
		{"another path", "POST", "/metrics", "application/grpc", plain, 404, 0, nil},
		{"another procedure", "POST", invitation + "d", "application/grpc", plain, 404, 0, nil},
		{"a bomb", "POST", join, "application/grpc", compressed, 200, connect.CodeUnimplemented,
			[]string{"Grpc-Encoding", "gzip"}},
		{"a bomb for an invitation", "POST", invitation, "application/grpc", compressed, 200,
			connect.CodeUnimplemented, []string{"Grpc-Encoding", "gzip"}},
		{"a bomb without its header", "POST", join, "application/grpc", compressed, 200, connect.CodeInternal, nil},
		{"a compressed request", "POST", join, "application/grpc", compressed, 200, connect.CodeInternal,
			[]string{"Content-Encoding", "gzip"}},
		{"a large question", "POST", invitation, "application/grpc",
			envelope(0, &wire.Part{Data: make([]byte, 1<<20)}), 200, connect.CodeResourceExhausted, nil},
	} {
		r, err := http.NewRequest(c.method, s.url()+c.path, bytes.NewReader(c.body))
		goldentest.NoError(t, err)
		r.Header.Set("Te", "trailers")
		if c.kind != "" {
			r.Header.Set("Content-Type", c.kind)
		}
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Set(c.headers[i], c.headers[i+1])
		}
		a := small
		if len(c.body) > 64<<10 { // each client may send some that is not read
			large++
			a = s.attacker(certs.UserOf(large))
		}
		answer, err := a.Transport.RoundTrip(r)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		number := answer.Header.Get("Grpc-Status") + answer.Trailer.Get("Grpc-Status")
		want := ""
		if c.status == 200 {
			want = string(rune('0' + c.code%10))
			if c.code >= 10 {
				want = "1" + want
			}
		}
		if answer.StatusCode != c.status || number != want || c.status != 200 && strings.Count(string(text), "\n") > 1 {
			t.Errorf("%s: HTTP status %d, gRPC status %q; want %d, %q", c.what, answer.StatusCode, number, c.status,
				want)
		}
		if slices.Contains(answer.Header["Grpc-Encoding"], "gzip") {
			t.Errorf("%s: the answer is compressed", c.what)
		}
	}
	if grown := peak() - before; grown > 200e6 { // far less than the bomb, and more than garbage that is not collected
		t.Errorf("the server took %d MB for it", grown/1e6)
	}
	conf := s.tls(s.at("certs"), "client-3")
	conf.NextProtos = []string{"http/1.1"}
	if c, err := tls.Dial("tcp", s.address, conf); err == nil {
		c.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		if text, err := io.ReadAll(c); err == nil && bytes.HasPrefix(text, []byte("HTTP/1.1 2")) {
			t.Errorf("HTTP/1.1: %q", text)
		}
		c.Close()
	}
	s.joins(0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}
