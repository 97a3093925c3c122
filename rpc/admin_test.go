package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc"
	pb "github.com/holdfastmq/holdfast/rpc/adminpb/holdfastv1"
	"github.com/holdfastmq/holdfast/rpc/adminpb/holdfastv1/holdfastv1connect"
)

// fakeAdmin writes down what it is asked, and answers with what it has.
type fakeAdmin struct {
	mu     sync.Mutex
	calls  []string
	err    error
	infos  []holdfast.QueueInfo
	peeked []holdfast.PeekedMessage
	out    []queue.Outcome
	hold   chan struct{}
}

func (f *fakeAdmin) call(ctx context.Context, format string, args ...any) error {
	f.mu.Lock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		close(hold)
		<-ctx.Done()
		return ctx.Err()
	}
	return f.err
}

func (f *fakeAdmin) Create(ctx context.Context, name string, c queue.Config) error {
	return f.call(ctx, "create %s %+v", name, c)
}
func (f *fakeAdmin) Configure(ctx context.Context, name string, c queue.Config) error {
	return f.call(ctx, "configure %s %+v", name, c)
}
func (f *fakeAdmin) List(ctx context.Context) ([]holdfast.QueueInfo, error) {
	return append([]holdfast.QueueInfo(nil), f.infos...), f.call(ctx, "list")
}
func (f *fakeAdmin) Describe(ctx context.Context, name string) (holdfast.QueueInfo, error) {
	if err := f.call(ctx, "describe %s", name); err != nil {
		return holdfast.QueueInfo{}, err
	}
	return f.infos[0], nil
}
func (f *fakeAdmin) Pause(ctx context.Context, name string, paused bool) error {
	return f.call(ctx, "pause %s %v", name, paused)
}
func (f *fakeAdmin) Purge(ctx context.Context, name string) (uint64, error) {
	return 17, f.call(ctx, "purge %s", name)
}
func (f *fakeAdmin) Delete(ctx context.Context, name string) error {
	return f.call(ctx, "delete %s", name)
}
func (f *fakeAdmin) Peek(ctx context.Context, name string, o holdfast.PeekOptions) (list []holdfast.PeekedMessage, err error) {
	for _, p := range f.peeked {
		if p.Seq >= o.From && len(list) < o.Limit {
			list = append(list, p)
		}
	}
	return list, f.call(ctx, "peek %s %+v", name, o)
}
func (f *fakeAdmin) Redrive(ctx context.Context, name, target string, limit int) (uint64, error) {
	return 18, f.call(ctx, "redrive %s %q %d", name, target, limit)
}
func (f *fakeAdmin) Settle(ctx context.Context, name string, op holdfast.SettleOp, receipts []holdfast.Receipt, d time.Duration) ([]queue.Outcome, error) {
	return f.out, f.call(ctx, "settle %s %d %v %v", name, op, receipts, d)
}

func (f *fakeAdmin) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[len(f.calls)-1]
}

// fill sets every field of a struct to something else than its zero, so that one that is not carried over is noticed.
func fill(v reflect.Value, n *int64) {
	for i := range v.NumField() {
		*n++
		f := v.Field(i)
		switch f.Kind() {
		case reflect.Struct:
			fill(f, n)
		case reflect.String:
			f.SetString(fmt.Sprintf("s%d", *n))
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int32, reflect.Int64:
			if f.Type() == reflect.TypeFor[time.Duration]() {
				f.SetInt(*n * int64(time.Millisecond))
			} else {
				f.SetInt(*n)
			}
		case reflect.Uint, reflect.Uint8, reflect.Uint32, reflect.Uint64:
			f.SetUint(uint64(*n))
		case reflect.Array:
			for k := range f.Len() {
				f.Index(k).SetUint(uint64(*n) + uint64(k))
			}
		}
	}
}

func startAdmin(t *testing.T) (*env, *fakeAdmin, holdfast.Admin) {
	e := start(t, rpc.Options{}, nil)
	f := &fakeAdmin{}
	e.link.AdminCalls = f
	return e, f, e.client(client.Options{Lazy: true}).Admin()
}

