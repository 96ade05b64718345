package distributed

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/authority"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/cli"
)

// connect returns the options of a connection of a user, who has the certificate of the same name.
func connect(options cli.QueueOptions, user string) ([]nats.Option, error) {
	token, err := options.Token()
	if err != nil {
		return nil, err
	}

	out := []nats.Option{nats.UserInfo(user, token)}
	if options.Creds != "" {
		if _, err := atomicfile.ReadPrivate(options.Creds); err != nil {
			return nil, fmt.Errorf("--creds: %w", err)
		}
		out[0] = nats.UserCredentials(options.Creds)
	}

	if options.TLS != "" {
		conf, err := authority.ClientTLS(options.TLS, user)
		if err != nil {
			return nil, err
		}
		out = append(out, nats.Secure(conf))
	}

	return out, nil
}
