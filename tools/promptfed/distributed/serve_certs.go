package distributed

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/server"
)

// howToJoin returns the command with which clients join.
func howToJoin(address, dir string) string {
	if dir == "" {
		return "promptfed join " + address + " --client K"
	}
	return "promptfed join " + address + " --client K --tls DIR, where DIR has ca.pem, client-K.pem and " +
		"client-K-key.pem"
}

// renewOnHangup reads the certificate of the server again on SIGHUP. The server uses it for new connections. The list
// of revoked certificates needs no signal.
func renewOnHangup(ctx context.Context, dir string, server *server.Server, log *slog.Logger) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
		who, err := authority.Identity(dir, certs.ServerName)
		if err == nil {
			err = server.Renew(who)
		}
		if err != nil {
			log.Error("the server keeps its certificate", "error", err)
			continue
		}
		log.Info("the server uses the certificate in its folder now", "folder", dir)
	}
}
