package distributed

import (
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"promptfed/federation/net/authority"
	"promptfed/runtime/atomicfile"
)

// QueueOptions are the options of a connection to the work queue of a cluster.
type QueueOptions struct {
	Access
	Queue string
	creds string
}

// add adds the flags to a command.
func (o *QueueOptions) add(c *cobra.Command) {
	l := c.Flags()
	l.StringVar(&o.Queue, "queue", "default", "name of the work queue on the NATS server; workers must use the same")
	o.Access.add(c, "secret that both sides use", "folder that promptfed certs made")
	l.StringVar(&o.creds, "creds", "", "NATS credentials file")
}

// connect returns the options of a connection of a user, who has the certificate of the same name.
func (o QueueOptions) connect(user string) ([]nats.Option, error) {
	token, err := o.readToken()
	if err != nil {
		return nil, err
	}
	out := []nats.Option{nats.UserInfo(user, token)}
	if o.creds != "" {
		if _, err := atomicfile.ReadPrivate(o.creds); err != nil {
			return nil, fmt.Errorf("--creds: %w", err)
		}
		out[0] = nats.UserCredentials(o.creds)
	}
	if o.TLS != "" {
		conf, err := authority.ClientTLS(o.TLS, user)
		if err != nil {
			return nil, err
		}
		out = append(out, nats.Secure(conf))
	}
	return out, nil
}
