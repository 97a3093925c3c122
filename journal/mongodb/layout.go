package mongodb

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfastmq/holdfast/journal"
)

// schemaVersion is the version of the layout that this package writes.
const schemaVersion = 1

// Collections of a journal's database.
const (
	schemaName  = "schema"  // one document with the layout's version
	recordsName = "records" // recordDoc
	controlName = "control" // controlDoc
	partsName   = "parts"   // partDoc
	membersName = "members" // memberDoc
	confirmName = "confirm" // one document for each handle, written to make sure of what was written before
)

// key is the _id of number n of a stream's lane: such keys sort by stream and number. Names hold no byte below the space.
func key(stream string, n int64) string { return fmt.Sprintf("%s\t%016x", stream, n) }

// lane matches the _ids of a stream's lane.
func lane(stream string) bson.D {
	return bson.D{{Key: "$gt", Value: stream + "\t"}, {Key: "$lt", Value: stream + "\n"}}
}

// recordDoc is a document of the record lane: a record, or a mark, which has no First.
//
// Of a record whose body or meta is discarded the field is gone; where both are, the document is, unless its number could be taken by
// what an owner sends late.
type recordDoc struct {
	ID     string `bson:"_id"`
	Stream string `bson:"s"`
	Pos    int64  `bson:"p"`
	Owner  int64  `bson:"o"` // the epoch of the owner that inserted it
	First  int64  `bson:"f,omitempty"`
	Last   int64  `bson:"l,omitempty"`
	Header []byte `bson:"h,omitempty"`
	Meta   []byte `bson:"m"` // nil (null) if it is discarded
	Body   []byte `bson:"b,omitempty"`
	Mark   *mark  `bson:"k,omitempty"`
}

// mark says where the stream ends. Its only purpose is to take its number.
type mark struct {
	UID  string `bson:"uid"`
	Rec  int64  `bson:"rec"` // the number of the record before it, 0 if there is none
	End  int64  `bson:"end"`
	CRC  int64  `bson:"crc"`
	Time int64  `bson:"time"`
}

// tip is what the last document of a record lane tells. The zero value is that of a stream that never was.
type tip struct {
	pos   int64
	last  int64 // the number of the last record
	owner uint64
	end   uint64
	crc   uint32
	time  int64
	uid   string          // of a mark
	rec   *journal.Header // nil if it is a mark
}

func parseTip(d *recordDoc) (tip, error) {
	t := tip{pos: d.Pos, owner: uint64(d.Owner)}
	if k := d.Mark; k != nil {
		t.end, t.crc, t.time, t.uid, t.last = uint64(k.End), uint32(k.CRC), k.Time, k.UID, k.Rec
		return t, nil
	}
	h, err := journal.ParseHeader(d.Header)
	if err != nil {
		return t, err
	}
	t.end, t.crc, t.time, t.rec, t.last = h.Last(), h.CRC, h.Time, &h, d.Pos
	return t, nil
}

// controlDoc is a document of the control lane.
type controlDoc struct {
	ID     string  `bson:"_id"`
	Stream string  `bson:"s"`
	V      int64   `bson:"v"`
	Taken  bool    `bson:"t,omitempty"` // by Acquire or Import: it is never removed
	State  control `bson:"c"`
}

// control is the state of a stream that is not in its records.
type control struct {
	Version int    `bson:"version"`
	UID     string `bson:"uid"`
	Epoch   int64  `bson:"epoch"`
	Low     int64  `bson:"low"`   // the lowest seq whose meta is kept, or more than End
	End     int64  `bson:"end"`   // it was at least that when this was written
	Begin   int64  `bson:"begin"` // the first seq of this life of the stream
	Since   int64  `bson:"since"` // the number of this life's first control document
	Dropped bool   `bson:"dropped,omitempty"`
	// Fences tell where the stream ended when an epoch was over, the newest last.
	Fences []fence `bson:"fences,omitempty"`
	// Gone bodies are discarded, whether or not they are removed yet.
	Gone []span `bson:"gone,omitempty"`
	// Parts were written, and GoneParts deleted, lately: their documents do not tell yet.
	Parts     []partRef  `bson:"parts,omitempty"`
	GoneParts []partGone `bson:"goneParts,omitempty"`
}

type fence struct {
	Epoch int64 `bson:"e"`
	End   int64 `bson:"end"`
	CRC   int64 `bson:"crc"`
	Rec   int64 `bson:"p"` // the number of the last record
	V     int64 `bson:"v"` // of the control document
}

// maxFences bounds how many epochs a stream remembers the ends of.
const maxFences = 64

// span is the records that lie wholly in From…To.
type span struct {
	From int64 `bson:"f"`
	To   int64 `bson:"t"`
}

// partRef is a part's document; V is the number of the control document that made it valid.
type partRef struct {
	Name string `bson:"n"`
	ID   string `bson:"id"`
	V    int64  `bson:"v"`
}

// partGone says that documents of a part that became valid before V are deleted.
type partGone struct {
	Name string `bson:"n"`
	V    int64  `bson:"v"`
}

// partDoc is a part. It is valid if V is set, or if the control state refers to it; of several, that with the highest V.
type partDoc struct {
	ID     string `bson:"_id"`
	Stream string `bson:"s"`
	Name   string `bson:"n"`
	Epoch  int64  `bson:"e"`
	V      int64  `bson:"v"`
	Data   []byte `bson:"d"`
}

type memberDoc struct {
	ID   string `bson:"_id"`
	Data []byte `bson:"d"`
}

func (c *control) clone() *control {
	n := *c
	n.Fences, n.Gone = slices.Clone(c.Fences), slices.Clone(c.Gone)
	n.Parts, n.GoneParts = slices.Clone(c.Parts), slices.Clone(c.GoneParts)
	return &n
}

// bodyGone tells whether the body of the record first…last is discarded.
func (c *control) bodyGone(first, last int64) bool {
	return first < c.Begin || slices.ContainsFunc(c.Gone, func(s span) bool { return s.From <= first && last <= s.To })
}

// validPart returns the number under which a part's document is valid, 0 if it is not.
func (c *control) validPart(d *partDoc) int64 {
	v := d.V
	for _, p := range c.Parts {
		if p.ID == d.ID {
			v = p.V
		}
	}
	if v < c.Since || slices.ContainsFunc(c.GoneParts, func(g partGone) bool { return g.Name == d.Name && v < g.V }) {
		return 0
	}
	return v
}

// endOf returns where the stream ended when epoch was over.
func (c *control) endOf(epoch uint64) (fence, bool) {
	i := slices.IndexFunc(c.Fences, func(f fence) bool { return uint64(f.Epoch) == epoch })
	if i < 0 {
		return fence{}, false
	}
	return c.Fences[i], true
}

// keptPositions are the numbers of the record lane that what was sent late could take: those of the last records of earlier owners; marks stay anyway.
func (c *control) keptPositions() []int64 {
	kept := []int64{}
	for _, f := range c.Fences {
		kept = append(kept, f.Rec)
	}
	return kept
}

// keptControls is the same of the control lane.
func (c *control) keptControls() []int64 {
	kept := []int64{}
	for _, f := range c.Fences {
		kept = append(kept, f.V-1)
	}
	return kept
}