// Every administrative call arrives as it was made and comes back as it was answered, field by field.
func TestAdminCalls(t *testing.T) {
	_, f, a := startAdmin(t)
	ctx := t.Context()
	n := int64(0)
	var info holdfast.QueueInfo
	fill(reflect.ValueOf(&info).Elem(), &n)
	f.infos = []holdfast.QueueInfo{info}
	cfg := info.Config

	check(t, a.Create(ctx, "q", cfg))
	if w := fmt.Sprintf("create q %+v", cfg); f.last() != w {
		t.Errorf("%s\nwant %s", f.last(), w)
	}
	for _, first := range []time.Duration{0, queue.Unlimited, time.Second} {
		cfg.RetryFirst = first
		check(t, a.Configure(ctx, "q", cfg))
		if w := fmt.Sprintf("configure q %+v", cfg); f.last() != w {
			t.Errorf("%s\nwant %s", f.last(), w)
		}
	}
	check(t, a.Configure(ctx, "q", queue.Config{}))
	if w := fmt.Sprintf("configure q %+v", queue.Config{}); f.last() != w {
		t.Errorf("%s\nwant %s", f.last(), w)
	}
	got, err := a.Describe(ctx, "q")
	if err != nil || got != info {
		t.Errorf("described as\n%+v, want\n%+v (%v)", got, info, err)
	}
	check(t, a.Pause(ctx, "q", true))
	check(t, a.Pause(ctx, "q", false))
	if f.last() != "pause q false" {
		t.Error(f.last())
	}
	if n, err := a.Purge(ctx, "q"); n != 17 || err != nil {
		t.Errorf("purged %d %v", n, err)
	}
	if n, err := a.Redrive(ctx, "q", "other", 5); n != 18 || err != nil || f.last() != `redrive q "other" 5` {
		t.Errorf("redriven %d %v %s", n, err, f.last())
	}
	check(t, a.Delete(ctx, "q"))
	if f.last() != "delete q" {
		t.Error(f.last())
	}
}

// A list is complete however many queues there are, and in order.
func TestAdminList(t *testing.T) {
	_, f, a := startAdmin(t)
	for i := range 2500 {
		f.infos = append(f.infos, holdfast.QueueInfo{Name: fmt.Sprintf("q%05d", (i*7919)%2500)})
	}
	list, err := a.List(t.Context())
	if err != nil || len(list) != 2500 {
		t.Fatalf("%d queues, %v", len(list), err)
	}
	for i, q := range list {
		if q.Name != fmt.Sprintf("q%05d", i) {
			t.Fatalf("queue %d is %s", i, q.Name)
		}
	}
}

