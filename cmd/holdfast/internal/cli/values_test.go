package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
)

func TestSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64 // -1: refused
		out  string
	}{
		{"0", 0, "0B"}, {"17", 17, "17B"}, {"8MiB", 8 << 20, "8MiB"}, {"1.5KiB", 1536, "1.5KiB"}, {"2 GiB", 2 << 30, "2GiB"},
		{"1kB", 1000, "1000B"}, {"1MB", 1e6, "976.6KiB"}, {"10B", 10, "10B"},
		{"", -1, ""}, {"-1", -1, ""}, {"8 mib", -1, ""}, {"MiB", -1, ""}, {"NaN", -1, ""}, {"1e40", -1, ""}, {"Inf", -1, ""},
	} {
		var s cli.Size
		err := s.Set(c.text)
		switch {
		case c.want < 0 && err == nil:
			t.Errorf("%q was taken as %d", c.text, s)
		case c.want < 0:
		case err != nil || int64(s) != c.want || s.String() != c.out:
			t.Errorf("%q: %d %q %v, want %d %q", c.text, s, s.String(), err, c.want, c.out)
		}
	}
}

func TestDuration(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration // -1: refused
		out  string
	}{
		{"0", 0, "0s"}, {"90s", 90 * time.Second, "1m30s"}, {"7d", 7 * 24 * time.Hour, "7d"}, {"1d12h", 36 * time.Hour, "36h"}, {"2h", 2 * time.Hour, "2h"},
		{"1h30m", 90 * time.Minute, "1h30m"}, {"250ms", 250 * time.Millisecond, "250ms"}, {"24h", 24 * time.Hour, "1d"},
		{"", -1, ""}, {"-1s", -1, ""}, {"7", -1, ""}, {"d", -1, ""}, {"99999d", -1, ""}, {"1d-2h", -1, ""}, {"1.5d", -1, ""}, {"10h1d", -1, ""},
	} {
		var d cli.Duration
		err := d.Set(c.text)
		switch {
		case c.want < 0 && err == nil:
			t.Errorf("%q was taken as %v", c.text, time.Duration(d))
		case c.want < 0:
		case err != nil || time.Duration(d) != c.want || d.String() != c.out:
			t.Errorf("%q: %v %q %v, want %v %q", c.text, time.Duration(d), d.String(), err, c.want, c.out)
		}
	}
}

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		cli.FormatCount(0): "0", cli.FormatCount(999): "999", cli.FormatCount(1000): "1,000", cli.FormatCount(-1234567): "-1,234,567",
		cli.FormatCount(uint64(1 << 40)): "1,099,511,627,776",
		cli.Age(0):                       "0s", cli.Age(12345 * time.Microsecond): "12ms", cli.Age(12345 * time.Millisecond): "12.3s", cli.Age(61 * time.Minute): "1h1m", cli.Age(100 * time.Hour): "4d",
		cli.Clip([]byte("a\nb\"c"), 60): `a\nb"c`, cli.Clip([]byte{0xff, 0}, 60): "(2 bytes, binary)", cli.Clip([]byte("abcdef"), 4): "abc…",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The exit codes are a contract: 0 done, 1 failed, 2 usage, 3 outcome unknown, 130 interrupted.
func TestExitCodes(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("doing something: %w", err) }
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {errors.New("x"), 1}, {wrap(cli.Usagef("x")), 2}, {cli.Usage(nil), 0}, {wrap(holdfast.ErrUnknown), 3}, {wrap(cli.ErrInterrupted), 130},
		{errors.Join(cli.ErrInterrupted, holdfast.ErrUnknown), 3}, {holdfast.ErrNoQueue, 1}, {context.DeadlineExceeded, 1},
	} {
		if got := cli.Code(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestObjectKeepsOrder(t *testing.T) {
	var b bytes.Buffer
	m := holdfast.Message{Body: []byte("a<b>\x01"), Key: "k\xff", Priority: 3, TTL: time.Hour, Headers: []holdfast.Header{{Name: "z", Value: "1"}, {Name: "a", Value: "2"}, {Name: "z", Value: "3"}}}
	if err := cli.WriteJSON(&b, cli.MessageObject(&m)); err != nil {
		t.Fatal(err)
	}
	want := `{"body":"a<b>\u0001","headers":{"z":"1","a":"2","z":"3"},"key_base64":"a/8=","priority":3,"ttl":"1h"}` + "\n"
	if b.String() != want {
		t.Errorf("%s, want %s", b.String(), want)
	}
	b.Reset()
	m = holdfast.Message{Body: []byte{0xff}, Headers: []holdfast.Header{{Name: "n", Value: "\xfe"}}}
	if err := cli.WriteJSON(&b, cli.MessageObject(&m)); err != nil {
		t.Fatal(err)
	}
	if want := `{"body_base64":"/w==","headers_base64":[["bg==","/g=="]]}` + "\n"; b.String() != want {
		t.Errorf("%s, want %s", b.String(), want)
	}
}

// A status stays below what is written, and is gone at the end.
func TestConsoleStatus(t *testing.T) {
	var w syncBuffer
	c := cli.NewConsole(&w, true)
	stop := c.Progress(func() string { return "half done" })
	w.await(t, "half done")
	if _, err := fmt.Fprintln(c, "a remark"); err != nil {
		t.Fatal(err)
	}
	stop()
	stop()
	got := w.String()
	if want := "\r\x1b[Khalf done\r\x1b[Ka remark\nhalf done\r\x1b[K"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w = syncBuffer{}
	c = cli.NewConsole(&w, false)
	c.Progress(func() string { return "x" })()
	if w.String() != "" {
		t.Errorf("where nobody watches: %q", w.String())
	}
}

// The first signal ends the context, the second one closes Hurry and ends what is to be finished.
func TestFinishAndLinger(t *testing.T) {
	a := cli.New(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	ctx, cancel := context.WithCancelCause(t.Context())
	linger, stop := a.Linger(ctx, time.Hour)
	defer stop()
	cancel(cli.ErrInterrupted)
	finish, stopFinish := a.Finish(ctx, time.Hour)
	defer stopFinish()
	if finish.Err() != nil || linger.Err() != nil {
		t.Fatal("ended with the first signal")
	}
	a.HurryUp()
	a.HurryUp()
	<-finish.Done()
	<-linger.Done()
	if !errors.Is(context.Cause(linger), cli.ErrInterrupted) {
		t.Error(context.Cause(linger))
	}
	short, stopShort := a.Linger(t.Context(), time.Nanosecond)
	defer stopShort()
	if short.Err() != nil {
		t.Error("it ended although its context goes on")
	}
}
