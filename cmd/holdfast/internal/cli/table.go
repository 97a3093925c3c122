package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// Table writes rows in aligned columns. The first row is the heading.
func Table(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		// The last column is not padded.
		if _, err := fmt.Fprintln(tw, strings.TrimRight(strings.Join(r, "\t"), "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// Pair is a name and a value of an Object.
type Pair struct {
	Name  string
	Value any
}

// Object is a JSON object that keeps the order of its members.
type Object []Pair

// MarshalJSON writes the members in order.
func (o Object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, p := range o {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := marshal(p.Name)
		if err != nil {
			return nil, err
		}
		value, err := marshal(p.Value)
		if err != nil {
			return nil, fmt.Errorf("member %s: %w", p.Name, err)
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// marshal writes a value as JSON, without escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	err := WriteJSON(&b, v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// WriteJSON writes a value as one line of JSON, without escapes for HTML.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// WriteJSONIndented writes a value as JSON for people.
func WriteJSONIndented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Clip returns a text of one line for a table: at most n characters, with what cannot be printed escaped.
func Clip(text []byte, n int) string {
	if !utf8.Valid(text) {
		return fmt.Sprintf("(%d bytes, binary)", len(text))
	}
	q := fmt.Sprintf("%q", text)
	q = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
	if utf8.RuneCountInString(q) <= n {
		return q
	}
	return string([]rune(q)[:n-1]) + "…"
}

// Age writes a time span for people: three digits at most.
func Age(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return FormatDuration(d.Round(time.Second))
	case d < 48*time.Hour:
		return FormatDuration(d.Round(time.Minute))
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
