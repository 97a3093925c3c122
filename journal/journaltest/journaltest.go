package journaltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// Hook is called by a driver under test, in the goroutine of the call, before and after
// every write that the call sends to the store. Where a call needs several writes, it is called around
// each one. op is for the driver to choose; the suite only shows it. ctx is the call's context,
// or derived from it: the suite recognises its calls by it.
//
// The hook may block until ctx ends, and it may use the journal, so the driver holds neither locks of its
// own nor locks in the store (an open transaction) that other calls wait for. With an error
// before the write, the driver behaves as if its request had been lost on the way; after it, as if the
// answer had been lost. What a driver does then (repeating the write by itself, or returning
// [journal.ErrUnknown]) is what it does when a connection breaks.
type Hook = func(ctx context.Context, op, stream string, after bool) error

// Store is a new, empty store for one rule. The suite closes the journals that it opens.
type Store struct {
	// Open opens a handle to the store. Required.
	Open func(ctx context.Context) (journal.Journal, error)
	// SetHook makes handles that are opened later call h. Needed if Config.Hooks is set.
	SetHook func(h Hook)
	// Crash is a power cut: what is not on stable storage is lost; all handles
	// become useless, and the suite only closes them. Needed if Config.Crashes is set.
	Crash func(t testing.TB)
	// Damage changes stored data behind the journal's back, while a handle may be open. It returns
	// errors.ErrUnsupported for what the store cannot be made to do. Needed if Config.Damages is set.
	Damage func(ctx context.Context, d Damage) error
}

// Damage is what Store.Damage is to do to one record.
type Damage struct {
	Stream string
	Seq    uint64 // the first of the record
	Kind   DamageKind
}

// DamageKind is a way to damage a record.
type DamageKind int

const (
	// FlipHeader changes a byte of the header that is not its version.
	FlipHeader DamageKind = iota + 1
	// FlipMeta changes a byte of the meta part.
	FlipMeta
	// FlipBody changes a byte of the body part.
	FlipBody
	// Remove deletes the record, header and all, without a trace of a discard.
	Remove
	// NewerVersion changes the header's version to one that does not exist yet.
	NewerVersion
)

func (k DamageKind) String() string {
	names := [...]string{"?", "flipped header", "flipped meta", "flipped body", "removed record", "newer version"}
	if k < 0 || int(k) >= len(names) {
		k = 0
	}
	return names[k]
}

// Config declares a driver. NewStore is required; for all else zero is a default that
// suits an embedded store. HOLDFAST_SOAK=1 multiplies Records, Takeovers and Timeout by 20.
type Config struct {
	// NewStore makes a store for one rule: a new directory, database, prefix. What has to be
	// cleaned up afterwards goes to t.Cleanup.
	NewStore func(t testing.TB) Store

	// Shared: several handles to one store can be open at the same time, as if by several
	// processes. Otherwise rules with several owners use one handle.
	Shared bool
	// Persistent: what was stored is there after all handles were closed.
	Persistent bool
	// Hooks, Crashes, Damages: the stores have SetHook, Crash, Damage.
	Hooks, Crashes, Damages bool
	// Coordinates: the journals are journal.Coordinators. Imports: they are journal.Importers.
	Coordinates, Imports bool
	// Starts: the streams are journal.Starters.
	Starts bool

	// Records is how many records bulk rules write. Default 150.
	Records int
	// Takeovers is how many takeovers the races run to. Default 80.
	Takeovers int
	// Span is a number of records, of a few hundred bytes, within which the store surely begins a new
	// bucket (row, partition, file), if it has such things: configure it with small ones. Rules try each
	// place of a record within Span. Default 6.
	Span int
	// MaxBytes bounds the data of the rules that try the limits. A driver with larger ones is
	// tested up to MaxBytes only. Default 16 MiB.
	MaxBytes int
	// Timeout is what a rule may take in all. A call that hangs is found by it. Default 1 min.
	Timeout time.Duration
	// Parallel runs the rules in parallel (testing.T.Parallel), for stores that mostly wait.
	Parallel bool
	// Seed makes the random rules repeatable. Default: HOLDFAST_SEED, or a random one.
	Seed uint64

	complete bool // validated, with defaults filled in
}

