package worker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is due at a rate is due at its time, whatever happened before.
func TestPace(t *testing.T) {
	began := time.Unix(1000, 0)
	p := pace{began: began, rate: 4000}
	for i := range 10_000 {
		if at, want := p.next(), began.Add(time.Duration(i)*250*time.Microsecond); at.Sub(want).Abs() > time.Microsecond {
			t.Fatalf("message %d is due at %v, want %v", i, at, want)
		}
	}
}

func TestStamp(t *testing.T) {
	body := newBody(3)
	if _, ok := stamped(body); ok || len(body) != stampBytes {
		t.Errorf("%v has a stamp", body)
	}
	at := time.Unix(1700000000, 123456789)
	if stamp(body, at); true {
		if got, ok := stamped(body); !ok || !got.Equal(at) {
			t.Errorf("%v %v, want %v", got, ok, at)
		}
	}
	if _, ok := stamped([]byte("short")); ok {
		t.Error("a short body has a stamp")
	}
}

func TestWaitUntil(t *testing.T) {
	exactTimers()
	at := time.Now().Add(3 * time.Millisecond)
	waitUntil(at)
	waitUntil(at)
	if time.Now().Before(at) {
		t.Error("too early")
	}
}

// life runs a worker in this process, with what it is told, and returns what it says.
func life(t *testing.T, s Spec, told ...string) (all []said, err error) {
	t.Helper()
	spec, jsonErr := json.Marshal(s)
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	in, tell := io.Pipe()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- Run(t.Context(), in, &out, client.Options{}, slog.New(slog.DiscardHandler))
		_ = in.Close()
	}()
	for _, word := range append([]string{string(spec)}, told...) {
		_, _ = io.WriteString(tell, word+"\n")
	}
	if len(told) == 0 {
		_ = tell.Close()
	}
	err = <-done
	_ = tell.Close()
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var s said
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all, err
}

// A worker says that it is ready, how far it is, and what it has measured.
func TestLife(t *testing.T) {
	send := Part{Kind: Send, Queue: "q", Queues: 2, Payload: 16, Window: 10, Messages: 501}
	receive := Part{Kind: Receive, Queue: "q", Queues: 2, Messages: 501}
	all, err := life(t, Spec{Embedded: "memory:", Parts: []Part{send, receive}}, wordGo)
	if err != nil || len(all) < 3 || all[0].Ready == nil || all[1].Progress == nil {
		t.Fatalf("%+v %v", all, err)
	}
	r := all[len(all)-1].Result
	if len(r) != 2 || r[0].Total != 501 || r[1].Total != 501 || r[0].Rate() <= 0 || r[0].Frames == 0 || r[0].Answer.Count() == 0 || r[1].EndToEnd.Count() == 0 || r[1].Last < r[1].First {
		t.Errorf("%+v", r)
	}
}

// A worker whose starter goes away ends; so does one that is told nonsense.
func TestLeft(t *testing.T) {
	if _, err := life(t, Spec{Parts: []Part{{Kind: Deliver, Payload: 8, Window: 1}}}); !errors.Is(err, errLeft) {
		t.Error(err)
	}
	if _, err := life(t, Spec{Parts: []Part{{Kind: "dance"}}}, wordGo); err == nil || !strings.Contains(err.Error(), `"dance"`) {
		t.Error(err)
	}
	if err := Run(t.Context(), strings.NewReader("{\n"), io.Discard, client.Options{}, nil); err == nil {
		t.Error("nonsense is taken")
	}
}
