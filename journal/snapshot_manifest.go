package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// snapshotVersion is the version of the manifest format that this package writes.
const snapshotVersion = 1

const (
	manifestMagic = "HFS"
	// manifestFixed is the length of what is before the list of chunks: magic, version, uid,
	// seq, epoch, CRC of the record, time.
	manifestFixed = 4 + 16 + 8 + 8 + 4 + 8
)

// nonce tells apart the parts of different SaveSnapshot calls.
type nonce [8]byte

// piece is a part that holds a chunk, or the section of a chunk that is larger than a part.
type piece struct {
	hash  [16]byte // SHA-256 of the content, truncated
	nonce nonce    // of the call that wrote it
	size  uint64
}

func hashOf(data []byte) (h [16]byte) {
	sum := sha256.Sum256(data)
	copy(h[:], sum[:])
	return h
}

func (p piece) name() string {
	return piecePrefix + hex.EncodeToString(p.hash[:]) + "-" + hex.EncodeToString(p.nonce[:])
}

// verify reports whether data is the piece's content.
func (p piece) verify(data []byte) error {
	if uint64(len(data)) != p.size || hashOf(data) != p.hash {
		return &CorruptError{What: fmt.Sprintf("part %q does not have the content that it is named after", p.name())}
	}
	return nil
}

// chunk is one chunk of a snapshot: inline, or in pieces.
type chunk struct {
	inline []byte
	pieces []piece
}

// manifest is the table of contents of a snapshot.
type manifest struct {
	uid    UID
	id     SnapshotID
	nonce  nonce
	chunks []chunk
}

func (m *manifest) name() string {
	return fmt.Sprintf("%s%016x-%016x-%x", manifestPrefix, m.id.Seq, m.id.Epoch, m.nonce)
}

// parseManifestName reads what name wrote; only the fields that are in the name are set.
func parseManifestName(name string) (m manifest, ok bool) {
	rest, _ := strings.CutPrefix(name, manifestPrefix)
	seq, rest, _ := strings.Cut(rest, "-")
	epoch, rest, _ := strings.Cut(rest, "-")
	var errs [3]error
	m.id.Seq, errs[0] = strconv.ParseUint(seq, 16, 64)
	m.id.Epoch, errs[1] = strconv.ParseUint(epoch, 16, 64)
	n, err := hex.DecodeString(rest)
	errs[2] = err
	if errors.Join(errs[:]...) != nil || len(n) != len(m.nonce) {
		return m, false
	}
	m.nonce = nonce(n)
	return m, m.name() == name
}

// encode returns the manifest as it is stored: fixed fields, then for each chunk the number of
// its pieces and each one's hash, nonce and size; 0 pieces stand for an inline chunk, whose
// length and content follow; CRC-32C of all that at the end.
func (m *manifest) encode() []byte {
	le := binary.LittleEndian
	b := append([]byte(manifestMagic), snapshotVersion)
	b = append(b, m.uid[:]...)
	b = le.AppendUint64(b, m.id.Seq)
	b = le.AppendUint64(b, m.id.Epoch)
	b = le.AppendUint32(b, m.id.CRC)
	b = le.AppendUint64(b, uint64(m.id.Time))
	b = binary.AppendUvarint(b, uint64(len(m.chunks)))
	for _, c := range m.chunks {
		b = binary.AppendUvarint(b, uint64(len(c.pieces)))
		if len(c.pieces) == 0 {
			b = binary.AppendUvarint(b, uint64(len(c.inline)))
			b = append(b, c.inline...)
		}
		for _, p := range c.pieces {
			b = append(b, p.hash[:]...)
			b = append(b, p.nonce[:]...)
			b = binary.AppendUvarint(b, p.size)
		}
	}
	return le.AppendUint32(b, Checksum(b))
}

var errManifest = errors.New("malformed")

// decodeManifest reads what encode wrote, stored under name. Its errors match ErrCorrupt or
// ErrNewerFormat. The inline chunks of the result share b.
func decodeManifest(name string, b []byte) (*manifest, error) {
	corrupt := func(err error) (*manifest, error) {
		return nil, &CorruptError{What: fmt.Sprintf("snapshot manifest %q", name), Err: err}
	}
	m, ok := parseManifestName(name)
	if !ok {
		return corrupt(errors.New("unknown form of name"))
	}
	if len(b) < manifestFixed+4 || !strings.HasPrefix(string(b[:3]), manifestMagic) {
		return corrupt(errManifest)
	}
	if b[3] > snapshotVersion {
		return nil, fmt.Errorf("snapshot manifest %q of version %d, this binary reads up to %d: %w", name, b[3], snapshotVersion, ErrNewerFormat)
	}
	le := binary.LittleEndian
	n := len(b) - 4
	if Checksum(b[:n]) != le.Uint32(b[n:]) {
		return corrupt(errors.New("checksum does not match"))
	}
	copy(m.uid[:], b[4:20])
	id := SnapshotID{Seq: le.Uint64(b[20:]), Epoch: le.Uint64(b[28:]), CRC: le.Uint32(b[36:]), Time: int64(le.Uint64(b[40:]))}
	if id.Seq != m.id.Seq || id.Epoch != m.id.Epoch {
		return corrupt(fmt.Errorf("holds %v", id))
	}
	m.id = id
	d := decoder{b: b[manifestFixed:n]}
	m.chunks = d.chunks()
	if d.bad || len(d.b) > 0 {
		return corrupt(errManifest)
	}
	return &m, nil
}

// decoder reads values off a slice, and remembers whether it ever was too short.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) chunks() []chunk {
	var chunks []chunk
	for range d.uvarint() {
		if d.bad {
			return nil
		}
		var c chunk
		n := d.uvarint()
		if n == 0 {
			c.inline = d.bytes(d.uvarint())
		}
		for range n {
			if d.bad {
				return nil
			}
			var p piece
			copy(p.hash[:], d.bytes(uint64(len(p.hash))))
			copy(p.nonce[:], d.bytes(uint64(len(p.nonce))))
			p.size = d.uvarint()
			c.pieces = append(c.pieces, p)
		}
		chunks = append(chunks, c)
	}
	return chunks
}
