package remote_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/remote"
)

// A run of the older release, with its folders of the server and of the clients, continues to the bytes of an
// uninterrupted run, with its certificates and with its keys.
func TestOlderRuns(t *testing.T) {
	for _, name := range []string{"keys", "certificates"} {
		t.Run(name, func(t *testing.T) {
			e := nettest.Method("fedpha", []string{"scaffold"}, nettest.FedPHA.Options).Experiment(t)
			e.Plan.Rounds = 4
			want, records := simulated(t, e, false)
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
			ctx, cancel := context.WithCancel(nettest.TestContext(t))
			defer cancel()
			left := s.joinAll(ctx, cancel, 4)
			if err := s.serve(ctx, true); err != nil {
				t.Fatal(err)
			}
			left()
			if s.learned() != want || s.records() != records {
				t.Error("other bytes or records than those of an uninterrupted run")
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
