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

// Files of a folder that WriteOperator writes; credentials are USER.creds.
const (
	operatorFile  = "operator.jwt"
	operatorConf  = "nats.conf"
	operatorKeys  = "keys"     // seeds of the operator and of the accounts: no NATS server and no client needs them
	systemAccount = "system"   // user of none
	operatorName  = "operator" // of the operator's seed
)

// WriteOperator writes what WriteConfig does in the form of an operator with signed accounts (JWT) into a folder: a
// configuration for a nats-server with the accounts in it, the operator's JWT, and credentials for each user. Keys and
// credentials that are there stay, so that clients can be added; without its key in operatorKeys a user gets an account
// anew, and its old credentials are none any more. certs is a folder of certificates for TLS, or empty for none.
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

// claims are those of an account. Its exports are for those that hold a token of the exporting account, and each of its
// imports has the one for it.
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
		if err != nil { // of a key that seed made or read there is none
			panic(err)
		}
		c.Imports.Add(&jwt.Import{Name: x.subject, Subject: jwt.Subject(x.subject), Account: public(keys[x.user]),
			Token: text, Type: jwt.Stream})
	}
	return c
}

// credentials writes those of the user of an account, unless there are some that the account signed.
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

// seed is the key pair of a name in a folder, made the first time.
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

// public is the public key of a pair that was made or read whole.
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