// Peek carries everything that a message says, and more than fits into one answer.
func TestAdminPeek(t *testing.T) {
	_, f, a := startAdmin(t)
	var p holdfast.PeekedMessage
	n := int64(0)
	fill(reflect.ValueOf(&p.MessageInfo).Elem(), &n)
	fill(reflect.ValueOf(&p.ID).Elem(), &n)
	p.State = queue.StateParked
	p.Message = holdfast.Message{
		Body: []byte{0xff, 0, 1}, Headers: []holdfast.Header{{Name: "n\xff", Value: "v\xfe"}, {Name: "n\xff", Value: ""}}, Key: "k\xfd", DedupID: "d\xfc",
		Delay: time.Second, TTL: time.Hour, Priority: 7,
	}
	p.Hops = []message.Hop{{Queue: "a", Reason: "max-deliveries", Deliveries: 3, TimeMs: 1234}, {Queue: "b", Reason: "redrive"}}
	f.peeked = []holdfast.PeekedMessage{p}
	o := holdfast.PeekOptions{State: queue.StateParked, From: 1, Limit: 3, Bodies: true}
	got, err := a.Peek(t.Context(), "q", o)
	if err != nil || !reflect.DeepEqual(got, f.peeked) {
		t.Errorf("peeked\n%+v, want\n%+v (%v)", got, f.peeked, err)
	}
	if w := fmt.Sprintf("peek q %+v", o); f.last() != w {
		t.Errorf("%s, want %s", f.last(), w)
	}
	p.Message.Delay, p.Message.TTL = 0, 0
	p.Message.NotBefore, p.Message.ExpiresAt = time.UnixMilli(1_900_000_000_123).UTC(), time.UnixMilli(1_900_000_000_456).UTC()
	f.peeked = []holdfast.PeekedMessage{p}
	if got, err = a.Peek(t.Context(), "q", o); err != nil || !reflect.DeepEqual(got, f.peeked) {
		t.Errorf("peeked\n%+v, want\n%+v (%v)", got, f.peeked, err)
	}

	f.peeked = nil
	for i := range uint64(40) {
		f.peeked = append(f.peeked, holdfast.PeekedMessage{
			MessageInfo: queue.MessageInfo{Seq: i + 1}, Message: holdfast.Message{Body: bytes.Repeat([]byte{byte(i)}, 500_000)},
		})
	}
	for _, limit := range []int{-1, holdfast.MaxPeek + 1, math.MaxInt} {
		var fe *message.FieldError
		if _, err := a.Peek(t.Context(), "q", holdfast.PeekOptions{Limit: limit, Bodies: true}); !errors.As(err, &fe) || fe.Field != "limit" {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	for _, c := range []struct{ limit, want int }{{33, 33}, {0, 10}, {1000, 40}} {
		got, err = a.Peek(t.Context(), "q", holdfast.PeekOptions{Limit: c.limit, Bodies: true})
		if err != nil || len(got) != c.want {
			t.Fatalf("limit %d: %d messages, %v", c.limit, len(got), err)
		}
		for i, p := range got {
			if p.Seq != uint64(i)+1 || len(p.Message.Body) != 500_000 || p.Message.Body[0] != byte(i) {
				t.Fatalf("limit %d: message %d is %d with %d bytes", c.limit, i, p.Seq, len(p.Message.Body))
			}
		}
	}
}

// Settle keeps receipts, durations and outcomes apart, in as many calls as it takes.
func TestAdminSettle(t *testing.T) {
	_, f, a := startAdmin(t)
	r := holdfast.Receipt{Stream: [16]byte{1}, Epoch: 2, Lease: 3, Seq: 4}
	for _, c := range []struct {
		op   holdfast.SettleOp
		d    time.Duration
		want time.Duration
	}{
		{holdfast.SettleAck, 0, 0}, {holdfast.SettleNack, -1, -1}, {holdfast.SettleNack, 0, 0}, {holdfast.SettleNack, time.Minute, time.Minute},
		{holdfast.SettleRelease, 0, 0}, {holdfast.SettleExtend, 0, 0}, {holdfast.SettleExtend, time.Second, time.Second},
	} {
		out, err := a.Settle(t.Context(), "q", c.op, []holdfast.Receipt{r}, c.d)
		if w := fmt.Sprintf("settle q %d [%v] %v", c.op, r, c.want); err != nil || out != nil || f.last() != w {
			t.Errorf("%v %v %s, want %s", out, err, f.last(), w)
		}
	}
	f.out = []queue.Outcome{{LeaseSpan: queue.LeaseSpan{Lease: 3, Seq: 4, Count: 1}, Result: queue.AckLost}}
	if out, err := a.Settle(t.Context(), "q", holdfast.SettleAck, []holdfast.Receipt{r}, 0); err != nil || !reflect.DeepEqual(out, f.out) {
		t.Errorf("%v %v", out, err)
	}
	f.out = nil
	if out, err := a.Settle(t.Context(), "q", holdfast.SettleAck, make([]holdfast.Receipt, 25_000), 0); err != nil || out != nil {
		t.Errorf("%v %v", out, err)
	}
	for _, bad := range []error{
		second(a.Settle(t.Context(), "q", holdfast.SettleExtend, []holdfast.Receipt{r}, -time.Second)),
		second(a.Settle(t.Context(), "q", 9, []holdfast.Receipt{r}, 0)),
		second(a.Settle(t.Context(), "q", holdfast.SettleAck, nil, 0)),
	} {
		var field *message.FieldError
		if !errors.As(bad, &field) {
			t.Errorf("bad settle: %v", bad)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Errors of administrative calls are at the client what they are at the broker, all faults of them (G10, G11).
func TestAdminErrors(t *testing.T) {
	_, f, a := startAdmin(t)
	for _, kind := range []error{holdfast.ErrNoQueue, holdfast.ErrQueueExists, holdfast.ErrUnavailable, holdfast.ErrFenced, holdfast.ErrUnknown, queue.ErrFull, queue.ErrStorageFull} {
		f.err = fmt.Errorf("purge queue %q: %w", "q", kind)
		if _, err := a.Purge(t.Context(), "q"); !errors.Is(err, kind) || err.Error() != f.err.Error() {
			t.Errorf("%v came as %v", f.err, err)
		}
	}
	two := queue.Config{VisibilityTimeout: time.Millisecond, MaxMessages: -1}
	f.err = fmt.Errorf("create queue: %w", two.Validate())
	err := a.Create(t.Context(), "q", two)
	var all []string
	collect(err, &all)
	if strings.Join(all, " ") != "visibility_timeout max_messages" || err.Error() != f.err.Error() {
		t.Errorf("faults %q of %v", all, err)
	}
	f.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-f.hold; cancel() }()
	if _, err := a.Purge(ctx, "q"); !errors.Is(err, holdfast.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

func collect(err error, fields *[]string) {
	switch e := err.(type) {
	case nil:
	case *message.FieldError:
		*fields = append(*fields, e.Field)
	case interface{ Unwrap() []error }:
		for _, x := range e.Unwrap() {
			collect(x, fields)
		}
	default:
		collect(errors.Unwrap(err), fields)
	}
}

// Without a broker, an administrative call says so within its context, and may be tried again.
func TestAdminUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	l.Close()
	c, err := client.Dial(t.Context(), client.Options{Addrs: []string{l.Addr().String()}, Lazy: true})
	check(t, err)
	defer c.Close()
	if err := c.Admin().Delete(t.Context(), "q"); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("unreachable: %v", err)
	}
}

// The examples of docs/protocol.md: JSON over plain HTTP, as curl does it.
func TestAdminByJSON(t *testing.T) {
	e, f, _ := startAdmin(t)
	f.infos = []holdfast.QueueInfo{{Name: "orders", Ready: true, Config: queue.Config{VisibilityTimeout: 30 * time.Second}, Stats: queue.Stats{Depth: 12}}}
	post := func(method, body string) (int, string) {
		t.Helper()
		resp, err := http.Post("http://"+e.addr+"/holdfast.v1.Admin/"+method, "application/json", strings.NewReader(body))
		check(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		check(t, err)
		return resp.StatusCode, strings.Join(strings.Fields(string(b)), "")
	}
	if code, got := post("Create", `{"name":"orders","config":{"visibilityTimeout":"60s","maxDeliveries":5,"deadLetter":"orders.dead"}}`); code != 200 || got != "{}" {
		t.Errorf("create: %d %s", code, got)
	}
	if want := fmt.Sprintf("create orders %+v", queue.Config{VisibilityTimeout: time.Minute, MaxDeliveries: 5, DeadLetter: "orders.dead"}); f.last() != want {
		t.Errorf("%s, want %s", f.last(), want)
	}
	code, got := post("Describe", `{"name":"orders"}`)
	for _, part := range []string{`"name":"orders"`, `"ready":true`, `"visibilityTimeout":"30s"`, `"depth":"12"`} {
		if code != 200 || !strings.Contains(got, part) {
			t.Errorf("describe: %d %s, want %s in it", code, got, part)
		}
	}
	f.err = fmt.Errorf("describe queue %q: %w", "nope", holdfast.ErrNoQueue)
	if code, got := post("Describe", `{"name":"nope"}`); code != 404 || !strings.HasPrefix(got, `{"code":"not_found","message":"describequeue\"nope\":nosuchqueue"`) {
		t.Errorf("no queue: %d %s", code, got)
	}
	if code, _ := post("Describe", `{"name":`); code != 400 {
		t.Errorf("bad JSON: %d", code)
	}
	if code, _ := post("Purge", `{"name":"`+strings.Repeat("x", 5<<20)+`"}`); code != 429 {
		t.Errorf("a request of 5 MiB: %d", code)
	}
	http.DefaultClient.CloseIdleConnections()
}

// The same calls by gRPC, over HTTP/2 without TLS on the same port.
func TestAdminByGRPC(t *testing.T) {
	e, f, _ := startAdmin(t)
	f.infos = []holdfast.QueueInfo{{Name: "orders", Epoch: 5}}
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	c := holdfastv1connect.NewAdminClient(&http.Client{Transport: tr}, "http://"+e.addr, connect.WithGRPC())
	r, err := c.Describe(t.Context(), connect.NewRequest(&pb.DescribeRequest{Name: "orders"}))
	if err != nil || r.Msg.GetQueue().GetEpoch() != 5 {
		t.Errorf("%v %v", r, err)
	}
	f.err = holdfast.ErrNoQueue
	if _, err := c.Describe(t.Context(), connect.NewRequest(&pb.DescribeRequest{Name: "orders"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("%v", err)
	}
}

// Rights of administrative calls go by queue; dead-letter queues and targets count.
func TestAdminRights(t *testing.T) {
	e := start(t, rpc.Options{Policy: policy(t,
		"token ops 0123456789abcdef admin own*", "token ops 0123456789abcdef send,receive both",
	)}, nil)
	f := &fakeAdmin{infos: []holdfast.QueueInfo{{Name: "both"}, {Name: "other"}, {Name: "own1"}}}
	e.link.AdminCalls = f
	a := e.client(client.Options{Lazy: true, Token: "0123456789abcdef"}).Admin()
	ctx := t.Context()
	r := []holdfast.Receipt{{Seq: 1}}
	for _, c := range []struct {
		name string
		err  error
		ok   bool
	}{
		{"create", a.Create(ctx, "own1", queue.Config{}), true},
		{"create elsewhere", a.Create(ctx, "both", queue.Config{}), false},
		{"dead letters to own", a.Configure(ctx, "own1", queue.Config{DeadLetter: "own2"}), true},
		{"dead letters to sendable", a.Configure(ctx, "own1", queue.Config{DeadLetter: "both"}), true},
		{"dead letters elsewhere", a.Configure(ctx, "own1", queue.Config{DeadLetter: "other"}), false},
		{"describe", second(a.Describe(ctx, "both")), true},
		{"describe elsewhere", second(a.Describe(ctx, "other")), false},
		{"pause elsewhere", a.Pause(ctx, "both", true), false},
		{"purge elsewhere", second(a.Purge(ctx, "both")), false},
		{"purge", second(a.Purge(ctx, "own1")), true},
		{"delete elsewhere", a.Delete(ctx, "both"), false},
		{"peek as receiver", second(a.Peek(ctx, "both", holdfast.PeekOptions{})), true},
		{"peek elsewhere", second(a.Peek(ctx, "other", holdfast.PeekOptions{})), false},
		{"redrive", second(a.Redrive(ctx, "own1", "both", 0)), true},
		{"redrive elsewhere", second(a.Redrive(ctx, "own1", "other", 0)), false},
		{"settle as receiver", second(a.Settle(ctx, "both", holdfast.SettleAck, r, 0)), true},
		{"settle as admin", second(a.Settle(ctx, "own1", holdfast.SettleAck, r, 0)), false},
	} {
		if errors.Is(c.err, holdfast.ErrDenied) == c.ok || c.ok && c.err != nil {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
	list, err := a.List(ctx)
	if err != nil || len(list) != 2 || list[0].Name != "both" || list[1].Name != "own1" {
		t.Errorf("list %v %v", list, err)
	}
	http.DefaultClient.CloseIdleConnections()
}
