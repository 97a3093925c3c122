package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/delivery/deliverytest"
)

// simulation is one run of producers and a consumer over a lossy network, in virtual time. What it draws from its
// seed: how bad the network is, the options of both sides, how slow handlers are and how often they fail, and who
// is restarted when.
type simulation struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand // of the scenario; not used concurrently
	network *deliverytest.Network

	consumerOptions delivery.ConsumerOptions[order]
	failures        float64
	slowness        time.Duration

	mu        sync.Mutex
	direct    switchable[order]  // messages as they are
	remote    switchable[[]byte] // or as bytes
	consumer  *delivery.ConsumerController[order]
	lives     int // of the consumer
	attempts  map[string]int
	handled   map[identity]map[int]int // how often a message was handled, in which life of the consumer
	last      map[identity]uint64      // by producer and life, the number handled last
	confirmed map[string]bool
	acked     map[identity]int // the life of the consumer in which a message's confirmation came
	running   map[string]bool  // by producer id
}

type order struct {
	Producer string
	N        int
}

// identity is a message by its number, as the protocol sees it; seq 0 stands for the producer.
type identity struct {
	id, incarnation string
	seq             uint64
	life            int
}

// switchable is the way to the consumer that is alive now.
type switchable[B any] struct {
	mu sync.Mutex
	to delivery.Link[B]
}

func (s *switchable[B]) set(to delivery.Link[B]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
}

func (s *switchable[B]) now() delivery.Link[B] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to
}

func (s *switchable[B]) Deliver(d delivery.Delivery[B]) error { return s.now().Deliver(d) }
func (s *switchable[B]) Farewell(f delivery.Farewell) error   { return s.now().Farewell(f) }

func (s *simulation) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("seed %d: %s", s.seed, fmt.Sprintf(format, args...))
}

// errorf is fatalf for other goroutines than the test's.
func (s *simulation) errorf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("seed %d: %s", s.seed, fmt.Sprintf(format, args...))
}

func (s *simulation) chance(p float64) bool { return s.r.Float64() < p }

func (s *simulation) startConsumer() {
	c, err := delivery.NewConsumerController(s.consumerOptions, s.handler(s.lives))
	if err != nil {
		s.fatalf("%v", err)
	}
	s.consumer = c
	// What is on its way to a consumer that dies, dies with it, as a connection's bytes do.
	s.direct.set(deliverytest.Over(s.network, delivery.Link[order](c)))
	s.remote.set(deliverytest.Over(s.network, c.Remote()))
}

