package cli

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfastmq/holdfast"
)

// MessageObject is what the sender of a message gave, as JSON: body, or body_base64 where it is not UTF-8; headers, as an object in
// the order of the message, or headers_base64, as pairs, where one is not UTF-8; and what else is set.
func MessageObject(m *holdfast.Message) Object {
	var o Object
	if utf8.Valid(m.Body) {
		o = append(o, Pair{"body", string(m.Body)})
	} else {
		o = append(o, Pair{"body_base64", base64.StdEncoding.EncodeToString(m.Body)})
	}
	o = append(o, HeaderPair(m.Headers)...)
	if m.Key != "" {
		o = append(o, text("key", m.Key))
	}
	if m.DedupID != "" {
		o = append(o, text("dedup_id", m.DedupID))
	}
	if m.Priority != 0 {
		o = append(o, Pair{"priority", m.Priority})
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"delay", m.Delay}, {"ttl", m.TTL}} {
		if d.v != 0 {
			o = append(o, Pair{d.name, FormatDuration(d.v)})
		}
	}
	for _, t := range []struct {
		name string
		v    time.Time
	}{{"not_before", m.NotBefore}, {"expires_at", m.ExpiresAt}} {
		if !t.v.IsZero() {
			o = append(o, Pair{t.name, Stamp(t.v.UnixMilli())})
		}
	}
	return o
}

// text is a string that need not be UTF-8.
func text(name, v string) Pair {
	if utf8.ValidString(v) {
		return Pair{name, v}
	}
	return Pair{name + "_base64", base64.StdEncoding.EncodeToString([]byte(v))}
}

// HeaderPair is the headers of a message as a member of an object, none if there are no headers.
func HeaderPair(headers []holdfast.Header) []Pair {
	if len(headers) == 0 {
		return nil
	}
	valid := true
	for _, h := range headers {
		valid = valid && utf8.ValidString(h.Name) && utf8.ValidString(h.Value)
	}
	if valid {
		return []Pair{{"headers", HeaderObject(headers)}}
	}
	pairs := make([][2]string, len(headers))
	for i, h := range headers {
		pairs[i] = [2]string{base64.StdEncoding.EncodeToString([]byte(h.Name)), base64.StdEncoding.EncodeToString([]byte(h.Value))}
	}
	return []Pair{{"headers_base64", pairs}}
}

// HeaderObject is headers as an object, in their order; a name that repeats is a member that repeats. What is not UTF-8 is
// replaced by U+FFFD.
func HeaderObject(headers []holdfast.Header) Object {
	o := make(Object, len(headers))
	for i, h := range headers {
		o[i] = Pair{strings.ToValidUTF8(h.Name, "\uFFFD"), strings.ToValidUTF8(h.Value, "\uFFFD")}
	}
	return o
}

// Hops is the moves of a message between queues as JSON, nil if there are none.
func Hops(hops []holdfast.Hop) []Object {
	var all []Object
	for _, h := range hops {
		all = append(all, Object{{"queue", h.Queue}, {"reason", h.Reason}, {"deliveries", h.Deliveries}, {"time", Stamp(h.TimeMs)}})
	}
	return all
}

// Stamp writes Unix milliseconds for programs.
func Stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
