package placement

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Version is that of entries. A later one keeps the fields that there are, or brokers of both versions would not agree.
const Version = 1

// MaxRefused bounds the queues that an entry names as refused. A broker that cannot open more is passed over for all.
const MaxRefused = 100

// Entry is what a broker publishes of itself. It is stored as JSON.
type Entry struct {
	Version int `json:"v"`
	// Incarnation is random, and new each time the broker's process starts.
	Incarnation string `json:"incarnation"`
	// Beat grows by one each time the entry is renewed.
	Beat uint64 `json:"beat"`
	// Address is where clients and other brokers reach the broker.
	Address string `json:"address"`
	// Secret is the bearer token by which other brokers show it that they share the journal, and Pin the SHA-256 of its TLS
	// certificate in hexadecimal, empty without TLS.
	Secret string `json:"secret,omitempty"`
	Pin    string `json:"pin,omitempty"`
	// New tells that the broker has been a member without a break for less than one expiry.
	New bool `json:"new,omitempty"`
	// AgeMs is for how long it had been a member without a break at this beat, in ms. It is counted while New is set.
	AgeMs int64 `json:"age_ms,omitempty"`
	// Term counts how often the incarnation has begun to be new.
	Term uint64 `json:"term,omitempty"`
	// Cohort are brokers that were new together with this one, when there were no others: in that term they are not new either.
	Cohort []string `json:"cohort,omitempty"`
	// Leaving tells that the broker gives up its queues to stop.
	Leaving bool `json:"leaving,omitempty"`
	// Refused are queues that it cannot open; RefusesAll tells that there are more than are named.
	Refused    []string `json:"refused,omitempty"`
	RefusesAll bool     `json:"refuses_all,omitempty"`
}

// Encode returns the entry as it is stored.
func (e Entry) Encode() []byte {
	e.Version = Version
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings, numbers and booleans do encode
	}
	return b
}

// Decode reads what Encode wrote, of this version or a later one.
func Decode(b []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(b, &e); err != nil {
		return Entry{}, fmt.Errorf("entry of a broker: %w", err)
	}
	if e.Version < 1 || e.Incarnation == "" {
		return Entry{}, fmt.Errorf("entry of a broker: version %d, incarnation %q", e.Version, e.Incarnation)
	}
	return e, nil
}

// termOf names a broker's term, for cohorts.
func termOf(id string, e *Entry) string { return fmt.Sprintf("%s %s %d", id, e.Incarnation, e.Term) }

func (e *Entry) refuses(queue string) bool { return e.RefusesAll || slices.Contains(e.Refused, queue) }
