package secure

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/privacy/secagg"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// liar is a server of five clients that sends arbitrary messages to guards with state in folders.
type liar struct {
	t      testing.TB
	l      *Aggregation
	who    *secagg.LocalIdentity
	dirs   []string
	guards []*Guard
	shared tensor.Map
}

func newLiar(t testing.TB) *liar { return newLiarOf(t, 0.6, 0) }

// newLiarOf is newLiar with a threshold and a minimum number of clients in groups.
func newLiarOf(t testing.TB, threshold float64, least int) *liar {
	t.Helper()
	l, err := New(Config{Threshold: threshold, Least: least, Bits: 24, Clip: 1, ExtraClip: 1, Examples: 1}, Uniform,
		nil, 5, 5)
	goldentest.NoError(t, err)
	s := &liar{t: t, l: l, who: &secagg.LocalIdentity{}, shared: tensor.Map{"a": tensor.Of([]float32{1, 2}, 2)}}
	for k := range 5 {
		s.dirs, s.guards = append(s.dirs, t.TempDir()), append(s.guards, nil)
		s.restart(k)
	}
	return s
}

func (s *liar) place(k int) Side {
	return Side{Run: "r", Agreed: "terms", Dir: s.dirs[k], Who: s.who}
}

// restart restarts a client's process.
func (s *liar) restart(k int) {
	s.t.Helper()
	var err error
	s.guards[k], err = s.l.GuardAt(k, s.place(k))
	goldentest.NoError(s.t, err)
}

func (s *liar) terms(round int) secagg.Params {
	t := secagg.Params{Round: round, Clients: 5, Threshold: 3, Length: s.l.length(s.shared),
		Ring: s.l.ring, Context: s.place(0).context()}
	rand.Read(t.Session[:])
	return t
}

// ask sends an instruction to one client and returns its answer.
func (s *liar) ask(k, round int, step string, down tensor.Map, name string) ([]byte, error) {
	m, _, err := s.guards[k].Answer(k, message.Instruction{Kind: message.Compute, Statistic: step, Round: round,
		Total: 5, PerClient: map[int]tensor.Map{k: down}})
	if err != nil {
		return nil, err
	}
	return unpack(m, name)
}

// must returns the answer of a client without a reason to refuse; after a restart it must be the same.
func (s *liar) must(b []byte, err error) []byte {
	s.t.Helper()
	goldentest.NoError(s.t, err)
	return b
}

// roster lets clients advertise in a session.
func (s *liar) roster(t secagg.Params, clients ...int) secagg.Roster {
	s.t.Helper()
	r := secagg.Roster{}
	for _, k := range clients {
		b := s.must(s.ask(k, t.Round, keysStep, pack(sessionName, encodeParams(t)), keysName))
		j, err := secagg.DecodeJoining(b)
		goldentest.NoError(s.t, err)
		r[k] = j.Advert
	}
	return r
}

// inbox returns the shares for a client.
func inbox(k int, sent map[int]secagg.EncryptedShares) tensor.Map {
	in := secagg.EncryptedShares{}
	for from, e := range sent {
		if from != k {
			in[from] = e[k]
		}
	}
	return pack(inboxName, in.Encode())
}

// check lets a client check its shares.
func (s *liar) check(k, round int, sent map[int]secagg.EncryptedShares) ([]byte, error) {
	return s.ask(k, round, checkStep, inbox(k, sent), complaintsName)
}

// train returns an instruction to train with the clients that may upload.
func (s *liar) train(k, round int, senders ...int) message.Instruction {
	return message.Instruction{Kind: message.Train, Round: round, Total: 5, Shared: s.shared,
		PerClient: map[int]tensor.Map{k: pack(sendersName, secagg.EncodeClients(senders))}}
}

// upload lets a client train; each time its parameters change by 0.1.
func (s *liar) upload(k int, o message.Instruction) ([]byte, error) {
	moved := o.Shared.Clone()
	moved["a"].Data[0] += 0.1
	up := method.Upload{Client: k, N: 1, Shared: moved}
	if err := s.guards[k].Protect(k, o, &up, &message.Stats{}); err != nil {
		return nil, err
	}
	return unpack(up.Extra, maskedName)
}

func (s *liar) refuses(err error, words string) {
	s.t.Helper()
	goldentest.WantError(s.t, err, words)
}

