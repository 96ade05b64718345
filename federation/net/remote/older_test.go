package remote_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/remote"
	"promptfed/runtime/busytest"
)

// A run of the older release, with its folders of the server and of the clients, continues to what an uninterrupted run
// learns, with its certificates and with its keys. The older release rounded its two rounds in another way.
func TestOlderRuns(t *testing.T) {
	for _, name := range []string{"keys", "certificates"} {
		t.Run(name, func(t *testing.T) {
			e := nettest.Method("fedpha", []string{"scaffold"}, nettest.FedPHA.Options).Experiment(t)
			e.Plan.Rounds = 4
			want, err := engine.Run(t.Context(), e, engine.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			s := newSite(t, e)
			copyPrivate(t, filepath.Join("testdata/older", name), s.dir)
			var client struct{ Run string }
			text, err := os.ReadFile(filepath.Join(s.state(0), "client.json"))
			if err == nil {
				err = json.Unmarshal(text, &client)
			}
			if err != nil {
				t.Fatal(err)
			}
			s.id, s.set.ID = client.Run, client.Run
			if name == "certificates" {
				identity := func(name string) certs.Identity {
					who, err := authority.Identity(filepath.Join(s.dir, "certs"), name)
					if err != nil {
						t.Error(err)
					}
					return who
				}
				s.set.Identity = identity(certs.ServerName)
				s.who = func(client int) certs.Identity { return identity(certs.UserOf(client)) }
			}
			s.part = func(_ int, p remote.LocalExecutor) remote.Executor { return lastRounds{p, t} }
			ctx, cancel := context.WithCancel(busytest.Context(t))
			defer cancel()
			left := s.joinAll(ctx, cancel, 4)
			if err := s.serve(ctx, true); err != nil {
				t.Fatal(err)
			}
			left()
			got := s.tensors()
			for name, w := range want.Prompts {
				g := got[name]
				if g == nil || !g.SameShape(w) {
					t.Errorf("%s is %v, want %v", name, g, w)
					continue
				}
				g.Axpy(-1, w)
				if d := g.MaxAbs(); !(d <= 1e-6*max(1, w.MaxAbs())) {
					t.Errorf("%s differs by %g from that of an uninterrupted run", name, d)
				}
			}
			records, err := record.Records(s.dir)
			if err != nil || len(got) != len(want.Prompts) || len(records) != len(want.Records) {
				t.Fatalf("%d tensors of %d, %d records of %d, %v", len(got), len(want.Prompts), len(records),
					len(want.Records), err)
			}
			for i, r := range records {
				w := want.Records[i]
				if !slices.Equal(r.Clients, w.Clients) || !(math.Abs(r.Loss-w.Loss) <= 1e-6) ||
					!reflect.DeepEqual(r.Personal, w.Personal) {
					t.Errorf("round %d: %+v, want %+v", i+1, r, w)
				}
			}
		})
	}
}

// lastRounds is a client that gets instructions of the last two rounds only.
type lastRounds struct {
	remote.LocalExecutor
	t *testing.T
}

func (l lastRounds) Execute(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	if o.Round < 2 {
		l.t.Errorf("round %d begins again", o.Round+1)
	}
	return l.LocalExecutor.Execute(ctx, o, s)
}

// copyPrivate copies a folder to another one, with the modes that a run gives its folders and files.
func copyPrivate(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rest), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rest), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
