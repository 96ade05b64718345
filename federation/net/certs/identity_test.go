package certs_test

import (
	"crypto/tls"
	"testing"

	"promptfed/federation/net/certs"
)

// A TLS configuration without a certificate or an authority is no identity; no configuration means keys of one's own.
func TestFromTLS(t *testing.T) {
	if _, err := certs.FromTLS(&tls.Config{}); err == nil {
		t.Error("a configuration without a certificate is an identity")
	}
	if i, err := certs.FromTLS(nil); err != nil || i.Certified() {
		t.Errorf("%v, %v", i, err)
	}
}
