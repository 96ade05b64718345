package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"promptfed/federation/engine/spec"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/atomicfile"
)

// Folders in Settings.Dir.
const (
	membersDir = "members"
	piecesDir  = "pieces"
)

// agreement is the file of the decision, which exists from the start of the run.
type agreement struct {
	Version int          `json:"version"`
	RunSpec spec.RunSpec `json:"terms"`
}

const (
	agreementFile    = "agreed"
	agreementVersion = 2
)

// prepare makes the server's folder, or restores its content.
func (h *Server) prepare() error {
	dir := h.set.Dir
	if dir == "" { // a server that cannot resume
		var err error
		if dir, err = os.MkdirTemp("", "promptfed-server-"); err != nil {
			return err
		}
		h.set.Dir = dir
		h.stops = append(h.stops, func() { os.RemoveAll(dir) })
	}

	members, pieces := filepath.Join(dir, membersDir), filepath.Join(dir, piecesDir)
	err := os.RemoveAll(pieces)
	if !h.set.Resume {
		err = errors.Join(err, os.RemoveAll(members))
	}

	if err = errors.Join(err, os.MkdirAll(members, 0o700), os.MkdirAll(pieces, 0o700)); err != nil {
		return fmt.Errorf("the server's folder: %w", err)
	}

	if h.identity, err = h.set.Identity.WithKey(dir); err != nil {
		return err
	}

	return h.readMembers()
}

func (h *Server) path(name string) string { return filepath.Join(h.set.Dir, membersDir, name+".json") }

func (h *Server) write(name string, v any) error {
	return atomicfile.WritePrivate(h.path(name), atomicfile.JSON(v, ""))
}

// save writes the file of a client, which then has the client's newest request. Only other writers of this file wait.
func (h *Server) save(client int) error {
	file := &h.callers[client].file
	file.Lock()
	defer file.Unlock()
	m := h.members.client(client)
	request := m.JoinRequest
	request.Participant.Joined = m.joined
	return h.write(certs.UserOf(client), request)
}

// readMembers reads the clients of a resumed run.
func (h *Server) readMembers() error {
	if err := h.readAgreement(); err != nil {
		return err
	}

	for k := range h.callers {
		var stored card
		there, err := atomicfile.ReadJSON(h.path(certs.UserOf(k)), &stored.JoinRequest)
		if err != nil {
			return err
		}

		if !there || !stored.hasRequest() {
			h.restore(k, &stored)
			continue
		}

		if stored.key, err = h.identity.VerifierOf(stored.Proof, certs.UserOf(k)); err != nil {
			h.set.Log.Warn("a client must join again", "client", k, "reason", err)
			stored = card{JoinRequest: wire.JoinRequest{Proof: stored.Proof}} // the key stays known
		}

		h.restore(k, &stored)
	}

	for k, m := range h.members.roster().clients { // what all have said decides about each
		if !m.hasRequest() {
			continue
		}
		c := *m.card
		if err := h.examine(h.members.roster(), &c); err != nil {
			h.set.Log.Warn("what a client said does not match the configuration", "client", k, "reason", err)
			h.members.change(k, (*member).forget)
			if err := h.save(k); err != nil {
				return err
			}
			continue
		}
		h.restore(k, &c)
	}

	return nil
}

// restore sets the request of a client of a resumed run.
func (h *Server) restore(client int, c *card) {
	h.members.change(client, func(m *member) { *m = member{card: c, joined: c.Participant.Joined} })
}

// readAgreement restores the decision of a resumed run.
func (h *Server) readAgreement() error {
	var decision agreement
	path := h.path(agreementFile)
	there, err := atomicfile.ReadJSON(path, &decision)
	if err != nil || !there {
		return err
	}

	if decision.Version != agreementVersion {
		return fmt.Errorf("%s has version %d, this program writes version %d; continue the run with the release that "+
			"began it", path, decision.Version, agreementVersion)
	}

	if h.set.Agreed != nil {
		if err := h.set.Agreed(decision.RunSpec); err != nil {
			return err
		}
	}

	if err := h.set.RunSpec.FixedBy(decision.RunSpec).Mismatch(decision.RunSpec); err != nil {
		return fmt.Errorf("the server's folder does not match what its clients have: %w; choose another --out", err)
	}

	h.members.agree(0, decision.RunSpec, nil, nil)
	return nil
}
