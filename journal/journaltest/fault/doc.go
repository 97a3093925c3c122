// Package fault wraps a journal for tests: calls can be held up, delayed, made to fail before or
// after they take effect, answered with "storage full", or hit by a power cut; chosen one by one
// or by seed.
//
//	j := fault.New(memory.New(), fault.Options{})
//	j.Next(fault.Append, fault.LoseAnswer())          // stored, told as unknown
//	j.Next(fault.Append, fault.HoldBefore(release))   // until release is closed
//	j.Pause()                                         // the store hangs …
//	j.Resume()                                        // … and answers again
//	j.SetFull(true)                                   // ErrFull for appends and parts
//	j.SetPlan(fault.Seeded(seed, fault.Rates{Before: 0.05, After: 0.05}))
//
// It has no clock but the time package's, and starts a goroutine only for [Fault.Late], so it works
// in a testing/synctest bubble.
package fault