// validate fills in the defaults, once.
func (c *Config) validate() error {
	if c.complete {
		return nil
	}
	var errs []error
	if c.NewStore == nil {
		errs = append(errs, errors.New("journaltest: Config.NewStore is nil"))
	}
	factor := 1
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		factor = 20
	}
	for _, f := range []struct {
		name string
		val  *int
		def  int
	}{
		{"Records", &c.Records, 150},
		{"Takeovers", &c.Takeovers, 80},
		{"Span", &c.Span, 6},
		{"MaxBytes", &c.MaxBytes, 16 << 20},
	} {
		if *f.val < 0 {
			errs = append(errs, fmt.Errorf("journaltest: Config.%s is %d, want 0 (default) or more", f.name, *f.val))
		}
		if *f.val == 0 {
			*f.val = f.def
		}
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("journaltest: Config.Timeout is %v, want 0 (default) or more", c.Timeout))
	}
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	c.Records *= factor
	c.Takeovers *= factor
	c.Timeout *= time.Duration(factor)
	if s := os.Getenv("HOLDFAST_SEED"); s != "" && c.Seed == 0 {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("journaltest: HOLDFAST_SEED: %w", err))
		}
		c.Seed = seed
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	c.complete = len(errs) == 0
	return errors.Join(errs...)
}

// Rule is one rule of the contract.
type Rule struct {
	// Name is topic/rule.
	Name string
	// Promise is the rule in a sentence.
	Promise string

	needs needs
	check func(e *env)
}

// needs are the abilities that a rule cannot do without.
type needs struct{ shared, persistent, hooks, crashes, damages, members, imports, starts bool }

// Missing returns the abilities that the rule needs and cfg does not declare, as the
// names of fields of Config.
func (r Rule) Missing(cfg Config) []string {
	var missing []string
	for _, a := range []struct {
		name       string
		need, have bool
	}{
		{"Shared", r.needs.shared, cfg.Shared},
		{"Persistent", r.needs.persistent, cfg.Persistent},
		{"Hooks", r.needs.hooks, cfg.Hooks},
		{"Crashes", r.needs.crashes, cfg.Crashes},
		{"Damages", r.needs.damages, cfg.Damages},
		{"Coordinates", r.needs.members, cfg.Coordinates},
		{"Imports", r.needs.imports, cfg.Imports},
		{"Starts", r.needs.starts, cfg.Starts},
	} {
		if a.need && !a.have {
			missing = append(missing, a.name)
		}
	}
	return missing
}

// Check tests the rule on a new store of cfg, and fails t if it is broken. The abilities that
// it needs must be declared.
func (r Rule) Check(t testing.TB, cfg Config) {
	t.Helper()
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	if missing := r.Missing(cfg); len(missing) > 0 {
		t.Fatalf("rule %s needs Config.%s", r.Name, strings.Join(missing, ", "))
	}
	if r.needs.starts {
		cfg.Hooks = false // they may keep a driver from taking its direct way
	}
	e := newEnv(t, &cfg)
	defer e.cancel()
	defer func() {
		if t.Failed() {
			t.Logf("the rule: %s", r.Promise)
		}
	}()
	r.check(e)
}

// Rules returns all rules, by topic.
func Rules() []Rule {
	var all []Rule
	for _, topic := range []struct {
		name  string
		rules []Rule
	}{
		{"append", appendRules},
		{"start", startRules},
		{"limits", limitRules},
		{"acquire", acquireRules},
		{"fence", fenceRules},
		{"late", lateRules},
		{"unknown", unknownRules},
		{"read", readRules},
		{"discard", discardRules},
		{"parts", partRules},
		{"streams", streamRules},
		{"context", contextRules},
		{"close", closeRules},
		{"durable", durableRules},
		{"corrupt", corruptRules},
		{"race", raceRules},
		{"members", memberRules},
		{"import", importRules},
	} {
		for _, r := range topic.rules {
			r.Name = topic.name + "/" + r.Name
			all = append(all, r)
		}
	}
	return all
}

// Run tests a driver against every rule that its declared abilities allow: each as a subtest
// named by topic and rule if t is a *testing.T, and one after the other if not.
func Run(t testing.TB, cfg Config) {
	t.Helper()
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, r := range Rules() {
		if missing := r.Missing(cfg); len(missing) > 0 {
			left = append(left, fmt.Sprintf("%s (needs %s)", r.Name, strings.Join(missing, ", ")))
			continue
		}
		sub, ok := t.(*testing.T)
		if !ok {
			r.Check(t, cfg)
			continue
		}
		sub.Run(r.Name, func(t *testing.T) {
			if cfg.Parallel {
				t.Parallel()
			}
			r.Check(t, cfg)
		})
	}
	if len(left) > 0 {
		t.Logf("not run, for want of a declared ability: %s", strings.Join(left, ", "))
	}
}
