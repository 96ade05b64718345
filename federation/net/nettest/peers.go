package nettest

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/goldentest"
)

// Dial returns a client of a server that may send any messages. It shows the certificate of an identity with a name,
// and the server can send it at most window bytes before it reads them.
func Dial(t testing.TB, url, name string, who certs.Identity, window int) wire.FederationClient {
	t.Helper()
	return wire.NewFederationClient(&http.Client{Transport: Transport(t, name, who, window)}, url, connect.WithGRPC())
}

// Transport returns the connections of such a client.
func Transport(t testing.TB, name string, who certs.Identity, window int) *http.Transport {
	t.Helper()
	conf, err := who.ClientTLS(name, func() []byte { return nil })
	goldentest.NoError(t, err)

	var protocols http.Protocols
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: conf, Protocols: &protocols,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: window}}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// Serve runs a server with an identity whose handler may send any messages, and returns its URL.
func Serve(t testing.TB, who certs.Identity, handler wire.FederationHandler) (url string) {
	t.Helper()
	conf, err := who.ServerTLS()
	goldentest.NoError(t, err)

	path, h := wire.NewFederationHandler(handler)
	mux := http.NewServeMux()
	mux.Handle(path, h)
	s := httptest.NewUnstartedServer(mux)
	s.TLS, s.EnableHTTP2, s.Config.ErrorLog = conf, true, log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})

	return s.URL
}
