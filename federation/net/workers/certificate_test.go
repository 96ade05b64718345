package workers_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/natsserver"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/workers"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// A worker with a certificate that cannot be right ends at once with what to do, although it waits for servers.
func TestWrongCertificates(t *testing.T) {
	ca, log, ctx := nettest.NewAuthority(t), &nettest.Logs{}, busytest.Context(t)
	emb, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", TLS: ca.TLS("server"), Log: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
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
}
