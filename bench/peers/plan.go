package main

import (
	"fmt"
	"time"
)

// Rough times, for the estimate alone: of starting and ending a server, of what comes around a measurement, and of seeing whether a peer syncs.
const (
	groupTime   = 7 * time.Second
	aroundTime  = 1500 * time.Millisecond
	syncsTime   = 3 * time.Second
	ceilingTime = 2 * time.Second
)

// plan is what is to be measured, and how much of it is done.
type plan struct {
	began       time.Time
	steps, step int
	all         time.Duration // estimated
}

func newPlan(groups [][]*peer, loads []load, runs int, syncs bool) *plan {
	p := &plan{began: time.Now()}
	for _, g := range groups {
		p.all += time.Duration(runs) * (groupTime + g[0].warm)
		for _, x := range g {
			if syncs && x.synced && x.does(load{kind: "send"}) {
				p.all += syncsTime
			}
			for _, l := range loads {
				if x.does(l) {
					p.steps += runs
					p.all += time.Duration(runs) * stepTime(x, l)
				}
			}
		}
	}
	return p
}

// stepTime is about how long one measurement takes.
func stepTime(p *peer, l load) time.Duration {
	t := l.warmup + l.duration + aroundTime
	if p.program != nil {
		t += max(warmClient-l.warmup, 0)
	}
	if p.name == own {
		t += ceilingTime
	}
	return t
}

func (p *plan) announce() string {
	return fmt.Sprintf("%d measurements, about %s; what there is by then is kept on Ctrl-C", p.steps, minutes(p.all))
}

// done counts a measurement, and says how far it all is.
func (p *plan) done() string {
	p.step++
	// Starts and ends are spread over the measurements.
	part := float64(p.step) / float64(p.steps)
	left := time.Duration(float64(p.all) * (1 - part))
	if p.step > 10 {
		left = time.Duration(float64(time.Since(p.began)) * (1 - part) / part)
	}
	return fmt.Sprintf("%3d of %d, %s left", p.step, p.steps, minutes(left))
}

func minutes(d time.Duration) string {
	if d < 90*time.Second {
		return fmt.Sprintf("%d s", int(d.Seconds()+0.5))
	}
	return fmt.Sprintf("%d min", int(d.Minutes()+0.5))
}