// handler returns the handler of the consumer's present life. Its decisions are drawn from the seed and the message.
func (s *simulation) handler(life int) func(context.Context, order) error {
	return func(ctx context.Context, o order) error {
		m, ok := delivery.MetadataOf(ctx)
		if !ok {
			s.errorf("no metadata")
		}
		body := fmt.Sprint(o.Producer, " ", o.N)
		s.mu.Lock()
		s.attempts[body]++
		draw := rand.New(rand.NewPCG(s.seed, uint64(o.N)<<20|uint64(s.attempts[body])<<8|uint64(len(o.Producer))))
		lane := fmt.Sprint(m.ProducerID, life)
		if s.running[lane] {
			s.errorf("two handlers of %s at once", lane)
		}
		s.running[lane] = true
		s.mu.Unlock()
		if draw.Float64() < 0.3 {
			pause(time.Duration(draw.Int64N(int64(s.slowness) + 1)))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running[lane] = false
		if draw.Float64() < s.failures {
			if draw.Float64() < 0.2 {
				panic("boom")
			}
			return errors.New("not now")
		}
		if ctx.Err() != nil {
			return ctx.Err() // the consumer was closed: this life's work does not count
		}
		k := identity{m.ProducerID, m.Incarnation, m.Seq, 0}
		if s.handled[k] == nil {
			s.handled[k] = map[int]int{}
		}
		s.handled[k][life]++
		s.checkOnce(k, life)
		p := identity{m.ProducerID, m.Incarnation, 0, life}
		for seq := s.last[p] + 1; s.consumerOptions.InOrder && s.last[p] > 0 && seq < m.Seq; seq++ {
			// A gap is one that an earlier life of the consumer has closed.
			if len(s.handled[identity{m.ProducerID, m.Incarnation, seq, 0}]) == 0 {
				s.errorf("in order: %v after %d", k, s.last[p])
			}
		}
		if s.consumerOptions.InOrder && m.Seq <= s.last[p] {
			s.errorf("in order: %v after %d", k, s.last[p])
		}
		s.last[p] = m.Seq
		return nil
	}
}

// checkOnce is the promise: within one life of the consumer a message is handled at most once; after a restart of
// the consumer, again only if its acknowledgement had not arrived by then.
func (s *simulation) checkOnce(k identity, life int) {
	if s.handled[k][life] > 1 {
		s.errorf("%v handled %d times in one life of the consumer", k, s.handled[k][life])
	}
	if at, ok := s.acked[k]; ok && at < life {
		s.errorf("%v was confirmed in life %d of the consumer and handled again in life %d", k, at, life)
	}
}

// produce is one producer program: it sends n messages, each until it is confirmed, through restarts of its controller.
func (s *simulation) produce(id string, n int, r *rand.Rand, restarts int) {
	next, outstanding := 0, map[int]bool{}
	for round := 0; ; round++ {
		o := delivery.ProducerOptions[order]{ProducerID: id, WindowSize: 1 + r.IntN(40), Consumer: &s.direct}
		if r.IntN(3) == 0 { // in frames that some messages are too large for
			o.Consumer, o.Remote, o.MaxFrameBytes = nil, &s.remote, 12+r.IntN(40)
		}
		p, err := delivery.NewProducerController(o)
		if err != nil {
			s.errorf("%v", err)
			return
		}
		again := make([]int, 0, len(outstanding))
		for i := range n { // in order
			if outstanding[i] {
				again = append(again, i)
			}
		}
		stopAt := -1
		if restarts > 0 {
			stopAt = r.IntN(n)
			restarts--
		}
		var mu sync.Mutex
		seq := uint64(0)
		post := func(i int) bool {
			if i == stopAt {
				return false
			}
			mu.Lock()
			outstanding[i] = true
			mu.Unlock()
			seq++
			k := identity{id, p.Incarnation(), seq, 0}
			err := p.PostFunc(context.Background(), order{id, i}, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					delete(outstanding, i)
					s.confirm(k, order{id, i})
				} else if !errors.Is(err, delivery.ErrStopped) {
					s.errorf("confirmed with %v", err)
				}
			})
			if err != nil {
				s.errorf("post: %v", err)
			}
			return err == nil
		}
		crashed := false
		for _, i := range again {
			mu.Lock()
			todo := outstanding[i]
			mu.Unlock()
			if todo && !post(i) {
				crashed = true
				break
			}
		}
		for !crashed && next < n {
			if !post(next) {
				crashed = true
				break
			}
			next++
			if r.Float64() < 0.1 {
				pause(time.Duration(r.IntN(2000)) * time.Millisecond)
			}
		}
		if crashed {
			p.Close()
			<-p.Stopped()
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 6*time.Hour)
		err = p.Shutdown(ctx)
		cancel()
		if err != nil {
			s.errorf("producer %s did not end: %v, %+v; consumer %+v", id, err, p.Stats(), s.consumer.Stats())
		}
		<-p.Stopped()
		if st := p.Stats(); err == nil && (st.Sent != st.Confirmed || st.Unconfirmed != 0) {
			s.errorf("producer %s ended with %+v", id, st)
		}
		return
	}
}

func (s *simulation) confirm(k identity, o order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed[fmt.Sprint(o.Producer, " ", o.N)] = true
	s.acked[k] = s.lives
	if len(s.handled[k]) == 0 {
		s.errorf("%v confirmed and never handled", k)
	}
}

