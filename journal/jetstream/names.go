package jetstream

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// The subjects of a journal, all below the name of its JetStream stream. N and P are names in the form of token.
//
//	STREAM.r.N                            records: header and meta; and marks, see mark
//	STREAM.c.N                            control state, the last message counts
//	STREAM.b.N.BLOCK.FIRST.COUNT-CRC      bodies: header and body
//	STREAM.p.N.P                          parts
//	STREAM.m.P                            members
//	STREAM.x                              confirmations of reads, without content
//	STREAM.z                              ballast
//
// FIRST, COUNT and BLOCK (FIRST without its lowest blockBits bits) are hexadecimal, so that bodies can be found
// by their first seq, and listed by areas.
type names struct{ prefix string }

func (n names) records(stream string) string { return n.prefix + ".r." + token(stream) }
func (n names) control(stream string) string { return n.prefix + ".c." + token(stream) }
func (n names) bodies(stream string) string  { return n.prefix + ".b." + token(stream) + ".>" }
func (n names) parts(stream string) string   { return n.prefix + ".p." + token(stream) + ".*" }
func (n names) part(stream, part string) string {
	return n.prefix + ".p." + token(stream) + "." + token(part)
}
func (n names) member(id string) string { return n.prefix + ".m." + token(id) }
func (n names) confirm() string         { return n.prefix + ".x" }
func (n names) ballast() string         { return n.prefix + ".z" }

// blockBits is the size of the areas in which bodies are listed: 1,024 seqs.
const blockBits = 10

func (n names) block(stream string, block uint64) string {
	return fmt.Sprintf("%s.b.%s.%x.>", n.prefix, token(stream), block)
}

// body is the subject of a record's body.
func (n names) body(stream string, h *journal.Header) string {
	return fmt.Sprintf("%s.b.%s.%x.%x.%x-%08x", n.prefix, token(stream), h.First>>blockBits, h.First, h.Count, h.CRC)
}

// bodyAt matches the bodies of records with that first seq: one, but for what was never acknowledged.
func (n names) bodyAt(stream string, first uint64) string {
	return fmt.Sprintf("%s.b.%s.%x.%x.*", n.prefix, token(stream), first>>blockBits, first)
}

// parseBody reads a subject of the form of body.
func parseBody(subject string) (b bodyRef, ok bool) {
	f := strings.Split(subject, ".")
	if len(f) < 3 {
		return b, false
	}
	count, _, ok := strings.Cut(f[len(f)-1], "-")
	first, err1 := strconv.ParseUint(f[len(f)-2], 16, 64)
	n, err2 := strconv.ParseUint(count, 16, 64)
	if !ok || err1 != nil || err2 != nil || n == 0 {
		return b, false
	}
	return bodyRef{subject: subject, first: first, last: first + n - 1}, true
}

// lastToken returns what stands behind the last dot of a subject, as a name.
func lastToken(subject string) (string, error) {
	return parseToken(subject[strings.LastIndexByte(subject, '.')+1:])
}

// token writes a name as one token of a subject: letters, digits, - and _ as they are, all else as = and two hexadecimal digits.
func token(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// parseToken reads what token wrote.
func parseToken(t string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		if t[i] != '=' {
			if !plain(t[i]) {
				return "", fmt.Errorf("token %q: byte %d", t, i)
			}
			b.WriteByte(t[i])
			continue
		}
		if i+3 > len(t) {
			return "", fmt.Errorf("token %q: cut short", t)
		}
		c, err := hex.DecodeString(t[i+1 : i+3])
		if err != nil {
			return "", fmt.Errorf("token %q: %w", t, err)
		}
		b.WriteByte(c[0])
		i += 2
	}
	return b.String(), nil
}

// controls matches the control subjects of all streams.
func (n names) controls() string { return n.prefix + ".c.*" }

// members matches the subjects of all members.
func (n names) members() string { return n.prefix + ".m.*" }
