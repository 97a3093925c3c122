package holdfast_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newQueue(link holdfast.Link) *holdfast.Queue {
	return holdfast.NewQueue("orders", link, holdfast.Options{Logger: quiet})
}

// closeQueue closes what a queue opened to send.
func closeQueue(t testing.TB, q *holdfast.Queue) {
	t.Helper()
	if err := q.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func msg(body string) holdfast.Message { return holdfast.Message{Body: []byte(body)} }

// newSender returns a sender that is closed at the end of the test.
func newSender(t testing.TB, link holdfast.Link, o holdfast.SenderOptions) *holdfast.Sender {
	t.Helper()
	s, err := newQueue(link).NewSender(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // it may have been closed before the end of the test, or never have been able to
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx)
	})
	return s
}

func wantErr(t testing.TB, err, want error, what string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}