func (s *simulation) run() {
	s.r = rand.New(rand.NewPCG(s.seed, 77))
	s.attempts, s.handled, s.last = map[string]int{}, map[identity]map[int]int{}, map[identity]uint64{}
	s.confirmed, s.acked, s.running = map[string]bool{}, map[identity]int{}, map[string]bool{}
	s.network = deliverytest.NewNetwork(s.seed, deliverytest.Faults{
		Drop: s.r.Float64() * 0.5, Duplicate: s.r.Float64() * 0.3, Split: s.r.Float64(), Refuse: s.r.Float64() * 0.1,
		MaxDelay: time.Duration(s.r.IntN(3)*s.r.IntN(400)) * time.Millisecond,
	})
	s.consumerOptions = delivery.ConsumerOptions[order]{
		InOrder: s.chance(0.3), MaxConcurrent: 1 + s.r.IntN(4),
		MaxWaiting: 4 + s.r.IntN(60), MaxWaitingPerProducer: 1 + s.r.IntN(30), MaxProducers: 10,
	}
	s.failures = s.r.Float64() * s.r.Float64() * 0.5
	s.slowness = time.Duration(1+s.r.IntN(3000)) * time.Millisecond
	s.startConsumer()

	consumerRestarts := 0
	if s.chance(0.4) {
		consumerRestarts = 1 + s.r.IntN(3)
	}
	var producers sync.WaitGroup
	total := 0
	for i := range 1 + s.r.IntN(3) {
		producerRestarts := 0
		if s.chance(0.4) {
			producerRestarts = 1 + s.r.IntN(3)
		}
		n, seed := 5+s.r.IntN(60), s.r.Uint64()
		total += n
		producers.Go(func() {
			s.produce(fmt.Sprint("p", i), n, rand.New(rand.NewPCG(seed, 1)), producerRestarts)
		})
	}
	done := make(chan struct{})
	var chaos sync.WaitGroup
	chaos.Go(func() { s.chaos(done, consumerRestarts) })
	producers.Wait()
	close(done)
	chaos.Wait()

	s.mu.Lock()
	if len(s.confirmed) != total {
		s.errorf("%d of %d messages confirmed", len(s.confirmed), total)
	}
	s.mu.Unlock()
	s.checkBounds()
	s.consumer.Close()
	<-s.consumer.Stopped()
}

// chaos restarts the consumer and cuts the network now and then, and looks at the bounds.
func (s *simulation) chaos(done chan struct{}, restarts int) {
	r := rand.New(rand.NewPCG(s.seed, 78))
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(100+r.IntN(3000)) * time.Millisecond):
		}
		s.checkBounds()
		switch {
		case restarts > 0 && r.IntN(3) == 0:
			restarts--
			s.consumer.Close()
			defer func(c *delivery.ConsumerController[order]) { <-c.Stopped() }(s.consumer)
			s.mu.Lock()
			s.lives++
			s.mu.Unlock()
			s.startConsumer()
		case r.IntN(5) == 0:
			s.network.Cut()
			pause(time.Duration(r.IntN(5000)) * time.Millisecond)
			s.network.Heal()
		}
	}
}

// checkBounds is G4: nothing grows beyond its option.
func (s *simulation) checkBounds() {
	st := s.consumer.Stats()
	o := s.consumerOptions
	if st.Unsettled > o.MaxWaiting || st.Producers > o.MaxProducers || st.Running > o.MaxConcurrent {
		s.errorf("out of bounds: %+v", st)
	}
	if st.DeadLetters != 0 || st.AckErrors != 0 {
		s.errorf("dead letters or failed acknowledgements: %+v", st)
	}
}

// Simulation over the lossy link in virtual time (issue, design §6): every confirmed message was handled; at most once
// in a life of the consumer, so exactly once if nobody restarts; after a restart of the consumer again only
// if it was unacknowledged; in order where asked for; in bounds; and every run ends.
func TestSimulation(t *testing.T) {
	runs := uint64(150)
	if soak() {
		runs = 10_000
	}
	first := uint64(1)
	if v, err := strconv.ParseUint(os.Getenv("HOLDFAST_SEED"), 10, 64); err == nil {
		first, runs = v, 1
	}
	t.Logf("seeds %d…%d", first, first+runs-1)
	for seed := first; seed < first+runs && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			(&simulation{t: t, seed: seed}).run()
		})
	}
}

// pause waits in the virtual time of the simulation.
func pause(d time.Duration) { <-time.After(d) }
