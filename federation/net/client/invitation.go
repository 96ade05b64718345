package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wait"
	"promptfed/federation/net/wire"
)

// Invitation is the server's description of a run for a client that wants to join.
type Invitation struct {
	Run     string // identity
	Clients int
	Config  []byte
	Classes []string // of the experiment; none before they are decided
	// InsecureDP means that the noise of differential privacy comes from the run's seed.
	InsecureDP bool
	Client     int
	Key        []byte // public key of the server, PKIX

	limit   int // largest size of tensors inside a message, in bytes
	largest int // largest size of an instruction's tensors that the client accepts, in bytes
	link    *Link
}

// FetchInvitation waits for the server and requests the invitation of a client, which accepts at most largest bytes of
// the invitation and of an instruction's tensors.
func FetchInvitation(ctx context.Context, link *Link, largest int) (*Invitation, error) {
	if err := link.open(largest + wire.MaxControl); err != nil {
		return nil, err
	}

	client, ok := certs.ClientOf(link.Name)
	if !ok {
		return nil, fmt.Errorf("%q is not a client: clients are client-0 to client-%d", link.Name, certs.MaxClients-1)
	}

	for said := false; ; {
		r, err := link.call.Invite(ctx, &wire.InvitationRequest{Version: wire.Version})
		if err == nil {
			return link.invitation(r, client, largest)
		}

		if final := link.final(err); final != nil {
			return nil, final
		}

		if ctx.Err() != nil {
			return nil, ctx.Err()
		}

		if !said && link.otherProtocols == 0 {
			link.Log.Info("waiting for the server", "url", link.URL, "error", err)
			said = true
		}

		if err := wait.For(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// invitation checks the server's invitation.
func (l *Link) invitation(invitation *wire.Invitation, client, largest int) (*Invitation, error) {
	if invitation.Version != wire.Version {
		return nil, fmt.Errorf("the server uses protocol version %d, this program version %d; use the same release on "+
			"both sides", invitation.Version, wire.Version)
	}

	if err := checkLarge(len(invitation.Config), largest); err != nil {
		return nil, fmt.Errorf("the server's invitation: %w", err)
	}

	if !wire.ID.MatchString(invitation.Run) || invitation.InlineLimit < 1 || client >= int(invitation.Clients) ||
		invitation.Clients > certs.MaxClients {
		return nil, errors.New("the server's invitation is invalid")
	}

	return &Invitation{Run: invitation.Run, Clients: int(invitation.Clients), Config: invitation.Config,
		Classes: invitation.Classes, InsecureDP: invitation.InsecureDp, Client: client, Key: l.server.Load().Proof.Key,
		limit: int(invitation.InlineLimit), largest: largest, link: l}, nil
}

func checkLarge(size, largest int) error {
	if size > largest {
		return fmt.Errorf("%w: %d bytes; at most %d are taken (join --largest)", ErrLarge, size, largest)
	}
	return nil
}

// Server describes whose instructions a client follows: those of the holder of a certificate, or of a remembered key.
func (i *Invitation) Server() string {
	if i.link.Identity.Certified() {
		return fmt.Sprintf("the holder of the certificate %q", certs.ServerName)
	}
	return fmt.Sprintf("the holder of key %.16s, which no certificate confirms", wire.Checksum(i.Key))
}

// Signatures returns the signatures of the client for other clients.
func (i *Invitation) Signatures(dir string) (*certs.Signatures, error) {
	return i.link.Identity.Signatures(dir)
}
