package broker

import (
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/message"
)

// G11: on a journal whose records are small the default of MaxBody is less, and a larger one that was asked for is refused.
func TestSmallRecords(t *testing.T) {
	store, err := memory.NewStore(memory.Options{MaxRecordBytes: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	var field *message.FieldError
	if _, err := Open(t.Context(), store.Open(), Options{Limits: message.Limits{MaxBody: 1 << 20}, Logger: quiet}); !errors.As(err, &field) || field.Field != "MaxBody" {
		t.Errorf("a body of 1 MiB: %v", err)
	}
	b := open(t, store.Open(), Options{})
	if _, err := b.Queue("q").Send(t.Context(), holdfast.Message{Body: make([]byte, 200<<10)}); err != nil {
		t.Error(err)
	}
	if _, err := b.Queue("q").Send(t.Context(), holdfast.Message{Body: make([]byte, 500<<10)}); !errors.As(err, &field) {
		t.Errorf("a body of 500 KiB: %v", err)
	}
	shut(t, b)
}
