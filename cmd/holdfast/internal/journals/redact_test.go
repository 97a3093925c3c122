package journals_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/journal"
)

// Design: logs name the journal, its user and all its hosts, and never show a password, a token or an option.
func TestRedacted(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"memory:", "memory:"},
		{"pebble:./data?cache=1MiB", "pebble:./data"},
		{"segment:/var/lib/a@b", "segment:/var/lib/a@b"},
		{"postgres://orders:s3cret@db1,db2:5433/queues?sslpassword=s3cret", "postgres://orders:xxxxx@db1,db2:5433/queues"},
		{"postgresql://orders@db1/queues", "postgresql://orders@db1/queues"},
		{"postgres:///queues?host=/run/postgresql&password=s3cret", "postgres:///queues"},
		{"cassandra://u:s3cret@10.0.0.1,10.0.0.2:9043,[::1]:9042/keyspace?dc=a", "cassandra://u:xxxxx@10.0.0.1,10.0.0.2:9043,[::1]:9042/keyspace"},
		{"hbase://u:s3cret@g1:9090,g2:9090/ns:queues?synced=true", "hbase://u:xxxxx@g1:9090,g2:9090/ns:queues"},
		{"nats://u:s3cret@n1:4222,n2,n3/ORDERS?sync=always", "nats://u:xxxxx@n1:4222,n2,n3/ORDERS"},
		{"nats://s3cret@n1:4222,n2", "nats://xxxxx@n1:4222,n2"},
		{"nats://n1:4222,n2?system-user=u&system-password=s3cret", "nats://n1:4222,n2"},
		{"mongodb://u:s3%40cret@m1:27017,m2:27017/db?replicaSet=r", "mongodb://u:xxxxx@m1:27017,m2:27017/db"},
		{"mongodb+srv://u:s3cret@cluster.example.com/db", "mongodb+srv://u:xxxxx@cluster.example.com/db"},
		// What is not escaped as it has to be, or is no URL of a journal.
		{"postgres://u:s3c/ret@h/db", "postgres://u:xxxxx@h/db"},
		{"postgres://u:s3c@ret@h/db", "postgres://u:xxxxx@h/db"},
		{"nats://u:s3c?ret@h", "nats:…"},
		{"nats://u:s3c#ret@h1,h2", "nats://u:xxxxx@h1,h2"},
		{"mysql://u:s3cret@h/db", "mysql://u:xxxxx@h/db"},
		{"postgres:u:s3cret@h", "postgres:…"},
		{"u:s3cret@h", "u:…"},
		{"s3cret@h", "…"},
		{"orders", "orders"},
	} {
		if got := journals.Redacted(c.url); got != c.want {
			t.Errorf("%s: %s, want %s", c.url, got, c.want)
		}
		if u, err := journals.Parse(c.url); err == nil && u.Redacted() != c.want {
			t.Errorf("%s: %s, want %s", c.url, u.Redacted(), c.want)
		}
	}
}

// Design: no error shows a password, whatever is wrong with the URL or the server.
func TestErrorsShowNoPassword(t *testing.T) {
	const secret = "s3cretWord"
	places := []string{
		"//u:" + secret + "@127.0.0.1:1/name", "//u:" + secret + "@127.0.0.1:1,127.0.0.1:2/name", // nobody listens
		"//u:" + secret + "@127.0.0.1:x/name", "//u:" + secret + "^@127.0.0.1:1/name", "//u:" + secret + "%zz@127.0.0.1:1/name",
		"//u:" + secret + "/x@127.0.0.1:1/name", "//u:" + secret + "@x@127.0.0.1:1/name", "//u:" + secret + "?x@127.0.0.1:1/name", "//u:" + secret + "#x@127.0.0.1:1/name",
		"//u:x/" + secret + "@127.0.0.1:1/name", "//u:x@" + secret + "@127.0.0.1:1/name", "//u:x?" + secret + "@127.0.0.1:1/name", "//u:x#" + secret + "@127.0.0.1:1/name",
		"//u:" + secret + "@/na me", "//u:" + secret + "@", "u:" + secret + "@127.0.0.1:1/name",
		"//u:" + secret + "@127.0.0.1:1/name?unheard=of", "//127.0.0.1:1/name?system-password=" + secret + "&password=" + secret + "&a=%zz",
	}
	seen := 0
	for _, scheme := range []string{"postgres", "postgresql", "cassandra", "hbase", "nats", "mongodb", "mongodb+srv", "mysql"} {
		t.Run(scheme, func(t *testing.T) {
			var log strings.Builder
			for _, place := range places {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				j, err := journals.Open(ctx, scheme+":"+place, journals.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				cancel()
				if err == nil {
					t.Errorf("%s:%s was opened: %v", scheme, place, j.Close())
					continue
				}
				seen++
				if text := err.Error() + log.String(); strings.Contains(text, secret) {
					t.Errorf("%s:%s: %s", scheme, place, text)
				}
				log.Reset()
			}
		})
	}
	if seen == 0 {
		t.Error("nothing was refused")
	}
	// What is taken out of the text does not break the chain.
	_, err := journals.Open(t.Context(), "nats://u:localhost@localhost:99999", journals.Options{Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), `"xxxxx:99999"`) || !errors.Is(err, journal.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
