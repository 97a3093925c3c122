package failovertest

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/internal/testserver"
)

// store is a database that brokers share.
type store struct {
	name string
	// replicated tells that any one of its processes may die.
	replicated bool
	// soak runs it at full counts alone: it takes minutes to start, or more of a small machine than the others of a run leave.
	soak bool
	// stands is for how long it may stand still at most, 0: any time.
	stands time.Duration
	// rounds is how often brokers die at full counts.
	rounds int
	// pace is the pause of each sender between two bursts; 0: 20 ms, and 50 at reduced counts.
	pace time.Duration
	// url makes the URL of a journal of its own of what the server's start script printed.
	url func(s *testserver.Server) string
}

var (
	onPostgres = store{name: "postgres", rounds: 50, url: func(s *testserver.Server) string { return withOptions(s.URL(), unique("schema=t")) }}
	// The receiver that waits for each acknowledgement lets fewer keyed messages through than come at the pace of PostgreSQL: they would pile up by the
	// hundred thousand, and be more than can be received at the end.
	onNATS = store{name: "nats", replicated: true, rounds: 50, pace: 50 * time.Millisecond, url: func(s *testserver.Server) string {
		hosts := []string{}
		for _, u := range s.URLs() {
			hosts = append(hosts, u[strings.LastIndexAny(u, "@/")+1:])
		}
		return withOptions("nats://holdfast:holdfast@"+strings.Join(hosts, ",")+unique("/T"), "sync=always&replicas=3")
	}}
	// FerretDB reads a collection from its beginning for each range of it: what piles up makes it slower than the test can wait for.
	onMongoDB = store{name: "mongodb", soak: true, rounds: 5, pace: 400 * time.Millisecond, url: func(s *testserver.Server) string { return withOptions(s.URL()+unique("/t"), "durable=declared") }}
	// A region server that stood still for its ZooKeeper session (40 s, counted from its last ping) ends itself.
	onHBase = store{name: "hbase", soak: true, stands: 20 * time.Second, rounds: 5, pace: 50 * time.Millisecond, url: func(s *testserver.Server) string { return place(s.URL(), unique("t")) }}
	// One message of each key is in flight at a time, and three nodes on one small machine take about 100 ms for each.
	onCassandra = store{name: "cassandra", replicated: true, soak: true, rounds: 5, pace: 200 * time.Millisecond, url: func(s *testserver.Server) string {
		return withOptions(place(s.URL(), unique("t")), "replication=3")
	}}

	stores = []store{onPostgres, onNATS, onMongoDB, onHBase, onCassandra}
)

var (
	onFlag     = flag.String("on", "", "the store that tests of all stores run on alone, at whichever counts")
	roundsFlag = flag.Int("rounds", 0, "how often brokers die at full counts; 0: as often as the store says")
)

// each runs a test on all stores; at reduced counts on those that can stand a load beside the other tests of a run, and on others that are named.
func each(t *testing.T, test func(t *testing.T, on store), also ...string) {
	for _, s := range stores {
		if *onFlag == s.name || *onFlag == "" && (!s.soak || clitest.Soak() || slices.Contains(also, s.name)) {
			t.Run(s.name, func(t *testing.T) { test(t, s) })
		}
	}
}

// place puts another last part into the path of a URL, and leaves the options of the server out that the store adds itself.
func place(url, last string) string {
	url, query, _ := strings.Cut(url, "?")
	options := slices.DeleteFunc(strings.Split(query, "&"), func(o string) bool { return o == "" || strings.HasPrefix(o, "replication=") })
	url = url[:strings.LastIndexByte(url, '/')+1] + last
	if len(options) > 0 {
		url += "?" + strings.Join(options, "&")
	}
	return url
}

// unique makes an option whose value no other test has.
func unique(option string) string { return fmt.Sprintf("%s%d_%d", option, os.Getpid(), rand.Uint32()) }

func withOptions(url, options string) string {
	if strings.Contains(url, "?") {
		return url + "&" + options
	}
	return url + "?" + options
}

// own starts a server that the test may harm.
func (s store) own(t *testing.T) *testserver.Server {
	t.Helper()
	server, err := testserver.StartOwn(s.name, "CASSANDRA_NODES=3")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, server) })
	return server
}

func stop(t *testing.T, s *testserver.Server) {
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// servers are those that tests share, by name.
var servers = struct {
	mu  sync.Mutex
	all map[string]*testserver.Server
}{all: map[string]*testserver.Server{}}

// journal returns the URL of a new journal on a server that tests share.
func (s store) journal(t *testing.T) string {
	t.Helper()
	servers.mu.Lock()
	defer servers.mu.Unlock()
	server := servers.all[s.name]
	if server == nil {
		var err error
		if s.replicated { // the tests know how many nodes there are
			server, err = testserver.StartOwn(s.name, "CASSANDRA_NODES=3")
		} else {
			server, err = testserver.Start(s.name)
		}
		if err != nil {
			t.Fatal(err)
		}
		servers.all[s.name] = server
	}
	return s.url(server)
}

// stopServers ends the servers that tests have shared.
func stopServers() (err error) {
	for _, s := range servers.all {
		err = errors.Join(err, s.Stop())
	}
	return err
}
