package persistent

import (
	"runtime"
	"sync"
)

// Pool has the turns of many actors done by a few goroutines, in the order in which they have got something to do. It serves programs with hundreds of actors
// that are busy at the same time: with a goroutine for each, whatever they all wait for, such as the one that commits what they have decided, gets
// its turn only when all of them had theirs; and each of them needs a stack, which grows and shrinks. It asks something of their behaviors: none of
// their methods may wait.
//
// The zero value is a pool of GOMAXPROCS goroutines, which it has while it has actors. It must not be copied.
type Pool struct {
	mu      sync.Mutex
	cond    sync.Cond
	tasks   fifo[task]
	members int // actors
	workers int // goroutines
	idle    int // of them, those that wait
}

// task is an actor that has something to do.
type task interface {
	// turn does what there is to do, or some of it: then it has put itself into the pool again.
	turn()
}

// turnsAtOnce is how many turns a goroutine of a pool does before it lets others of the program run.
const turnsAtOnce = 4

// join counts an actor, leave one that has ended.
func (p *Pool) join() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cond.L == nil { // those that wait read it without the lock
		p.cond.L = &p.mu
	}
	p.members++
}

func (p *Pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members--; p.members == 0 {
		p.idle = 0
		p.cond.Broadcast()
	}
}

// submit has a turn done.
func (p *Pool) submit(t task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tasks.push(t)
	switch {
	case p.idle > 0:
		p.idle--
		p.cond.Signal()
	case p.workers < runtime.GOMAXPROCS(0):
		p.workers++
		go p.work()
	}
}

// next waits for a task. There are none any more once it returns nil.
func (p *Pool) next() task {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.tasks.len() == 0 {
		if p.members == 0 {
			p.workers--
			return nil
		}
		p.idle++
		p.cond.Wait()
	}
	return p.tasks.pop()
}

func (p *Pool) work() {
	ended := false
	defer func() {
		if !ended { // by a behavior
			go p.work()
		}
	}()
	for n := 1; ; n++ {
		t := p.next()
		if t == nil {
			ended = true
			return
		}
		t.turn()
		if n%turnsAtOnce == 0 {
			runtime.Gosched()
		}
	}
}
