package rpc

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/rpc/transport"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

const (
	// deliverTarget is how many bytes of messages a Deliver frame holds, unless a single message is larger. Frames of
	// other streams go between.
	deliverTarget = 256 << 10
	// deliverRuns is how many runs it holds.
	deliverRuns = 512
	// minDeliver is the least that a client must take in one frame.
	minDeliver = 64 << 10
)

// deliverer writes the messages of one receiver. It is used by one goroutine at a time.
type deliverer struct {
	t        *transport.Conn
	id       uint32
	maxFrame int

	runs     []wire.Run // of the frame that is being put together
	data     int        // their length
	messages uint64     // their number
	bytes    uint64     // what they count towards credit
	head     []byte
	bulk     [][]byte
}

// send queues runs in frames of at most maxFrame bytes. Their data is not copied, unless it is short.
func (d *deliverer) send(t *transport.Conn, id uint32, maxFrame int, runs []holdfast.Run) error {
	d.t, d.id, d.maxFrame = t, id, maxFrame
	for i := range runs {
		if err := d.add(&runs[i]); err != nil {
			return err
		}
	}
	d.flush()
	return nil
}

// add puts a run into frames, cut between messages where one gets too long.
func (d *deliverer) add(run *holdfast.Run) error {
	limit := min(deliverTarget, wire.DeliverRoom(d.maxFrame, deliverRuns))
	most := wire.DeliverRoom(d.maxFrame, 1)
	rest := *run // what is not in a frame yet
	data := run.Data
	var n, size uint64 // of rest, what data is past
	length := 0
	for range run.Count {
		one, counts := measure(data)
		if one == 0 {
			return fmt.Errorf("messages from seq %d on: the broker has fewer than %d of them in hand", run.Seq, run.Count)
		}
		if d.data+length > 0 && d.data+length+one > limit || len(d.runs) >= deliverRuns {
			d.put(&rest, n, length, size)
			d.flush()
			n, length, size = 0, 0, 0
		}
		if one > most {
			return fmt.Errorf("message at seq %d: %w", rest.Seq, &message.FieldError{
				Field: "message", Fault: fmt.Sprintf("takes %d bytes, more than the client takes in a frame", one), Limit: fmt.Sprintf("%d bytes", most)})
		}
		n, length, size = n+1, length+one, size+uint64(counts)
		data = data[one:]
	}
	d.put(&rest, n, length, size)
	return nil
}

// measure returns the length of the first encoded message of data, and what of it counts towards credit; 0 if there is none
// whole.
func measure(data []byte) (encoded, counts int) {
	for range 2 { // attributes, body
		n, k := binary.Uvarint(data[encoded:])
		if k <= 0 || n > uint64(len(data)-encoded-k) {
			return 0, 0
		}
		encoded += k + int(n)
		counts += int(n)
	}
	return encoded, counts
}

// put adds the first n messages of rest, which are length bytes long, and takes them off it.
func (d *deliverer) put(rest *holdfast.Run, n uint64, length int, size uint64) {
	if n == 0 {
		return
	}
	run := wire.Run{Delivery: rest.Delivery, Data: rest.Data[:length:length]}
	run.Count = n
	d.runs = append(d.runs, run)
	d.data += length
	d.messages += n
	d.bytes += size
	rest.Data = rest.Data[length:]
	rest.Seq += n
	rest.Lease += n
	rest.Count -= n
}

// flush queues the frame.
func (d *deliverer) flush() {
	if len(d.runs) == 0 {
		return
	}
	// The header, with the checksum of everything, is made before the connection's queue is locked.
	d.head = wire.AppendDeliverHeader(d.head[:0], d.id, d.runs)
	d.bulk = d.bulk[:0]
	for i := range d.runs {
		d.bulk = append(d.bulk, d.runs[i].Data)
	}
	d.t.EndBulk(append(d.t.Begin(), d.head...), d.bulk, d.id, d.messages, d.bytes)
	clear(d.runs)
	clear(d.bulk)
	d.runs, d.bulk, d.data, d.messages, d.bytes = d.runs[:0], d.bulk[:0], 0, 0, 0
}
