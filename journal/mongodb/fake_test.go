package mongodb

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfastmq/holdfast/journal"
)

// fake is a server of MongoDB's protocol that answers each command as told. FerretDB 1.24 on SQLite knows neither users nor replica sets, and
// what a real MongoDB answers where rights are missing is documented.
type fake struct {
	addr string
	// answers are those by command; nil, and none, is {ok: 1}.
	answers map[string]bson.D
}

func startFake(t *testing.T, answers map[string]bson.D) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: l.Addr().String(), answers: answers}
	var wg sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[conn] = true
			mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				for f.answer(conn) == nil {
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return f
}

// Kinds of messages.
const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
)

// answer reads a request and answers it.
func (f *fake) answer(conn net.Conn) error {
	var head [16]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	body := make([]byte, binary.LittleEndian.Uint32(head[:])-16)
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	kind := binary.LittleEndian.Uint32(head[12:])
	doc := body[5:] // flags, and the section's kind
	if kind == opQuery {
		doc = body[4+strings.IndexByte(string(body[4:]), 0)+1+8:] // flags, the collection's name, how many
	}
	elements, err := bson.Raw(doc).Elements()
	if err != nil {
		return err
	}
	said, err := bson.Marshal(f.say(elements[0].Key()))
	if err != nil {
		return err
	}
	reply, prefix := uint32(opMsg), []byte{0, 0, 0, 0, 0}
	if kind == opQuery {
		reply, prefix = opReply, make([]byte, 20)
		prefix[16] = 1 // document
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(16+len(prefix)+len(said)))
	out = binary.LittleEndian.AppendUint32(out, 1)
	out = append(out, head[4:8]...)
	out = binary.LittleEndian.AppendUint32(out, reply)
	_, err = conn.Write(append(append(out, prefix...), said...))
	return err
}

func (f *fake) say(command string) bson.D {
	if d := f.answers[command]; d != nil {
		return d
	}
	switch strings.ToLower(command) {
	case "hello", "ismaster":
		return bson.D{
			{Key: "ok", Value: 1}, {Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "helloOk", Value: true},
			{Key: "setName", Value: "rs0"}, {Key: "setVersion", Value: 1}, {Key: "hosts", Value: bson.A{f.addr}}, {Key: "me", Value: f.addr}, {Key: "primary", Value: f.addr},
			{Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 25}, {Key: "logicalSessionTimeoutMinutes", Value: 30},
			{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48_000_000}, {Key: "maxWriteBatchSize", Value: 100_000},
		}
	case "find":
		layout := bson.D{{Key: "_id", Value: "layout"}, {Key: "version", Value: schemaVersion}}
		return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "d.schema"}, {Key: "firstBatch", Value: bson.A{layout}}}}}
	case "update":
		return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}}
	}
	return bson.D{{Key: "ok", Value: 1}}
}

func refusal(code int, name, text string) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "codeName", Value: name}, {Key: "errmsg", Value: text}}
}

// G11: what a server of MongoDB's own answers to a wrong password, and where rights or a majority are missing, is told with what to change.
func TestRefusedByServer(t *testing.T) {
	mustOpen(t, "mongodb://"+startFake(t, nil).addr+"/d?timeoutMS=3000", quiet()) // what is refused below is what an answer says, and nothing else
	unauthorized := func(text string) bson.D { return refusal(13, "Unauthorized", text) }
	late := bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}, {Key: "writeConcernError", Value: bson.D{
		{Key: "code", Value: 64}, {Key: "codeName", Value: "WriteConcernTimeout"}, {Key: "errmsg", Value: "waiting for replication timed out"},
	}}}
	for _, c := range []struct {
		name    string
		answers map[string]bson.D
		is      error
		want    string
	}{
		{"password", map[string]bson.D{"saslStart": refusal(18, "AuthenticationFailed", "Authentication failed.")}, nil, "the server refuses the user or its password; correct them in the URL"},
		{"no user", map[string]bson.D{"find": unauthorized("Command find requires authentication")}, nil, "mongodb://USER:PASSWORD@"},
		{"no right to read", map[string]bson.D{"find": unauthorized("not authorized on d to execute command { find: \"schema\" }")}, nil, "give it the role readWrite"},
		{"no right to write", map[string]bson.D{"update": unauthorized("not authorized on d to execute command { update: \"confirm\" }")}, nil, "give it the role readWrite"},
		{"no majority", map[string]bson.D{"update": late}, nil, "no majority of the replica set acknowledges a write"},
		{"no journal", map[string]bson.D{"collStats": {{Key: "ok", Value: 1}, {Key: "inMemory", Value: bson.D{}}}}, journal.ErrWeak, "storage engine is inMemory"},
		{"router", map[string]bson.D{"hello": {
			{Key: "ok", Value: 1}, {Key: "isWritablePrimary", Value: true}, {Key: "msg", Value: "isdbgrid"}, {Key: "maxWireVersion", Value: 25}, {Key: "maxBsonObjectSize", Value: 16 << 20},
		}}, journal.ErrInvalid, "name the hosts of a replica set"},
	} {
		user := ""
		if c.name == "password" {
			user = "u:secret@"
		}
		t.Run(c.name, func(t *testing.T) {
			refused(t, "mongodb://"+user+startFake(t, c.answers).addr+"/d?timeoutMS=3000", c.is, c.want)
		})
	}
}

// G11: a server that cannot be talked to is told from one that refuses.
func TestUnreachable(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections are taken by the system, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, host := range []string{silent.Addr().String(), "no-such-host.invalid", "127.0.0.1:1"} {
		refused(t, "mongodb://"+host+"/d?timeoutMS=500", nil, "no server that can be written to answers; correct the hosts")
	}
}
