package persistent

import "github.com/holdfastmq/holdfast/journal"

// Journal returns the actor's hold on its stream, for what goes beside its events: reading and discarding bodies. It may
// be used from any goroutine until the actor ends; appending, discarding metas and releasing are the actor's alone.
func (a *Context[E]) Journal() journal.Stream { return a.st }

// Fail ends the actor like Kill, with a cause of the caller's: damage that it found in what the actor has stored, say. Err
// tells it, and so do the errors of all who wait.
func (a *Actor[C, E]) Fail(cause error) { a.kill(cause) }
