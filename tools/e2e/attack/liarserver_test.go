package attack

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/transport/protocol"
	"promptfed/runtime/tensor"
	"promptfed/tools/e2e/proctest"
)

// parsed is a decoded message of the protocol: PFL and the version, the lengths of header and signature, the header as
// JSON, its signature, and tensors. This code reads and writes messages independently of the code under test.
type parsed struct {
	version byte
	header  map[string]any
	body    []byte
}

func parse(b []byte) (parsed, error) {
	if len(b) < 10 || string(b[:3]) != "PFL" {
		return parsed{}, fmt.Errorf("no message: %.20q", b)
	}
	n, s := int(binary.LittleEndian.Uint32(b[4:])), int(binary.LittleEndian.Uint16(b[8:]))
	m := parsed{version: b[3], body: bytes.Clone(b[10+n+s:])}
	d := json.NewDecoder(bytes.NewReader(b[10 : 10+n]))
	d.UseNumber()
	return m, d.Decode(&m.header)
}

// but returns the message with changed keys of its header; nil removes a key.
func (m parsed) but(pairs ...any) parsed {
	m.header = maps.Clone(m.header)
	for i := 0; i < len(pairs); i += 2 {
		if m.header[pairs[i].(string)] = pairs[i+1]; pairs[i+1] == nil {
			delete(m.header, pairs[i].(string))
		}
	}
	return m
}

// with returns an instruction with other tensors.
func (m parsed) with(body []byte) parsed {
	sum := sha256.Sum256(body)
	m = m.but("size", len(body), "sum", hex.EncodeToString(sum[:]))
	m.body = body
	return m
}

// identified returns an instruction with its correct identity: the hash of its content.
func (m parsed) identified() parsed {
	get := func(key string, none any) any {
		if v, ok := m.header[key]; ok {
			return v
		}
		return none
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %v %q %q %v %v %v %v %v %q", get("run", ""), get("kind", ""), get("round", 0),
		get("statistic", ""),
		get("set", ""), get("steps", 0), get("confusion", false), get("client", 0), get("of", 0), get("size", 0),
		get("sum", ""))
	return m.but("id", hex.EncodeToString(h.Sum(nil)[:16]))
}

// signed returns the encoded message; a nil key makes a signature of zeros.
func (m parsed) signed(t *testing.T, what string, key crypto.Signer) []byte {
	header, err := json.Marshal(m.header)
	if err != nil {
		t.Error(err)
	}
	signature := make([]byte, 70)
	if key != nil {
		h := sha256.New()
		fmt.Fprintf(h, "promptfed %d %s\n", m.version, what)
		h.Write(header)
		if signature, err = key.Sign(rand.Reader, h.Sum(nil), crypto.SHA256); err != nil {
			t.Error(err)
		}
	}
	b := binary.LittleEndian.AppendUint32([]byte{'P', 'F', 'L', m.version}, uint32(len(header)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(signature)))
	return append(append(append(b, header...), signature...), m.body...)
}

// random returns an identity that nobody has.
func random() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// impostor is a server that lies. It has all permissions on the NATS server, hears everything, and has the key of the
// real server.
type impostor struct {
	*server
	nc          *nats.Conn
	key, client crypto.Signer // of the server, and of client 1

	mu   sync.Mutex
	last parsed // newest instruction of the real server to client 0
	raw  [][]byte
}

// openImpostor starts an experiment over a NATS server that permits everything to everybody with a certificate.
func openImpostor(t *testing.T) *impostor {
	t.Helper()
	return impostorOf(openReal(t))
}

// impostorOf is openImpostor for an experiment that runs already.
func impostorOf(s *server) *impostor {
	s.t.Helper()
	s.ownNATS(fmt.Sprintf("listen: %q\nmax_payload: 2MB\ntls {cert_file: %q, key_file: %q, ca_file: %q, verify: "+
		"true}\n",
		s.address, s.at("certs", "server.pem"), s.at("certs", "server-key.pem"), s.at("certs", "ca.pem")))
	p := &impostor{server: s}
	p.nc, _ = s.intruder("server")
	keyOf := func(name string) crypto.Signer {
		return s.tls(s.at("certs"), name).Certificates[0].PrivateKey.(*ecdsa.PrivateKey)
	}
	p.key, p.client = keyOf("server"), keyOf("client-1")
	return p
}