// A request for anything but one session and one vector of a round, of enough clients, is refused at each step, before
// and after a restart of the client; an answered request may be repeated. Each refusal is counted and listed.
func TestGuardsHoldTheServerToItsWord(t *testing.T) {
	s := newLiar(t)
	all := []int{0, 1, 2, 3, 4}
	first := s.terms(4)
	session := func(t secagg.Params) tensor.Map { return pack(sessionName, encodeParams(t)) }
	low, high := first, first
	low.Threshold, high.Threshold = 2, 5
	_, err := s.ask(0, 4, keysStep, session(low), keysName)
	s.refuses(err, "the server's threshold is 2; this client's configuration requires sums of 3 of 5")
	_, err = s.ask(0, 4, keysStep, session(high), keysName)
	s.refuses(err, "the server's threshold is 5")
	_, _, err = s.guards[0].Answer(0, message.Instruction{Kind: message.Compute, Statistic: keysStep, Round: 4,
		Total: 2, PerClient: map[int]tensor.Map{0: session(first)}})
	s.refuses(err, "the server states 2 clients; this client's configuration has 5")

	r := s.roster(first, all...)
	refused := 3
	twice := func(words string, ask func() error) { // now and after a restart
		t.Helper()
		for range 2 {
			s.refuses(ask(), words)
			s.restart(0)
			refused++
		}
	}
	again := func(before []byte, ask func() ([]byte, error)) {
		t.Helper()
		if b := s.must(ask()); !bytes.Equal(b, before) {
			t.Error("other bytes for the same words")
		}
		s.restart(0)
		if b := s.must(ask()); !bytes.Equal(b, before) {
			t.Error("other bytes for the same words in another process")
		}
	}
	other := func(round int) func() error {
		return func() error {
			_, err := s.ask(0, round, keysStep, session(s.terms(round)), keysName)
			return err
		}
	}
	twice("a second session of the same round", other(4))
	twice("rounds do not go back", other(3))
	keys := s.must(s.ask(0, 4, keysStep, session(first), keysName))
	again(keys, func() ([]byte, error) { return s.ask(0, 4, keysStep, session(first), keysName) })

	share := func(r secagg.Roster) ([]byte, error) {
		return s.ask(0, 4, sharesStep, pack(rosterName, r.Encode()), sharesName)
	}
	without := func(r secagg.Roster, gone ...int) secagg.Roster {
		out := secagg.Roster{}
		for k, a := range r {
			if !slices.Contains(gone, k) {
				out[k] = a
			}
		}
		return out
	}
	twice("the roster has 2 clients; 3 must stay", func() error { _, err := share(without(r, 2, 3, 4)); return err })
	sybils := without(r, 2, 3, 4) // clients beyond the run's number
	sybils[5], sybils[6] = secagg.Advert{Keys: secagg.Keys{Pair: [32]byte{1}, Envelope: [32]byte{2}}}, r[4]
	twice("the roster has client 5, but there are only 5", func() error { _, err := share(sybils); return err })
	sent := map[int]secagg.EncryptedShares{}
	for _, k := range all {
		b := s.must(s.ask(k, 4, sharesStep, pack(rosterName, r.Encode()), sharesName))
		sent[k], err = secagg.DecodeEncryptedShares(b)
		goldentest.NoError(t, err)
	}
	again(sent[0].Encode(), func() ([]byte, error) { return share(r) })
	twice("accepted another roster", func() error { _, err := share(without(r, 4)); return err })

	checked := s.must(s.check(0, 4, sent))
	again(checked, func() ([]byte, error) { return s.check(0, 4, sent) })
	twice("got other shares", func() error {
		_, err := s.check(0, 4, map[int]secagg.EncryptedShares{1: sent[1]})
		return err
	})
	o := s.train(0, 4, all...)
	own := o
	own.PerClient = map[int]tensor.Map{0: pack(sendersName, nil)}
	for name, x := range o.PerClient[0] {
		own.PerClient[0][name] = x
	}
	own.PerClient[0]["mean"] = tensor.New(1)
	twice("mean for this client only", func() error { _, err := s.upload(0, own); return err })
	twice("2 clients may upload; 3 must stay", func() error { _, err := s.upload(0, s.train(0, 4, 0, 1)); return err })
	masked := s.must(s.upload(0, o))
	again(masked, func() ([]byte, error) { return s.upload(0, o) })
	twice("masked for other clients", func() error { _, err := s.upload(0, s.train(0, 4, 0, 1, 2, 3)); return err })
	moved := o
	moved.Shared = tensor.Map{"a": tensor.Of([]float32{1, 3}, 2)}
	twice("made from other parameters", func() error { _, err := s.upload(0, moved); return err })
	back := o
	back.Round = 3
	twice("the session belongs to round 5", func() error { _, err := s.upload(0, back); return err })
	twice("a second session of the same round", other(4))

	for _, k := range all[1:] {
		s.must(s.check(k, 4, sent))
		s.must(s.upload(k, s.train(k, 4, all...)))
	}
	agree := func(q secagg.UnmaskRequest) ([]byte, error) {
		return s.ask(0, 4, agreeStep, pack(questionName, q.Encode()), agreedName)
	}
	twice("2 clients stayed; it must be 3", func() error {
		_, err := agree(secagg.UnmaskRequest{Survivors: []int{0, 1}, Dropped: []int{2, 3, 4}})
		return err
	})
	q := secagg.UnmaskRequest{Survivors: all}
	signed := secagg.Signatures{}
	for _, k := range all {
		signed[k] = s.must(s.ask(k, 4, agreeStep, pack(questionName, q.Encode()), agreedName))
	}
	again(signed[0], func() ([]byte, error) { return agree(q) })
	twice("agreed to another question", func() error {
		_, err := agree(secagg.UnmaskRequest{Survivors: []int{0, 1, 2}, Dropped: []int{3, 4}})
		return err
	})
	reveal := func(signed secagg.Signatures) ([]byte, error) {
		return s.ask(0, 4, revealStep, pack(signedName, signed.Encode()), revealName)
	}
	twice("2 clients signed this client's view", func() error {
		_, err := reveal(secagg.Signatures{1: signed[1]})
		return err
	})
	again(s.must(reveal(signed)), func() ([]byte, error) { return reveal(signed) })
	twice("a second session of the same round", other(4))
	if _, err := s.ask(0, 9, keysStep, session(s.terms(9)), keysName); err != nil {
		t.Errorf("a later round: %v", err)
	}

	got := s.guards[0].Summary(0)
	if got.Refused != refused || got.Sums != 1 || got.Fewest != 5 || got.Most != 5 || len(got.Keys) != 5 ||
		!bytes.Equal(got.Keys[1], s.guards[1].Summary(1).Keys[1]) || // what the other one prints of itself
		len(got.Keys[1]) != 16 { // 2^64 attempts find two alike
		t.Errorf("%+v; %d were refused", got, refused)
	}
	list, err := os.ReadFile(filepath.Join(s.dirs[0], LogFile))
	if err != nil || bytes.Count(list, []byte("\n")) != refused+1 ||
		bytes.Count(list, []byte(`"refused":`)) != refused {
		t.Errorf("%v\n%s", err, list)
	}
	for _, name := range []string{RecordFile, KeysFile, LogFile} {
		if f, err := os.Stat(filepath.Join(s.dirs[0], name)); err != nil || f.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

// A client keeps its run, its number and the number of clients at its first session.
func TestFolderKeepsItsTerms(t *testing.T) {
	s := newLiar(t)
	s.roster(s.terms(0), 0)
	for words, change := range map[string]func(l *Aggregation, p *Side, k *int){
		"the server now has sums of 2 clients or more, with 2 clients in a round": func(l *Aggregation, _ *Side,
			_ *int) {
			l.clients, l.round = 2, 2
		},
		"the server now has sums of 2 clients or more, with 3 clients in a round": func(l *Aggregation, _ *Side,
			_ *int) {
			l.round = 3
		},
		"of another run":              func(_ *Aggregation, p *Side, _ *int) { p.Run = "other" },
		"belongs to another client, ": func(_ *Aggregation, _ *Side, k *int) { *k = 1 },
	} {
		l, p, k := *s.l, s.place(0), 0
		change(&l, &p, &k)
		_, err := l.GuardAt(k, p)
		s.refuses(err, words)
	}
}

// A second process with a client's folder gets no second session. A process answers for its own client alone.
func TestOneProcess(t *testing.T) {
	s := newLiar(t)
	s.roster(s.terms(0), 0)
	second, err := s.l.GuardAt(0, s.place(0))
	goldentest.NoError(t, err)
	first := s.guards[0]
	s.roster(s.terms(1), 0)
	s.guards[0] = second
	_, err = s.ask(0, 1, keysStep, pack(sessionName, encodeParams(s.terms(1))), keysName)
	s.refuses(err, "another process wrote secagg.json")
	s.guards[0] = first
	s.roster(s.terms(2), 0)
	_, _, err = first.Answer(1, message.Instruction{Statistic: keysStep})
	s.refuses(err, "client 1 is not in this process")
}

// Two clients with different terms, for example different learning rates from the server, refuse each other's keys.
func TestOtherTerms(t *testing.T) {
	s := newLiar(t)
	p := s.place(1)
	p.Agreed = "lr 0"
	var err error
	s.guards[1], err = s.l.GuardAt(1, p)
	goldentest.NoError(t, err)
	r := s.roster(s.terms(0), 0, 1, 2)
	_, err = s.ask(0, 0, sharesStep, pack(rosterName, r.Encode()), sharesName)
	s.refuses(err, "the keys of client 1: the signature is not by its key")
}

// Files of another version are refused in one line that names the file, by client and server.
func TestOldFiles(t *testing.T) {
	s := newLiar(t)
	filetest.Write(t, filepath.Join(s.dirs[0], RecordFile), `{"run":"r","client":0}`)
	words := filepath.Join(s.dirs[0], RecordFile) + " has version 0, this program reads version 2"
	_, err := s.l.GuardAt(0, s.place(0))
	s.refuses(err, words)
	_, err = s.l.WrapAt(s.place(0))
	s.refuses(err, words)
}

// A restarted server continues the interrupted round in its session. Once a dealer has lied, it tests commitments also
// there.
func TestStrictAfterRestart(t *testing.T) {
	s := newLiar(t)
	p := s.place(0)
	o := message.Instruction{Kind: message.Train, Clients: []int{0, 1, 2, 3, 4}, Total: 5, Shared: s.shared}
	var first secagg.Session
	for restarts := range 2 {
		wrap, err := s.l.WrapAt(p)
		goldentest.NoError(t, err)
		r := &round{cohort: wrap(nil).(*cohort), order: o}
		if restarts == 0 {
			r.saved.Run, r.saved.Strict = p.Run, true
		}
		if err := r.open(); err != nil || len(r.sessions) != 1 || !r.sessions[0].server.Strict {
			t.Fatalf("after %d restarts: %+v, %v", restarts, r.sessions, err)
		}
		if session := r.sessions[0].terms.Session; restarts == 0 {
			first = session
		} else if session != first {
			t.Error("the restarted server has another session")
		}
	}
}

// Recording a round again, as after a restart, changes nothing: invalid sums in rounds 3 and 5 cause groups in rounds 4
// to 10, and one in round 3 alone in rounds 4 to 8.
func TestInvalidSums(t *testing.T) {
	for last, end := range map[int]int{5: 10, 3: 8} {
		var v invalidSums
		for round := range 12 {
			o := message.Instruction{Round: round, Clients: []int{0, 1, 2, 3}}
			number := round + 1
			if got, want := v.grouped(round), number >= 4 && number <= end; got != want {
				t.Errorf("round %d has groups: %v", number, got)
			}
			invalid, valid := number == 3 || number == last, []int{0, 1, 2, 3}
			if number == 3 {
				valid = nil
			} else if invalid {
				valid = []int{0, 1}
			}
			first := v.note(o, valid, invalid)
			once := v
			if again := v.note(o, valid, invalid); again != first || v.First != once.First || v.Last != once.Last ||
				!slices.Equal(v.Suspects, once.Suspects) {
				t.Errorf("round %d: %+v, then %+v", number, once, v)
			}
		}
		if v.First != 0 {
			t.Errorf("%+v is remembered", v)
		}
	}
}

// A client with groups in its configuration takes part in sums as small as that allows and no smaller, with the
// configured share of their roster. Without groups it takes part in no sum over a part of the clients.
func TestGroupsOfAServer(t *testing.T) {
	begin := func(s *liar, threshold, round int, clients ...int) (secagg.Roster, error) {
		terms, r := s.terms(round), secagg.Roster{}
		terms.Threshold = threshold
		for _, k := range clients {
			b, err := s.ask(k, round, keysStep, pack(sessionName, encodeParams(terms)), keysName)
			if err != nil {
				return nil, err
			}
			j, err := secagg.DecodeJoining(b)
			if err != nil {
				return nil, err
			}
			r[k] = j.Advert
		}
		return r, nil
	}
	s := newLiarOf(t, 1, 0)
	_, err := begin(s, 2, 0, 0, 1)
	s.refuses(err, "the server's threshold is 2; this client's configuration requires sums of 5 of 5")
	s = newLiarOf(t, 1, 2)
	_, err = begin(s, 1, 0, 0, 1)
	s.refuses(err, "the server's threshold is 1; this client's configuration requires sums of 2 of 5")
	for i, c := range []struct {
		threshold int
		clients   []int
		refused   string
	}{{2, []int{0, 1}, ""}, {3, []int{0, 1, 2}, ""}, {5, []int{0, 1, 2, 3, 4}, ""},
		{2, []int{0, 1, 2}, "the roster has 3 clients, and the session's threshold is 2; this client's " +
			"configuration requires 3"}} {
		r, err := begin(s, c.threshold, i, c.clients...)
		goldentest.NoError(t, err)
		if _, err = s.ask(0, i, sharesStep, pack(rosterName, r.Encode()), sharesName); c.refused != "" {
			s.refuses(err, c.refused)
		} else if err != nil {
			t.Error(err)
		}
	}
	if f := s.l.Guarantees(); f.Least != 2 {
		t.Errorf("%+v", f)
	}
	for least, words := range map[int]string{3: "cannot be split into groups of 3", 2: ""} {
		_, err := New(Config{Threshold: 1, Least: least, Bits: 24, Clip: 1, ExtraClip: 1, Examples: 1}, Uniform, nil,
			5, 5)
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%d: %v", least, err)
		}
	}
}

// FuzzGuard checks that any bytes in any step are refused in one line, or get the earlier answer, and that the client
// still answers correct messages.
func FuzzGuard(f *testing.F) {
	s := newLiar(f)
	for k := range s.guards {
		s.guards[k] = s.l.Guard()
		s.guards[k].side.Who = s.who
	}
	for k, g := range s.guards {
		g.side.Run, g.side.Agreed = s.place(k).Run, s.place(k).Agreed
	}
	t := s.terms(0)
	r := s.roster(t, 0, 1, 2)
	sent := map[int]secagg.EncryptedShares{}
	for k := range 3 {
		b := s.must(s.ask(k, 0, sharesStep, pack(rosterName, r.Encode()), sharesName))
		sent[k], _ = secagg.DecodeEncryptedShares(b)
	}
	shares, _ := unpack(inbox(0, sent), inboxName)
	s.must(s.check(0, 0, sent))
	o := s.train(0, 0, 0, 1, 2)
	masked := s.must(s.upload(0, o))
	q := secagg.UnmaskRequest{Survivors: []int{0, 1, 2}}
	signed := s.must(s.ask(0, 0, agreeStep, pack(questionName, q.Encode()), agreedName))
	steps := []struct{ step, down, up string }{{keysStep, sessionName, keysName}, {sharesStep, rosterName, sharesName},
		{checkStep, inboxName, complaintsName}, {agreeStep, questionName, agreedName},
		{revealStep, signedName, revealName}}
	for i, b := range [][]byte{encodeParams(t), r.Encode(), shares, q.Encode(), secagg.Signatures{0: signed}.Encode(),
		secagg.EncodeClients([]int{0, 1, 2}), nil} {
		f.Add(byte(i), b)
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		s.t = t
		if int(which)%(len(steps)+1) == len(steps) {
			bad := o
			bad.PerClient = map[int]tensor.Map{0: pack(sendersName, b)}
			if y, err := s.upload(0, bad); err == nil && !bytes.Equal(y, masked) {
				t.Error("a second vector")
			}
			return
		}
		step := steps[int(which)%len(steps)]
		if _, err := s.ask(0, 0, step.step, pack(step.down, b), step.up); err != nil && strings.Contains(err.Error(),
			"\n") {
			t.Errorf("%v", err)
		}
		if again := s.must(s.ask(0, 0, agreeStep, pack(questionName, q.Encode()), agreedName)); !bytes.Equal(again,
			signed) {
			t.Error("another signature")
		}
	})
}
