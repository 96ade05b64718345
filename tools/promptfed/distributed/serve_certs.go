package distributed

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/federation/transport"
)

// replaceable moves the certificate of a configuration to own. The configuration then uses the current value of own.
func replaceable(conf *tls.Config, own *atomic.Pointer[tls.Certificate]) {
	own.Store(&conf.Certificates[0])
	conf.Certificates = nil
	conf.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.Load(), nil }
}

// renewOnHangup reads the certificate of the server again on SIGHUP. The server uses it for new connections and
// signatures. The list of revoked certificates needs no signal.
func renewOnHangup(ctx context.Context, dir string, h *transport.Server, own *atomic.Pointer[tls.Certificate],
	log *slog.Logger) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
		conf, err := authority.ClientTLS(dir, certs.ServerName)
		var who certs.Identity
		if err == nil {
			who, err = certs.FromTLS(conf)
		}
		if err == nil {
			err = h.Renew(who)
		}
		if err != nil {
			log.Error("the server keeps its certificate", "error", err)
			continue
		}
		own.Store(&conf.Certificates[0])
		log.Info("the server uses the certificate in its folder now", "folder", dir)
	}
}
