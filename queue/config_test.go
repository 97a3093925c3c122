package queue

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

// Every field out of its range is a FieldError that names it (G11), and all of them are told together.
func TestConfigValidate(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero configuration: %v", err)
	}
	if err := (Config{RetryFirst: Unlimited}).Validate(); err != nil {
		t.Errorf("retry at once: %v", err)
	}
	wrong := map[string]Config{
		"visibility_timeout": {VisibilityTimeout: MaxVisibility + 1},
		"max_deliveries":     {MaxDeliveries: -1},
		"dead_letter":        {DeadLetter: "a b"},
		"retry_first":        {RetryFirst: -2},
		"retry_cap":          {RetryCap: message.MaxDelay + time.Millisecond},
		"retention":          {Retention: -time.Second},
		"max_messages":       {MaxMessages: -1},
		"max_bytes":          {MaxBytes: -1},
		"overflow":           {Overflow: "spill"},
		"durability":         {Durability: "hope"},
		"default_delay":      {DefaultDelay: 1500 * time.Microsecond},
		"dedup_window":       {DedupWindow: MaxDedupWindow + time.Second},
	}
	for field, c := range wrong {
		var fe *message.FieldError
		if err := c.Validate(); !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	all := Config{VisibilityTimeout: 1, MaxDeliveries: -1, DeadLetter: "!", RetryFirst: time.Hour, RetryCap: time.Minute, Retention: -1, MaxMessages: -1,
		MaxBytes: -1, Overflow: "x", Durability: "x", DefaultDelay: -1, DedupWindow: -1}
	err := all.Validate()
	for _, field := range []string{"visibility_timeout", "max_deliveries", "dead_letter", "retry_first", "retention", "max_messages", "max_bytes", "overflow",
		"durability", "default_delay", "dedup_window"} {
		if err == nil || !strings.Contains(err.Error(), field+" ") {
			t.Errorf("%s is not told: %v", field, err)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	want := Config{VisibilityTimeout: 30 * time.Second, RetryFirst: time.Second, RetryCap: 5 * time.Minute, Overflow: OverflowBlock,
		Durability: DurabilitySynced, DedupWindow: 5 * time.Minute}
	if got := (Config{}).WithDefaults(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	set := Config{VisibilityTimeout: time.Second, RetryFirst: Unlimited, Overflow: OverflowReject}
	if got := set.WithDefaults(); got.VisibilityTimeout != time.Second || got.RetryFirst != Unlimited || got.Overflow != OverflowReject {
		t.Errorf("%+v", got)
	}
}

// Issue: queue names empty, too long (> 80) or with other than [A-Za-z0-9_.-].
func TestValidName(t *testing.T) {
	for _, name := range []string{"a", "orders", "Orders-2.dead_letters", strings.Repeat("x", 80)} {
		if err := ValidName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 81), "a b", "a/b", "ä", "a\x00"} {
		var fe *message.FieldError
		if err := ValidName(name); !errors.As(err, &fe) || fe.Field != "queue name" || fe.Limit == "" {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// All faults of the options are told together.
func TestOptions(t *testing.T) {
	_, err := New(Options{Config: Config{MaxBytes: -1}, MaxProducers: -1, ProducerTTL: -1, MaxDedupIDs: -1, HoldStarted: -1, Moves: -1}, 1)
	for _, field := range []string{"max_bytes", "MaxProducers", "ProducerTTL", "MaxDedupIDs", "HoldStarted", "Moves"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not told: %v", field, err)
		}
	}
}

func TestStateNames(t *testing.T) {
	for s := StateAny; s <= StateMoving; s++ {
		if got, err := ParseState(s.String()); err != nil || got != s {
			t.Errorf("%v: %v, %v", s, got, err)
		}
	}
	if s := State(99).String(); s != "state 99" {
		t.Error(s)
	}
}
