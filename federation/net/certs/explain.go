package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Explain returns what is wrong with a certificate, and what to do, for an error of a TLS connection with host; nil for
// an error that another attempt may not have. between says what may be between both sides and sign certificates.
func Explain(host, between string, err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		by := "another authority"
		if unknown.Cert != nil {
			by = fmt.Sprintf("%.100q", unknown.Cert.Issuer.String())
		}
		return fmt.Errorf("the certificate of %s is signed by %s, not by the authority of --tls: %s, or get the right "+
			"ca.pem", host, by, between)
	case errors.As(err, &name):
		return fmt.Errorf("the certificate of %s is for other names: %w; use one of them in the URL, or make a "+
			"certificate with --host", host, name)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert.IsCA:
		return fmt.Errorf("the authority of %s, ca.pem, ended on %s; ask its holder for the ca.pem and a certificate "+
			"of a new one", host, invalid.Cert.NotAfter.Format(time.DateOnly))
	}

	return nil
}

// Refusal returns the alert with which the other side of a TLS connection refused this side's certificate, or its lack;
// nil for another error.
func Refusal(err error) error {
	var alert *net.OpError
	if errors.As(err, &alert) && alert.Op == "remote error" && (strings.Contains(alert.Err.Error(), "certificate") ||
		strings.Contains(alert.Err.Error(), "access denied")) {
		return alert.Err
	}
	return nil
}
