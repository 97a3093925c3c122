// Package embedded has the suites that journals in a directory of local disk share beyond package journaltest's: a broker on the store whose
// power is cut at any operation, a small disk that becomes full, the lock of the directory, and benchmarks of a queue in process. A driver's
// tests call them:
//
//	func TestQueuePowerCut(t *testing.T) { embedded.TestPowerCut(t, newDisk) }
//
// Random tests log their seeds; HOLDFAST_SEED repeats one, HOLDFAST_SOAK=1 runs them at full counts.
package embedded
