package journal

import "fmt"

// MaxNameBytes bounds the names of streams and parts.
const MaxNameBytes = 200

// CheckName verifies the name of a stream or part: 1…MaxNameBytes bytes of printable ASCII,
// the space included. what is the word for it in the error, which matches [ErrInvalid].
func CheckName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%s name is empty: %w", what, ErrInvalid)
	}
	if len(name) > MaxNameBytes {
		return fmt.Errorf("%s name of %d bytes, at most %d: %w", what, len(name), MaxNameBytes, ErrInvalid)
	}
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			return fmt.Errorf("%s name %q: byte %d is not printable ASCII: %w", what, name, i, ErrInvalid)
		}
	}
	return nil
}

// CheckAppend is the part of [Stream.Append]'s checks that needs no store: that rec is
// sealed, follows after, is of the owner's stream and epoch (own is what Acquired returned),
// and is not larger than lim allows. Its errors match [ErrInvalid] or [ErrTooLarge].
//
// It verifies the CRC of the header and the lengths of the parts. It doesn't compute the CRCs of
// the parts again: whoever sealed the record did, and readers will.
func CheckAppend(own Info, lim Limits, after uint64, rec *Record) error {
	if err := checkRecord(own, lim, after, rec, false); err != nil {
		return err
	}
	if rec.Epoch != own.Epoch {
		return fmt.Errorf("record at seq %d: of epoch %d, the owner's is %d: %w", rec.First, rec.Epoch, own.Epoch, ErrInvalid)
	}
	return nil
}

// CheckImported is CheckAppend for the Append of an imported stream (see [Importer]): rec may be of any epoch
// up to the owner's, and its body may be missing; then it may be of any length.
func CheckImported(own Info, lim Limits, after uint64, rec *Record) error {
	if err := checkRecord(own, lim, after, rec, true); err != nil {
		return err
	}
	if rec.Epoch == 0 || rec.Epoch > own.Epoch {
		return fmt.Errorf("record at seq %d: of epoch %d, the importer's is %d: %w", rec.First, rec.Epoch, own.Epoch, ErrInvalid)
	}
	return nil
}

// checkRecord checks what appending and importing have in common.
func checkRecord(own Info, lim Limits, after uint64, rec *Record, bodyMayLack bool) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("record at seq %d: "+format+": %w", append(append([]any{rec.First}, args...), ErrInvalid)...)
	}
	body := 0
	for _, c := range rec.Body {
		body += len(c)
	}
	switch {
	case rec.First == 0 || rec.Count == 0 || rec.First+rec.Count < rec.First:
		return fail("count %d", rec.Count)
	case rec.CRC != rec.Header.sum():
		return fail("not sealed, or changed since")
	case uint64(len(rec.Meta)) != uint64(rec.MetaLen) || uint64(body) != uint64(rec.BodyLen) && (body > 0 || !bodyMayLack):
		return fail("sealed with %d bytes of meta and %d of body, has %d and %d", rec.MetaLen, rec.BodyLen, len(rec.Meta), body)
	case rec.First != after+1:
		return fail("does not follow seq %d", after)
	case rec.UID != own.UID:
		return fail("of stream uid %s, want %s", rec.UID, own.UID)
	case rec.Kind < KindEvents || rec.Kind > KindSkip:
		return fail("unknown kind %d", rec.Kind)
	case HeaderSize+len(rec.Meta)+body > lim.MaxRecordBytes:
		return fmt.Errorf("record at seq %d: %d bytes, at most %d: %w", rec.First, HeaderSize+len(rec.Meta)+body, lim.MaxRecordBytes, ErrTooLarge)
	}
	return nil
}

// CheckPart is the part of [Stream.WritePart]'s checks that needs no store. Its errors match
// [ErrInvalid] or [ErrTooLarge].
func CheckPart(lim Limits, name string, data []byte) error {
	if err := CheckName("part", name); err != nil {
		return err
	}
	if len(data) > lim.MaxPartBytes {
		return fmt.Errorf("part %q: %d bytes, at most %d: %w", name, len(data), lim.MaxPartBytes, ErrTooLarge)
	}
	return nil
}

// CheckImport is the part of [Importer.Import]'s checks that needs no store. Its errors match [ErrInvalid].
func CheckImport(stream string, from Info) error {
	if err := CheckName("stream", stream); err != nil {
		return err
	}
	if from.UID == (UID{}) || from.Epoch == 0 {
		return fmt.Errorf("import of stream %q: uid %s and epoch %d, want both from the source: %w", stream, from.UID, from.Epoch, ErrInvalid)
	}
	if from.End == 0 && (from.EndCRC != 0 || from.EndTime != 0) {
		return fmt.Errorf("import of stream %q from its beginning, with CRC %08x and time %d before it: %w", stream, from.EndCRC, from.EndTime, ErrInvalid)
	}
	return nil
}

// CheckMember is the part of [Coordinator.PutMember]'s checks that needs no store. Its errors match [ErrInvalid] or
// [ErrTooLarge].
func CheckMember(id string, data []byte) error {
	if err := CheckName("member", id); err != nil {
		return err
	}
	if len(data) > MaxMemberBytes {
		return fmt.Errorf("member %q: entry of %d bytes, at most %d: %w", id, len(data), MaxMemberBytes, ErrTooLarge)
	}
	return nil
}
