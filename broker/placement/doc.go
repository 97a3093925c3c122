// Package placement decides which of several brokers that share a journal is to have which queue. It is pure: what is in the store's
// table of members comes in, with the time at which it was read on this broker's own monotonic clock, and owners come out.
//
// # Who lives
//
// Each broker counts up a beat in its entry. Another one takes it for living while it sees that change, whatever the clocks of both
// machines say: what counts is the time on the observer's clock since it last saw a change. After Expiry without one it is expired.
// Time in which the observer itself did not look does not count, so that one that was held up, or that could not reach the store
// together with all others, does not take everybody for dead. An entry that has not been seen to change yet may be of a living
// broker: it counts as such for one Expiry.
//
// # Who is to have a queue
//
// The candidate with the highest rendezvous hash of its id and the queue's name. Brokers that leave are no candidates; nor are those that
// have begun, or come back after they could not renew their entry in time, less than one Expiry ago, unless there are only such: so a
// broker that flaps does not move queues to and fro. A broker that published that it cannot open a queue is passed over for it, unless all did.
//
// Being the owner by this rule is a reason to call Acquire, and nothing more: the epoch in the store decides. Where views differ for
// a while, two brokers may take a queue from each other; each time one is fenced it waits, one Expiry at first and then twice as
// long each time, before it competes for that queue again.
//
// # Who may still hand out
//
// A broker counts the time from before its last successful renewal. Once that is Expiry, the others, who cannot have
// seen the renewal earlier, may have replaced it, and it stops by itself. Where there are no others, it goes on.
package placement
