package natsserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"promptfed/runtime/atomicfile"
)

// Files of WriteOperator's folder; credentials are in USER.creds.
const (
	operatorFile  = "operator.jwt"
	operatorConf  = "nats.conf"
	operatorKeys  = "keys"     // seeds of the operator and the accounts; no NATS server or client needs them
	systemAccount = "system"   // without users
	operatorName  = "operator" // name of the operator's seed
)

// WriteOperator writes the configuration of WriteConfig with accounts signed by an operator (JWT) into a folder: a
// configuration for nats-server with the accounts, the operator's JWT, and credentials for each user. Existing keys and
// credentials stay, so that clients can be added. A user without its key in operatorKeys gets a new account, and its
// old credentials become invalid. certs is a folder of certificates for TLS, or empty for none.
func WriteOperator(dir, run, listen, folder string, clients int) error {
	list, err := accounts(run, clients)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, operatorKeys), 0o700); err != nil {
		return err
	}
	operator, err := seed(dir, operatorName, nkeys.CreateOperator)
	if err != nil {
		return err
	}
	keys := map[string]nkeys.KeyPair{}
	for _, a := range append([]account{{user: systemAccount}}, list...) {
		if keys[a.user], err = seed(dir, a.user, nkeys.CreateAccount); err != nil {
			return err
		}
	}
	claims := jwt.NewOperatorClaims(public(operator))
	claims.Name, claims.SystemAccount = "promptfed-"+run, public(keys[systemAccount])
	text, err := claims.Encode(operator)
	if err == nil {
		err = secretFile(filepath.Join(dir, operatorFile), text+"\n")
	}
	if err != nil {
		return err
	}
	var b strings.Builder
	path, err := filepath.Abs(filepath.Join(dir, operatorFile))
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "# Accounts of promptfed's run %q for nats-server: written by promptfed nats-config.\nlisten: %q\n"+
		"max_payload: %d\n", run, listen, maxPayload)
	if folder != "" {
		b.WriteString(tlsBlock(folder, "verify"))
	}
	fmt.Fprintf(&b, "operator: %q\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n", path,
		claims.SystemAccount)
	for _, a := range append([]account{{user: systemAccount}}, list...) {
		text, err := a.claims(run, keys).Encode(operator)
		if err != nil {
			return fmt.Errorf("account %s: %w", a.user, err)
		}
		fmt.Fprintf(&b, "  %s: %s\n", public(keys[a.user]), text)
		if a.user != systemAccount {
			if err := credentials(filepath.Join(dir, a.user+".creds"), a, keys[a.user]); err != nil {
				return err
			}
		}
	}
	b.WriteString("}\n")
	return secretFile(filepath.Join(dir, operatorConf), b.String())
}

// claims returns those of an account. Its exports require a token of the account, which the imports of the other hold.
func (a account) claims(run string, keys map[string]nkeys.KeyPair) *jwt.AccountClaims {
	c := jwt.NewAccountClaims(public(keys[a.user]))
	c.Name = accountName(run, a.user)
	if a.permission != nil {
		c.Limits.Conn, c.Limits.Subs = limits(a.user)
		c.Limits.LeafNodeConn = 0
	}
	for _, x := range a.exports {
		c.Exports.Add(&jwt.Export{Name: x.subject, Subject: jwt.Subject(x.subject), Type: jwt.Stream, TokenReq: true})
	}
	for _, x := range a.imports {
		token := jwt.NewActivationClaims(public(keys[a.user]))
		token.ImportSubject, token.ImportType = jwt.Subject(x.subject), jwt.Stream
		text, err := token.Encode(keys[x.user])
		if err != nil { // never for a key of seed
			panic(err)
		}
		c.Imports.Add(&jwt.Import{Name: x.subject, Subject: jwt.Subject(x.subject), Account: public(keys[x.user]),
			Token: text, Type: jwt.Stream})
	}
	return c
}

// credentials writes the credentials of an account's user, unless valid ones exist.
func credentials(path string, a account, key nkeys.KeyPair) error {
	if old, err := os.ReadFile(path); err == nil {
		if text, err := jwt.ParseDecoratedJWT(old); err == nil {
			if c, err := jwt.DecodeUserClaims(text); err == nil && c.Issuer == public(key) {
				return nil
			}
		}
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		return err
	}
	c := jwt.NewUserClaims(public(user))
	c.Name = a.user
	if a.permission != nil {
		c.Pub.Allow.Add(a.permission.Publish...)
		c.Sub.Allow.Add(a.permission.Subscribe...)
	}
	text, err := c.Encode(key)
	if err != nil {
		return err
	}
	own, err := user.Seed()
	if err != nil {
		return err
	}
	decorated, err := jwt.FormatUserConfig(text, own)
	if err != nil {
		return err
	}
	return secretFile(path, string(decorated))
}

// seed returns the key pair of a name in a folder, and makes it the first time.
func seed(dir, name string, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, error) {
	path := filepath.Join(dir, operatorKeys, name+".nk")
	text, err := atomicfile.ReadPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := create()
		if err != nil {
			return nil, err
		}
		if text, err = key.Seed(); err != nil {
			return nil, err
		}
		return key, secretFile(path, string(text)+"\n")
	}
	if err != nil {
		return nil, err
	}
	key, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(text))))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// public returns the public key of a complete pair.
func public(key nkeys.KeyPair) string {
	text, err := key.PublicKey()
	if err != nil {
		panic(err)
	}
	return text
}

func secretFile(path, text string) error {
	return atomicfile.WritePrivate(path, atomicfile.Bytes([]byte(text)))
}
