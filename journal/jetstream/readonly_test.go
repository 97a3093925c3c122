package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	njs "github.com/nats-io/nats.go/jetstream"

	"github.com/holdfastmq/holdfast/journal"
)

// G11: a journal that is opened for reading only reads everything, refuses every change, and makes no JetStream stream; with one replica, and
// with several.
func TestReadOnly(t *testing.T) {
	nc, err := nats.Connect(strings.Join(server.URLs(), ","))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := njs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	readOnly := quiet()
	readOnly.ReadOnly = true
	for _, replicas := range []string{"1", "3"} {
		t.Run("R"+replicas, func(t *testing.T) {
			stream := newStream(t, server)
			url := streamURL(server, stream, "sync=always&replicas="+replicas)
			if _, err := Open(ctx, url, readOnly); !errors.Is(err, journal.ErrNotFound) || !strings.Contains(err.Error(), "there is no stream "+stream) {
				t.Errorf("a stream that is not there: %v", err)
			}
			if _, err := js.Stream(ctx, stream); !errors.Is(err, njs.ErrStreamNotFound) {
				t.Fatalf("opening for reading only has made it: %v", err)
			}
			writing := mustOpen(t, url, quiet())
			w := acquire(t, writing, "orders")
			for range 3 {
				if err := w.append(ctx, w.next(1, []byte("body"))); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.s.WritePart(ctx, "part", []byte("data")); err != nil {
				t.Fatal(err)
			}
			if err := writing.Close(); err != nil { // so that its cleaner is at rest
				t.Fatal(err)
			}
			before := messages(ctx, t, js, stream)

			j := mustOpen(t, url, readOnly)
			wantHistory(t, j, "orders", w.acked)
			r, err := j.Open(ctx, "orders")
			if err != nil {
				t.Fatal(err)
			}
			if data, err := r.ReadPart(ctx, "part"); err != nil || string(data) != "data" {
				t.Errorf("part: %q %v", data, err)
			}
			_, err = j.Acquire(ctx, "orders")
			_, err2 := j.Import(ctx, "orders", journal.Info{UID: w.s.Acquired().UID, Epoch: 9})
			for what, err := range map[string]error{"Acquire": err, "Import": err2, "PutMember": j.PutMember(ctx, "a", []byte("x")), "DeleteMember": j.DeleteMember(ctx, "a")} {
				if !errors.Is(err, ErrReadOnly) || errors.Is(err, journal.ErrUnknown) {
					t.Errorf("%s: %v, want %v", what, err, ErrReadOnly)
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			// Confirmations of reads are all that may have been published.
			if after := messages(ctx, t, js, stream); after != before {
				t.Errorf("the stream had\n%s\nand has\n%s", before, after)
			}
		})
	}
}

// messages is what a JetStream stream holds, but for confirmations of reads: subjects, how many messages each has, and where it begins.
func messages(ctx context.Context, t *testing.T, js njs.JetStream, stream string) string {
	t.Helper()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, subject := range []string{".r.>", ".c.>", ".b.>", ".p.>", ".m.>", ".z"} {
		info, err := s.Info(ctx, njs.WithSubjectFilter(stream+subject))
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range info.State.Subjects {
			m, err := s.GetLastMsgForSubject(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s %d %v", name, n, m.Time))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
