package hbase

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

func TestParseURL(t *testing.T) {
	o, err := ParseURL("hbase://u%40x:p%2Fw@h1,h2:9191,[::1]:1/ns:queues?synced=true&https=true&ca=/ca.pem&cert=/c.pem&key=/k.pem" +
		"&max-record=2MiB&bucket-records=7&bucket-bytes=512KiB&regions=8&connections=3&timeout=2s")
	if err != nil {
		t.Fatal(err)
	}
	want := Options{
		Gateways: []string{"h1:9090", "h2:9191", "[::1]:1"}, Table: "ns:queues", Synced: true, HTTPS: true, CAFile: "/ca.pem", CertFile: "/c.pem", KeyFile: "/k.pem",
		User: "u@x", Password: "p/w", MaxRecordBytes: 2 << 20, BucketRecords: 7, BucketBytes: 512 << 10, Regions: 8, Connections: 3, Timeout: 2 * time.Second,
	}
	if strings.Join(o.Gateways, " ") != strings.Join(want.Gateways, " ") {
		t.Errorf("gateways %q, want %q", o.Gateways, want.Gateways)
	}
	o.Gateways, want.Gateways = nil, nil
	if got, want := show(o), show(want); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, u := range []string{"hbase://h?synced=true", "hbase://h/?synced=true"} {
		o, err := ParseURL(u)
		if err == nil {
			err = o.validate()
		}
		if err != nil || o.Table != DefaultTable || o.Gateways[0] != "h:9090" || o.MaxRecordBytes != DefaultMaxRecordBytes {
			t.Errorf("%s: %+v, %v", u, o, err)
		}
	}
	framed, err := ParseURL("hbase://h/t?framed=true&synced=1")
	if err == nil {
		err = framed.validate()
	}
	if err != nil || framed.MaxRecordBytes != DefaultFramedBytes {
		t.Errorf("framed: %+v, %v", framed, err)
	}
}

// G11: a URL that is wrong is refused by a sentence that says what to change, and shows no password.
func TestURLsRefused(t *testing.T) {
	for _, c := range []struct {
		url, want string
		is        error
	}{
		{"hbase:h/t", "not of the form hbase://HOST", journal.ErrInvalid},
		{"hbase:///t?synced=true", "no host", journal.ErrInvalid},
		{"hbase://h:0/t?synced=true", `gateway "h:0": want HOST:PORT`, journal.ErrInvalid},
		{"hbase://h:port/t", `gateway "h:port": want HOST:PORT`, journal.ErrInvalid},
		{"hbase://h,/t", "no host", journal.ErrInvalid},
		{"hbase://h/a b?synced=true", "want [NAMESPACE:]TABLE", journal.ErrInvalid},
		{"hbase://h/a/b?synced=true", "want [NAMESPACE:]TABLE", journal.ErrInvalid},
		{"hbase://h/t?sinced=true", `unknown option "sinced"; known are bucket-bytes, bucket-records, ca`, journal.ErrInvalid},
		{"hbase://h/t?synced=maybe", `"maybe" is not true or false`, journal.ErrInvalid},
		{"hbase://h/t?synced=true&synced=true", "given twice", journal.ErrInvalid},
		{"hbase://h/t?timeout=5", `"5" is not a duration above 0`, journal.ErrInvalid},
		{"hbase://h/t?max-record=lots", `"lots" is not a number above 0`, journal.ErrInvalid},
		{"hbase://h/t?synced=true&max-record=11MiB", "MaxRecordBytes is 11534336", journal.ErrInvalid},
		{"hbase://h/t?regions=0", `"0" is not a number above 0`, journal.ErrInvalid},
		{"hbase://h/t?synced=true&framed=true&https=true", "only one can be true", journal.ErrInvalid},
		{"hbase://user:hunter2@h/t?synced=true", "need https", journal.ErrInvalid},
		{"hbase://user:hunter%2@h/t?synced=true&https=true", "user and password", journal.ErrInvalid},
		{"hbase://h/t?synced=true&https=true&cert=/x", "go together", journal.ErrInvalid},
		{"hbase://h/t?synced=true&https=true&ca=", "option ca: empty", journal.ErrInvalid},
		{"hbase://h/t", "say synced=true in the URL", journal.ErrWeak},
		{"hbase://h/t?synced=false", "say synced=true in the URL", journal.ErrWeak},
	} {
		o, err := ParseURL(c.url)
		if err == nil {
			err = o.validate()
		}
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v, want %q", c.url, err, c.want)
		}
	}
	o := Options{Regions: -1, Connections: -2, Timeout: -3, BucketRecords: -4, BucketBytes: -5, MaxRecordBytes: -6}
	var joined interface{ Unwrap() []error }
	if err := o.validate(); !errors.As(err, &joined) || len(joined.Unwrap()) != 7 {
		t.Errorf("all faults of the options together: %v", err)
	}
}

func TestHeadCodec(t *testing.T) {
	h := head{
		closed: true, uid: journal.UID{1, 2}, epoch: 3, nonce: 4, rev: 5, first: 6, end: 7, crc: 8, time: -9, low: 10, metas: 11, bodies: 12,
		records: 13, metaBytes: 14, bodyBytes: 15,
	}
	raw := h.encode()
	if got, err := decodeHead(raw); err != nil || got != h {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range raw {
		raw[i] ^= 0x40
		_, err := decodeHead(raw)
		if want := map[bool]error{true: journal.ErrNewerFormat, false: journal.ErrCorrupt}[i == 0]; !errors.Is(err, want) {
			t.Fatalf("byte %d flipped: %v, want %v", i, err, want)
		}
		raw[i] ^= 0x40
	}
	f := fence{there: true, dropped: true, uid: journal.UID{9}, epoch: 1, nonce: 2, base: 3}
	if got, err := decodeFence(f.encode()); err != nil || got != f {
		t.Fatalf("%+v, %v", got, err)
	}
}

// FuzzDecoders: no bytes in the table make a reader panic.
func FuzzDecoders(f *testing.F) {
	h := head{epoch: 1}
	f.Add(h.encode())
	f.Add((&fence{epoch: 1}).encode())
	f.Add(encodeRanges([]journal.Range{{From: 1, To: 2}}))
	f.Add([]byte(colBody(1, 2).qualifier))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHead(b); err == nil && string(h.encode()) != string(b) {
			t.Errorf("head %x", b)
		}
		if x, err := decodeFence(b); err == nil && string(x.encode()) != string(b) {
			t.Errorf("fence %x", b)
		}
		if r, err := decodeRanges(b); err == nil && string(encodeRanges(r)) != string(b) {
			t.Errorf("ranges %x", b)
		}
		if s, ok := parseBody(b); ok {
			_ = colBody(s.first, s.last)
		}
		_, _ = decodeEnded(b)
	})
}

func show(o Options) string { return strings.Join(strings.Fields(fmt.Sprintf("%+v", o)), " ") }
