package workers_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/natsserver"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/workers"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// A worker with a certificate that cannot be right ends at once with what to do, although it waits for servers. So does
// one with an address of another kind. One whose server does not answer says that it waits.
func TestWrongCertificates(t *testing.T) {
	ca, log, ctx := nettest.NewAuthority(t), &nettest.Logs{}, busytest.Context(t)
	emb, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", TLS: ca.TLS("server"), Log: log.Logger()})
	goldentest.NoError(t, err)
	defer emb.Close()
	elsewhere, none := ca.TLS("worker"), ca.TLS("worker")
	elsewhere.ServerName, none.Certificates, none.GetClientCertificate = "elsewhere", nil, nil
	for say, options := range map[string]nats.Option{
		"is signed by":       nats.Secure(nettest.NewAuthority(t).TLS("worker")),
		"is for other names": nats.Secure(elsewhere),
		"with --tls DIR":     nats.Secure(none),
	} {
		_, err := workers.Connect(ctx, emb.URL(), "worker", true, log.Logger(), options)
		goldentest.WantError(t, err, say)
	}
	for _, address := range []string{"http://127.0.0.1:1", "nats://"} {
		_, err := workers.Connect(ctx, address, "worker", false, log.Logger())
		goldentest.WantError(t, err, address+" is not the URL of a NATS server")
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	_, err = workers.Connect(stopped, "nats://127.0.0.1:1", "worker", true, log.Logger()) // nobody answers there
	goldentest.WantError(t, err, context.Canceled.Error())
	goldentest.Contains(t, log.String(), "waiting for the NATS server")
}
