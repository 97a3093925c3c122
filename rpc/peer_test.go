package rpc_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc"
	"github.com/holdfastmq/holdfast/rpc/memlink"
)

const peerToken = "0123456789abcdef0123456789abcdef"

// §8: another broker, which knows the token from the journal, gets at the queues of this one alone and may send what has been elsewhere
// before; nobody else may, whatever the policy is.
func TestPeers(t *testing.T) {
	inner := memlink.New()
	defer inner.Close()
	inner.Limits = message.Limits{Internal: true}
	seen := &internals{Link: inner}
	e := start(t, rpc.Options{Policy: policy(t), PeerToken: peerToken, PeerLink: seen}, nil)

	var plain message.Builder
	plain.Add(&message.Message{Body: []byte("moved")})
	cur := message.NewCursor(plain.Finish())
	raw, _ := cur.Next()
	attrs, err := message.Moved(raw, message.Origin{UID: [16]byte{1}, Seq: 7}, message.Hop{Queue: "from", Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	var b message.Builder
	b.AddRaw(message.Raw{Attrs: attrs, Body: raw.Body})
	frame := b.Finish()

	peer := e.client(client.Options{Token: peerToken})
	log := newSenderLog()
	link, _, err := peer.OpenSender(t.Context(), "q", holdfast.SenderConfig{Producer: queue.Producer{ID: "p", Incarnation: "1"}}, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Send(1, frame); err != nil {
		t.Fatal(err)
	}
	want(t, log.events, "accepted 1 first 1 count 1 dup 0")
	if !seen.internal.Load() {
		t.Error("the stream is not allowed what brokers write")
	}
	if got := inner.Messages("q"); len(got) != 1 || got[0] != "moved" {
		t.Errorf("the peers' link has %v", got)
	}
	if got := e.link.Messages("q"); len(got) != 0 {
		t.Errorf("the clients' link has %v", got)
	}
	if _, err := e.tryClient(client.Options{Token: strings.ToUpper(peerToken)}); !errors.Is(err, holdfast.ErrDenied) {
		t.Errorf("another token: %v", err)
	}
	if _, err := rpc.NewServer(nil, rpc.Options{PeerToken: peerToken, Logger: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a token without a link is accepted")
	}
	resp, err := http.Get("http://" + e.addr + "/holdfast")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", resp.Status)
	}
}

// internals notes what streams are allowed.
type internals struct {
	holdfast.Link
	internal atomic.Bool
}

func (l *internals) OpenSender(ctx context.Context, queue string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	l.internal.Store(c.Internal)
	return l.Link.OpenSender(ctx, queue, c, ev)
}
