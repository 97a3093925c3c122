package wire

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"math"
	"os"
	"reflect"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the test vectors anew")

const vectorsFile = "../../docs/protocol-vectors.json"

// vector is a frame as docs/protocol-vectors.json has it, for clients in other languages.
type vector struct {
	Name   string          `json:"name"`
	Type   string          `json:"type"`
	Stream uint32          `json:"stream"`
	Fields json.RawMessage `json:"fields"`
	Frame  string          `json:"frame"` // hexadecimal
}

// plain turns a value into what JSON shows best: bytes as hexadecimal, durations in milliseconds.
func plain(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Struct:
		m := map[string]any{}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			x := plain(v.Field(i))
			if sub, ok := x.(map[string]any); ok && f.Anonymous {
				for k, e := range sub {
					m[k] = e
				}
				continue
			}
			if _, ok := v.Field(i).Interface().(time.Duration); ok {
				m[f.Name+"Ms"] = x
			} else if f.Type != reflect.TypeFor[Type]() {
				m[f.Name] = x
			}
		}
		return m
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := make([]byte, v.Len())
			reflect.Copy(reflect.ValueOf(b), v)
			return hex.EncodeToString(b)
		}
		list := []any{}
		for i := range v.Len() {
			list = append(list, plain(v.Index(i)))
		}
		return list
	case reflect.Int64:
		if d, ok := v.Interface().(time.Duration); ok {
			return d.Milliseconds()
		}
	}
	return v.Interface()
}

func vectorOf(t *testing.T, s sample) vector {
	t.Helper()
	b := encode(t, s)
	fields, err := json.Marshal(plain(reflect.ValueOf(s.value)))
	if err != nil {
		t.Fatal(err)
	}
	return vector{s.name, Type(b[4]).String(), s.stream, fields, hex.EncodeToString(b)}
}

// The committed vectors are what this package writes, and it reads them back to the same fields; so a change
// of the format cannot go unnoticed (§3, formats).
func TestVectors(t *testing.T) {
	if *update {
		var out []vector
		for _, s := range samples() {
			out = append(out, vectorOf(t, s))
		}
		b, err := json.MarshalIndent(out, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorsFile, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	all := samples()
	if len(vectors) != len(all) {
		t.Fatalf("%s has %d vectors, want %d", vectorsFile, len(vectors), len(all))
	}
	seen := map[string]bool{}
	for i, v := range vectors {
		want := vectorOf(t, all[i])
		if v.Name != want.Name || v.Frame != want.Frame || v.Type != want.Type || v.Stream != want.Stream {
			t.Errorf("vector %q differs from what is written:\n%s\n%s", v.Name, v.Frame, want.Frame)
		}
		seen[v.Type] = true
		b, err := hex.DecodeString(v.Frame)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(b, math.MaxInt32)
		if err != nil {
			t.Errorf("vector %q: %v", v.Name, err)
			continue
		}
		got.name = v.Name
		var a, e any
		if json.Unmarshal(v.Fields, &a) != nil || json.Unmarshal(vectorOf(t, got).Fields, &e) != nil || !reflect.DeepEqual(a, e) {
			t.Errorf("vector %q is read as %s, want %s", v.Name, vectorOf(t, got).Fields, v.Fields)
		}
	}
	for i, name := range typeNames {
		if name != "" && !seen[name] {
			t.Errorf("no vector for type %d, %s", i, name)
		}
	}
}
