// Package killtest kills the real binary under load, starts it again, and judges what senders and receivers saw of that.
//
//   - History judges: it is told what was sent, acknowledged, handed out and settled, and knows what may not be.
//   - Broker is a broker process that can be killed and comes back at the same address.
//   - Load is senders and receivers that go on over all kills.
package killtest
