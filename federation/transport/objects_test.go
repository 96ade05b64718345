package transport

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// An object that is a link into another bucket, or has another size than its message says, is not read.
func TestLinksAreNotFollowed(t *testing.T) {
	e, err := Embed(Embedding{Listen: "127.0.0.1:0", Workers: t.TempDir(), Run: "x", Limit: 1 << 20,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	js, err := jetstream.New(e.Conn())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	store := func(name string) jetstream.ObjectStore {
		s, err := js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: name})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	mine, other := store("mine"), store("other")
	secret, err := other.PutBytes(ctx, "secret", []byte("of another"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mine.AddLink(ctx, "link", secret); err != nil {
		t.Fatal(err)
	}
	if _, err := mine.PutBytes(ctx, "own", []byte("1234")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []content{{Object: "link", Size: 10}, {Object: "link"}, {Object: "own", Size: 3}, {Object: "own",
		Size: 5}, {Object: "none", Size: 4}} {
		if b, err := load(ctx, mine, c); err == nil || !strings.Contains(err.Error(), "object "+c.Object) {
			t.Errorf("%+v: read %q, %v", c, b, err)
		}
	}
	if b, err := load(ctx, mine, content{Object: "own", Size: 4}); err != nil || string(b) != "1234" {
		t.Errorf("%q, %v", b, err)
	}
}
