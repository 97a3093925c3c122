package journals

import (
	"fmt"
	"strings"
)

// RaiseLimit says how a journal is made to take records, or parts of snapshots, of some bytes.
func RaiseLimit(text string, bytes int, part bool) string {
	scheme, _, _ := strings.Cut(text, ":")
	option, kib := "max-record", (bytes+1023)>>10
	if part && scheme != "hbase" {
		option = "max-part"
	}
	switch scheme {
	case "nats":
		return fmt.Sprintf("set max_payload of every NATS server to %dKB or more (and max_msg_size of the JetStream stream, if it has one)", kib+4)
	case "mongodb", "mongodb+srv":
		return "MongoDB's documents cannot be larger, so choose another journal"
	case "postgres", "postgresql", "cassandra", "hbase":
		return fmt.Sprintf("add %s=%dKiB to its URL, here and for its brokers", option, kib)
	case "pebble", "segment":
		if !part {
			return fmt.Sprintf("add %s=%dKiB to its URL, here and for its brokers", option, kib)
		}
	}
	return "choose another journal"
}
