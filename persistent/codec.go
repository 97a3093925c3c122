package persistent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

// Codec turns events into bytes. Its methods are called on the actor's goroutine alone.
type Codec[E any] interface {
	// AppendMeta appends the event without its body to dst. Give it a version of its own. An error refuses
	// the event: Persist returns it, and nothing has happened.
	AppendMeta(dst []byte, e E) ([]byte, error)

	// DecodeMeta reads what AppendMeta wrote. b is valid until it returns. An error refuses to open the
	// stream: it should match journal.ErrNewerFormat if a later version wrote b.
	DecodeMeta(b []byte) (E, error)

	// Seqs returns how many seqs the event takes, at least 1. It must depend on the meta alone.
	Seqs(e E) uint64

	// AppendBody appends the chunks of the event's body to dst, or nothing if it has none. The
	// chunks are not copied: they must not change until the event is stored. The body part of a record is
	// the bodies of its events, in order. On recovery no bodies are read.
	AppendBody(dst [][]byte, e E) [][]byte
}

// JSON returns a codec that writes events as JSON, one seq each, without bodies. Unlike most uses of
// JSON it refuses fields that it does not know, since a state that was rebuilt without them would be another.
func JSON[E any]() Codec[E] { return jsonCodec[E]{} }

type jsonCodec[E any] struct{ Bodyless[E] }

func (jsonCodec[E]) AppendMeta(dst []byte, e E) ([]byte, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return dst, fmt.Errorf("encode event: %w", err)
	}
	return append(dst, b...), nil
}

func (jsonCodec[E]) DecodeMeta(b []byte) (E, error) {
	var e E
	return e, unmarshalStrict(b, &e)
}

// Bodyless is the part of a [Codec] for events of one seq without bodies. Embed it.
type Bodyless[E any] struct{}

// Seqs returns 1.
func (Bodyless[E]) Seqs(E) uint64 { return 1 }

// AppendBody returns dst.
func (Bodyless[E]) AppendBody(dst [][]byte, _ E) [][]byte { return dst }

// CaptureJSON encodes v at once, as what Capture returns. It is for small states.
func CaptureJSON(v any) iter.Seq[[]byte] {
	b, err := json.Marshal(v)
	return func(yield func([]byte) bool) {
		if err != nil {
			panic(fmt.Errorf("encode state: %w", err))
		}
		for c := range slices.Chunk(b, 64<<10) {
			if !yield(c) {
				return
			}
		}
	}
}

// RestoreJSON decodes into v, a pointer, what [CaptureJSON] encoded. Without chunks it leaves v as it is:
// set it to the initial state first.
func RestoreJSON(chunks iter.Seq2[[]byte, error], v any) error {
	if chunks == nil {
		return nil
	}
	var b []byte
	for c, err := range chunks {
		if err != nil {
			return err
		}
		b = append(b, c...)
	}
	return unmarshalStrict(b, v)
}

// unmarshalStrict decodes one JSON value, and refuses unknown fields and anything behind it.
func unmarshalStrict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode JSON: something follows the value")
	}
	return nil
}