// lie sends a message to client 0 as an instruction.
func (p *impostor) lie(b []byte) {
	p.nc.PublishMsg(&nats.Msg{Subject: "pf.default.to.0.order", Data: b, Header: nats.Header{"Lie": {"1"}}})
}

// overhears calls heard with every instruction of the real server.
func (p *impostor) overhears(heard func(m parsed, raw []byte)) {
	p.t.Helper()
	_, err := p.nc.Subscribe("pf.default.to.0.order", func(m *nats.Msg) {
		if m.Header.Get("Lie") != "" {
			return
		}
		order, err := parse(m.Data)
		if err != nil {
			p.t.Error(err)
			return
		}
		p.mu.Lock()
		p.last = order
		p.raw = append(p.raw, m.Data)
		p.mu.Unlock()
		if heard != nil {
			heard(order, m.Data)
		}
	})
	if err == nil {
		err = p.nc.Flush()
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// lies are messages in the name of the server that a client must not accept as an instruction, by the text that the
// client logs about them. o is a real instruction. The key of the server signs those that nobody else signs.
func (p *impostor) lies(o parsed, raw []byte) map[string][]byte {
	o = o.but("try", random()).later(p.t)
	sign := func(m parsed) []byte { return m.signed(p.t, "order", p.key) }
	bent := o
	bent.body = bytes.Clone(o.body)
	bent.body[len(bent.body)-1] ^= 1
	old := o
	old.version--
	end := o.but("kind", "end").with(nil)
	out := map[string][]byte{
		"it belongs to run ":                       sign(o.but("run", random()).identified()),
		"it is for client 1 of 2":                  sign(o.but("client", 1).identified()),
		"it is for client 0 of 7":                  sign(o.but("of", 7).identified()),
		"round 1001 of 6":                          sign(o.but("round", 1000).identified()),
		"round -4 for client 0":                    sign(o.but("round", -5).identified()), // told from 1
		"unknown kind of instruction \"format\"":   sign(o.but("kind", "format").identified()),
		"statistic \"a\\nb\"":                      sign(o.but("statistic", "a\nb").identified()),
		"\"../../x\" is not an identity":           sign(o.but("safe", "../../x")),
		"has no record of":                         sign(o.but("accepted", random())),
		"object \"../../../etc/passwd\", checksum": sign(o.but("object", "../../../etc/passwd")),
		"does not match its identity":              sign(o.but("id", random())),
		"unknown field":                            sign(o.but("also", 1)),
		"cannot unmarshal":                         sign(o.but("round", "one")),
		"invalid number of steps -1":               sign(o.but("steps", -1).identified()),
		"the tensors are damaged":                  sign(bent),
		"use the same release":                     old.signed(p.t, "order", p.key),
		"this is not a message of promptfed":       []byte("{}"),
		"the signature does not belong to":         end.identified().signed(p.t, "order", p.client),
		"the signature does not belong to (none)":  end.identified().signed(p.t, "order", nil),
		"the signature does not belong to (kind)":  o.signed(p.t, "verdict", p.key),
		"the header states":                        raw[:40],
		"the header states (long)": append([]byte{'P', 'F', 'L', raw[3], 255, 255, 255, 127},
			raw[8:]...),
		"it belongs to run (end)":                  sign(end.but("run", random()).identified()),
		"it is for client 1 of 2 (end)":            sign(end.but("client", 1).identified()),
		"a newer one came before it (first order)": p.raw[0],
	}
	if o.header["safe"] != nil {
		out["it lacks uploads of this client"] = sign(o.but("safe", nil, "accepted", nil))
	}
	return out
}

// large is an instruction with more tensors than a client accepts.
func (p *impostor) large(o parsed) []byte {
	return o.but("size", 1<<30, "object", o.header["sum"].(string)[:32], "try", random()).later(p.t).
		identified().signed(p.t, "order", p.key)
}

// later is an instruction after all others of the test.
func (m parsed) later(t *testing.T) parsed {
	t.Helper()
	seq, err := m.header["seq"].(json.Number).Int64()
	if err != nil {
		t.Error(err)
	}
	return m.but("seq", seq+int64(1e12))
}

// A client drops and counts, with the reason, false instructions beside the real ones, signed with the key of the
// server, the key of a client or none. They do not change what the client learns. The test sends each one after the log
// has the one before, while the other client is stopped, so that the round waits.
func TestLyingServer(t *testing.T) {
	t.Parallel()
	p := openImpostor(t)
	clients := []*process{p.joinReal(0), p.joinReal(1)} // they wait for the server
	dropped := func(c *process) []string {
		return slices.DeleteFunc(strings.Split(strings.ReplaceAll(c.log.String(), `\"`, `"`), "\n"),
			func(line string) bool { return !strings.Contains(line, "an instruction is dropped") })
	}
	told := 0
	p.overhears(func(m parsed, raw []byte) {
		if told > 0 || m.header["safe"] == nil { // the client has nothing to forget yet
			return
		}
		clients[1].cmd.Process.Signal(syscall.SIGSTOP)
		defer clients[1].cmd.Process.Signal(syscall.SIGCONT)
		p.lie(p.large(m)) // the client answers with the flag that it would need
		clients[0].says("too large: 1073741824 bytes; at most 67108864 are taken (join --largest)")
		for say, b := range p.lies(m, raw) {
			told++
			short, _, _ := strings.Cut(say, " (")
			short = strings.ReplaceAll(short, `\n`, `\\n`)
			before := len(dropped(clients[0]))
			p.lie(b)
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				if lines := dropped(clients[0]); len(lines) == before+1 && strings.Contains(lines[before], short) {
					break
				} else if len(lines) > before || time.Now().After(end) {
					t.Errorf("client 0 does not say %q: %q", short, lines[before:])
					break
				}
			}
		}
	})
	p.serveReal()
	p.ended()
	for _, c := range clients {
		c.ended()
	}
	p.sameAsRun()
	if n := len(dropped(clients[0])); told < 26 || n != told {
		t.Errorf("%d of %d lies were counted", n, told)
	}
	if n := len(dropped(clients[1])); n > 0 {
		t.Errorf("client 1 dropped %d orders", n)
	}
}

// While the server of a client is dead, the holder of its key can keep the client busy and do nothing else: with
// tensors whose pieces do not fit or do not come, names that are paths, invalid numbers, and storms of instructions.
// When the real server is back, the client continues from its state.
func TestLyingServerAlone(t *testing.T) {
	t.Parallel()
	p := openImpostor(t)
	p.overhears(nil)
	p.serveReal()
	clients := []*process{p.joinReal(0), p.joinReal(1)}
	for len(p.records()) < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	p.kill()
	var pieces func(ask struct {
		Sum   string
		Piece int
	}) []byte
	var asked int
	errors := make(chan string, 64)
	var mu sync.Mutex
	answer := func(m *nats.Msg) {
		switch verb := strings.Split(m.Subject, ".")[4]; verb {
		case "part":
			var ask struct {
				Sum   string
				Piece int
			}
			json.Unmarshal(m.Data, &ask)
			mu.Lock()
			b := pieces(ask)
			asked++
			mu.Unlock()
			if b != nil {
				m.Respond(b)
			}
		case "reply":
			reply, err := parse(m.Data)
			if err != nil {
				t.Error(err)
				return
			}
			text, _ := reply.header["error"].(string)
			receipt := parsed{version: reply.version, header: map[string]any{"id": reply.header["id"],
				"try": reply.header["try"], "state": "taken"}}
			m.Respond(receipt.signed(t, "receipt", p.key))
			select {
			case errors <- text:
			default:
			}
		}
	}
	if _, err := p.nc.Subscribe("pf.default.from.0.*", answer); err != nil {
		t.Fatal(err)
	}
	p.nc.Flush()
	p.mu.Lock()
	order := p.last
	p.mu.Unlock()
	give := func(m parsed) {
		p.lie(m.but("seq", time.Now().UnixNano(), "try", random()).identified().signed(t, "order", p.key))
	}
	says := func(what, text string) {
		t.Helper()
		for end := time.After(10 * time.Second); ; {
			select {
			case got := <-errors:
				if strings.Contains(got, text) {
					return
				}
			case <-end:
				t.Errorf("%s: client 0 does not answer %q", what, text)
				return
			}
		}
	}
	encode := func(m tensor.Map) []byte {
		b, err := message.EncodeTensors(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	give(order.with(encode(tensor.Map{"../../x": tensor.Scalar(1)})))
	says("a path for a name", "a name has letters")
	give(order.with([]byte("\xff\xff\xff\xff\xff\xff\xff\x7f{}")))
	says("a bomb", "")
	nan := tensor.New(4, 512)
	nan.Data[7] = float32(math.NaN())
	give(order.with(encode(tensor.Map{"shared/global": nan})))
	says("NaN", "NaN")
	const size = 1 << 20
	large := func() parsed { // each one differs, because a client repeats its answer to the same one
		sum := random() + random()
		m := order.but("size", size, "sum", sum, "object", sum[:32])
		m.body = nil
		return m
	}
	framed := func(b []byte, crc uint32) []byte {
		return append(binary.LittleEndian.AppendUint32([]byte{'p'}, crc), b...)
	}
	for what, c := range map[string]struct {
		say    string
		pieces func(n int) []byte
	}{
		"pieces that are too long": {"arrived damaged", func(int) []byte {
			b := make([]byte, 1<<20)
			return framed(b, crc32.ChecksumIEEE(b))
		}},
		"pieces with another checksum": {"arrived damaged",
			func(int) []byte { return framed(make([]byte, 64<<10), 1) }},
		"pieces of other tensors": {"damaged", func(int) []byte {
			b := make([]byte, 64<<10)
			return framed(b, crc32.ChecksumIEEE(b))
		}},
		"answers that are nothing at all": {"arrived damaged", func(int) []byte { return []byte{'z'} }},
	} {
		mu.Lock()
		asked = 0
		pieces = func(ask struct {
			Sum   string
			Piece int
		}) []byte {
			return c.pieces(ask.Piece)
		}
		mu.Unlock()
		give(large())
		says(what, c.say)
		mu.Lock()
		if asked > 200 { // three times all pieces, or ten times each piece in transit
			t.Errorf("%s: client 0 asks %d times", what, asked)
		}
		mu.Unlock()
	}
	mu.Lock()
	pieces = func(struct {
		Sum   string
		Piece int
	}) []byte {
		return nil
	}
	mu.Unlock()
	give(large()) // never comes
	for i := range 3000 {
		give(order.but("steps", i+1))
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && !strings.Contains(
		clients[0].log.String(), "it lacks uploads of this client"); time.Sleep(50 * time.Millisecond) {
		give(order.but("safe", nil, "accepted", nil)) // the storm loses some
	}
	p.nc.Close()
	p.serveReal("--resume")
	p.ended()
	for _, c := range clients {
		c.ended()
	}
	p.sameAsRun()
	if exists(p.at("x")) || !strings.Contains(clients[0].log.String(), "it lacks uploads of this client") {
		t.Error("a path was followed, or the client does not say that it was to forget all")
	}
}

// A client that gets an invitation with a YAML bomb, no YAML, unknown keys or local paths ends with one line, before it
// opens anything.
func TestHostileInvitation(t *testing.T) {
	t.Parallel()
	s := &server{t: t, dir: t.TempDir(), address: proctest.FreeAddress(t, "127.0.0.1")}
	call(t, "certs", s.at("certs"), "--clients", "2")
	p := impostorOf(s)
	public, err := x509.MarshalPKIXPublicKey(p.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	proof := map[string]any{"key": public, "chain": s.tls(s.at("certs"), "server").Certificates[0].Certificate}
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9),
			", "))
	}
	var mu sync.Mutex
	var text string
	_, err = p.nc.Subscribe("pf.default.from.0.hello", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		hello := parsed{version: protocol.Version, header: map[string]any{"version": protocol.Version, "run": random(),
			"question": protocol.Question(m.Subject, m.Data), "clients": 2, "limit": 1000, "largest": 1000000,
			"config": []byte(text), "proof": proof}}
		m.Respond(hello.signed(t, "hello", p.key))
	})
	if err == nil {
		err = p.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	for config, say := range map[string]string{
		bomb:                            "excessive aliasing",
		strings.Repeat("[", 500000):     "exceeded max depth",
		"backbones: [../../etc/passwd]": "which is a path",
		"method: [":                     "the server's configuration: ",
		"nothing: 1":                    "the server's configuration: ",
	} {
		mu.Lock()
		text = config
		mu.Unlock()
		ctx, cancel := contextFor(30 * time.Second)
		out, err := exec.CommandContext(ctx, programs.Promptfed, "join", "tls://"+s.address, "--client", "0", "--tls",
			s.at("certs"), "--set", "data.set=synthetic", "--state", s.at("state")).CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), say) || len(out) > 2000 {
			t.Errorf("%q: %v, %.2000s", say, err, out)
		}
	}
}
