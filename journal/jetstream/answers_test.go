package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// answering has direct reads of a journal answered by f, with the messages that a request asks for, in order: it returns how many of them are sent, and the
// status and its headers behind them.
func answering(t *testing.T, j *Journal, all []stored, f func(asked []stored) (int, string)) {
	t.Helper()
	nc, err := nats.Connect(strings.Join(server.URLs(), ","))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	j.c.api = nc.NewInbox() + "."
	_, err = nc.Subscribe(j.c.api+"DIRECT.GET."+j.c.stream, func(m *nats.Msg) {
		var r getRequest
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Error(err)
		}
		asked := slices.DeleteFunc(slices.Clone(all), func(m stored) bool { return m.seq < r.Seq || !slices.Contains(r.Multi, m.subject) })
		n, status := f(asked)
		for _, a := range asked[:n] {
			out := nats.NewMsg(m.Reply)
			out.Header.Set("Nats-Subject", a.subject)
			out.Header.Set("Nats-Sequence", strconv.FormatUint(a.seq, 10))
			out.Data = a.data
			if err := nc.PublishMsg(out); err != nil {
				t.Error(err)
			}
		}
		out := nats.NewMsg(m.Reply)
		for i, h := range strings.Split(status, "\n") {
			if i == 0 {
				out.Header.Set("Status", h[:3])
				out.Header.Set("Description", h[4:])
				continue
			}
			k, v, _ := strings.Cut(h, ": ")
			out.Header.Set(k, v)
		}
		if err := nc.PublishMsg(out); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// G2: an answer that ends before its end is not taken for all that there is, whether the server sends no more bytes at once, or has found a message gone
// that it was about to send: what is missing in it would be taken for discarded.
func TestShortAnswers(t *testing.T) {
	j := mustOpen(t, streamURL(server, newStream(t, server), "sync=always&replicas=1"), quiet())
	var all []stored
	var subjects []string
	for i := range 10 {
		s := fmt.Sprintf("s.%d", i)
		subjects = append(subjects, s)
		all = append(all, stored{s, uint64(10 + i), []byte(s)})
	}
	for name, f := range map[string]func(asked []stored) (int, string){
		"whole": func(asked []stored) (int, string) { return len(asked), "204 EOB\nNats-Num-Pending: 0" },
		"parts": func(asked []stored) (int, string) {
			n := min(3, len(asked))
			return n, fmt.Sprintf("204 EOB\nNats-Num-Pending: %d", len(asked)-n)
		},
		"gone meanwhile": func() func([]stored) (int, string) {
			tries := 0
			return func(asked []stored) (int, string) {
				if tries++; tries <= 6 {
					return tries - 1, "404 Message Not Found"
				}
				return len(asked), "204 EOB\nNats-Num-Pending: 0"
			}
		}(),
	} {
		answering(t, j, all, f)
		got, err := j.last(t.Context(), 0, subjects...)
		if err != nil || len(got) != len(all) {
			t.Fatalf("%s: %d messages, %v", name, len(got), err)
		}
		for i, m := range got {
			if m.subject != all[i].subject || m.seq != all[i].seq || string(m.data) != string(all[i].data) {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}

	answering(t, j, nil, func([]stored) (int, string) { return 0, "404 No Results" })
	if got, err := j.last(t.Context(), 0, subjects...); err != nil || len(got) != 0 {
		t.Errorf("of nothing: %d messages, %v", len(got), err)
	}
	answering(t, j, all, func([]stored) (int, string) { return 5, "404 Message Not Found" })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if got, err := j.last(ctx, 0, subjects...); !errors.Is(err, errBrokenOff) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("never whole: %d messages, %v", len(got), err)
	}
}
