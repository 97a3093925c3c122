package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
)

func sampleManifest() *manifest {
	return &manifest{
		uid:   UID{1, 15: 2},
		id:    SnapshotID{Seq: 1000, Epoch: 3, CRC: 0xa1b2c3d4, Time: 1_800_000_000_000},
		nonce: nonce{9, 7: 8},
		chunks: []chunk{
			{inline: []byte("small")},
			{pieces: []piece{{hash: hashOf([]byte("one")), nonce: nonce{1}, size: 3}, {hash: hashOf([]byte("three")), nonce: nonce{2}, size: 5}}},
			{inline: []byte{}},
		},
	}
}

// goldenManifest is sampleManifest as version 1 writes it. It must never change: stores hold it.
const goldenManifest = "4846530101000000000000000000000000000002e8030000000000000300000000000000d4c3b2a10050" +
	"5c18a3010000030005736d616c6c027692c3ad3540bb803c020b3aee66cd88010000000000000003" +
	"8b5b9db0c13db24256c829aa364aa90c020000000000000005000004a6fe44"

// §3: the manifest format is fixed.
func TestManifestGolden(t *testing.T) {
	m := sampleManifest()
	b := m.encode()
	if got := hex.EncodeToString(b); got != goldenManifest {
		t.Fatalf("encoded as\n%s, want\n%s", got, goldenManifest)
	}
	const name = "m/00000000000003e8-0000000000000003-0900000000000008"
	if m.name() != name {
		t.Fatalf("named %s, want %s", m.name(), name)
	}
	got, err := decodeManifest(name, b)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("decoded as %+v, %v", got, err)
	}
	if p := m.chunks[1].pieces[0]; p.name() != "c/7692c3ad3540bb803c020b3aee66cd88-0100000000000000" {
		t.Fatalf("piece named %s", p.name())
	}
}

// §4: every changed or missing byte of a manifest, and a wrong name, is found.
func TestManifestDamage(t *testing.T) {
	m := sampleManifest()
	good := m.encode()
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		want := ErrCorrupt
		if i == 3 {
			want = ErrNewerFormat
		}
		if _, err := decodeManifest(m.name(), bad); !errors.Is(err, want) {
			t.Errorf("byte %d changed: %v, want %v", i, err, want)
		}
		if _, err := decodeManifest(m.name(), good[:i]); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerFormat) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	other := *m
	other.id.Seq++
	for _, name := range []string{other.name(), "m/", "m/x-y-z", "c/1", m.name() + "0"} {
		if _, err := decodeManifest(name, good); !errors.Is(err, ErrCorrupt) {
			t.Errorf("under the name %q: %v, want ErrCorrupt", name, err)
		}
	}
}

// §12: no manifest makes the decoder panic or allocate without bound.
func FuzzDecodeManifest(f *testing.F) {
	m := sampleManifest()
	f.Add(m.encode())
	f.Add(binary.AppendUvarint(m.encode()[:manifestFixed], 1<<60))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= manifestFixed+4 {
			copy(b, m.encode()[:manifestFixed])
			binary.LittleEndian.PutUint32(b[len(b)-4:], Checksum(b[:len(b)-4]))
		}
		got, err := decodeManifest(m.name(), b)
		if err != nil {
			return
		}
		again, err := decodeManifest(m.name(), got.encode())
		if err != nil || len(again.chunks) != len(got.chunks) {
			t.Fatalf("%+v becomes %+v, %v", got, again, err)
		}
	})
}
