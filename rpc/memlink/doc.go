// Package memlink has a [holdfast.Link] for tests of what stands over one: queues in memory with the rules that matter
// to a link's users (dedup, credit, leases, sessions), and nothing else. Its answers can be withheld, and its
// streams broken at will.
package memlink
