package demo

import (
	"fmt"
	"sync"
)

// ledger knows which messages, by number from 1, were acknowledged to the sender and which the receiver got. It can be used
// concurrently.
type ledger struct {
	mu       sync.Mutex
	sent     int          // numbers given out
	stored   int          // acknowledged
	refused  int          // that the sender was told are not stored
	got      map[int]int  // how often each came
	strange  int          // that came and were never sent
	isStored map[int]bool // that were acknowledged
}

func newLedger() *ledger { return &ledger{got: map[int]int{}, isStored: map[int]bool{}} }

func (l *ledger) next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	return l.sent
}

func (l *ledger) outcome(n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.refused++
		return
	}
	l.stored++
	l.isStored[n] = true
}

func (l *ledger) received(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 1 || n > l.sent {
		l.strange++
		return
	}
	l.got[n]++
}

// now returns how many messages were sent, are acknowledged, and came at least once.
func (l *ledger) now() (sent, stored, got int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent, l.stored, len(l.got)
}

// complete tells that every acknowledged message has come.
func (l *ledger) complete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost() == 0
}

func (l *ledger) lost() (n int) {
	for k := range l.isStored {
		if l.got[k] == 0 {
			n++
		}
	}
	return n
}

// verdict returns the account, and whether it is as it must be.
func (l *ledger) verdict() (text string, right bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := 0
	for _, times := range l.got {
		if times > 1 {
			again++
		}
	}
	lost := l.lost()
	text = fmt.Sprintf("%d sent, %d acknowledged; %d received, %d of them a second time; %d lost, %d never sent",
		l.sent, l.stored, len(l.got), again, lost, l.strange)
	return text, lost == 0 && l.strange == 0 && l.stored > 0
}
