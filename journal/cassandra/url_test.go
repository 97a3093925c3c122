package cassandra

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// G11: a URL says all that there is to say, and what is wrong with it is told at once.
func TestParseURL(t *testing.T) {
	o, err := ParseURL("cassandra://h%6fldfast:p%40ss%3A%2F@db1,db2:9043,[::1]:9044/orders?replication=3&dc=eu&consistency=LOCAL_QUORUM&accept-weak=true" +
		"&timeout=3s&connect-timeout=500ms&max-record=1MiB&max-part=64KiB&inline=1KiB&bucket-records=9&bucket-bytes=2MiB&tls=true&tls-name=db")
	if err != nil {
		t.Fatal(err)
	}
	if o.Username != "holdfast" || o.Password != "p@ss:/" || strings.Join(o.Hosts, " ") != "db1 db2:9043 [::1]:9044" || o.Keyspace != "orders" ||
		o.Replication != 3 || o.Datacenter != "eu" || !o.Local || !o.AcceptWeak || o.Timeout != 3*time.Second || o.ConnectTimeout != 500*time.Millisecond ||
		o.MaxRecordBytes != 1<<20 || o.MaxPartBytes != 64<<10 || o.InlineBytes != 1<<10 || o.BucketRecords != 9 || o.BucketBytes != 2<<20 ||
		o.TLS == nil || o.TLS.ServerName != "db" {
		t.Errorf("%+v", o)
	}
	if o, err = ParseURL("cassandra://db/k"); err != nil || o.TLS != nil || o.Username != "" {
		t.Errorf("%+v, %v", o, err)
	}
	notPEM := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(notPEM, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ url, want string }{
		{"cassandra:db/k", "want cassandra://"},
		{"nats://db/k", "another scheme"},
		{"cassandra:///k", "host \"\""},
		{"cassandra://db,/k", "host \"\""},
		{"cassandra://db:0/k", "port"},
		{"cassandra://db:/k", "port"},
		{"cassandra://d b/k", "host"},
		{"cassandra://db", "keyspace \"\""},
		{"cassandra://db/Orders", "lower-case"},
		{"cassandra://db/a/b", "keyspace \"a/b\""},
		{"cassandra://:pw@db/k", "password without a user"},
		{"cassandra://u:%zz@db/k", "%25"},
		{"cassandra://db/k?replicas=3", `unknown option "replicas"; known are accept-weak, bucket-bytes`},
		{"cassandra://db/k?replication=0", "option replication"},
		{"cassandra://db/k?replication=x", "option replication"},
		{"cassandra://db/k?dc=a&dc=b", "given 2 times"},
		{"cassandra://db/k?consistency=one", "would lose"},
		{"cassandra://db/k?consistency=local_quorum", "needs the name of the datacenter"},
		{"cassandra://db/k?accept-weak=perhaps", "not true or false"},
		{"cassandra://db/k?timeout=0", "option timeout"},
		{"cassandra://db/k?max-record=lots", "is no size"},
		{"cassandra://db/k?max-record=4GiB", "is no size"},
		{"cassandra://db/k?ca=/nowhere/ca.pem", "option ca"},
		{"cassandra://db/k?ca=" + notPEM, "no certificate"},
		{"cassandra://db/k?cert=a", "one of them is missing"},
		{"cassandra://db/k?cert=a&key=b", "cert and key"},
		{"cassandra://db/k?x=%zz", "options"},
	} {
		_, err := ParseURL(c.url)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.url, err, c.want)
		}
	}
	// All together, and no password among them.
	_, err = ParseURL("cassandra://u:secret@db:x/K?y=1&timeout=z")
	for _, want := range []string{"port", "keyspace", `"y"`, "timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "7B": 7, "32MiB": 32 << 20, "1KiB": 1 << 10, "2GiB": 2 << 30, "": -1, "MiB": -1, "-1": -1, "1.5MiB": -1, "9999999999999999GiB": -1, "null": -1} {
		got, ok := parseSize(text)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q is %d, %v", text, got, ok)
		}
	}
}
