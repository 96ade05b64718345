package hostguard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"promptfed/federation/net/listen"
)

// Limits of every HTTP server of the program.
const (
	maxHeader  = 16 << 10         // bytes
	headerTime = 5 * time.Second  // for a request's header, also the first of a connection
	readTime   = 30 * time.Second // for a whole request
	writeTime  = 60 * time.Second // from a request's header to the end of its response, or from Extend
	idleTime   = 10 * time.Second // between two requests of a connection
)

// Serve answers requests on l by a handler until the context ends. The context is that of its requests too. It limits
// the time of each part of a request, and the number of connections, so that a run in the process keeps its files:
// further connections wait.
func Serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTime, ReadTimeout: readTime,
		WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(netutil.LimitListener(l, listen.Beside())); !errors.Is(err, http.ErrServerClosed) {
		return err
	}

	return nil
}

// Extend gives a handler whose request is read to its end time without a limit, and its response a new writeTime.
func Extend(w http.ResponseWriter) {
	c := http.NewResponseController(w) // tests may have writers without deadlines
	c.SetReadDeadline(time.Time{})
	c.SetWriteDeadline(time.Now().Add(writeTime))
}
