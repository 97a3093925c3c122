// Package serve is "holdfast serve": a broker on a journal, its front door, and the addresses at which its health and metrics
// can be asked for.
package serve

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/broker/cluster"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/message"
)

// The addresses that a broker listens on, if it is told none.
const (
	DefaultListen = "127.0.0.1:9650"
	DefaultHTTP   = "127.0.0.1:9651"
)

// defaultDir is where the journal is, if none is named.
const defaultDir = "./holdfast-data"

// DefaultCache is the memory for messages that will soon be handed out: less than an embedded broker's, so that the whole process stays
// small.
const DefaultCache = 16 << 20

// flags are what the command line says.
type flags struct {
	journal   string
	listen    []string
	http      string
	advertise string
	maxBody   cli.Size
	cache     cli.Size
	budget    cli.Size
	opening   int
	noCreate  bool
	patience  cli.Duration
	heartbeat cli.Duration
	expiry    cli.Duration

	tlsCert, tlsKey, tlsClientCA string
	policy                       string
	insecure                     bool
	pprof                        bool
}

// Command returns "holdfast serve".
func Command(a *cli.App) *cobra.Command {
	f := &flags{
		maxBody: message.DefaultMaxBody, cache: DefaultCache, budget: broker.DefaultSendBudget,
		patience: cli.Duration(30 * time.Second), heartbeat: cli.Duration(cluster.DefaultHeartbeat), expiry: cli.Duration(cluster.DefaultExpiry),
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long: `Run a broker on a journal, until SIGINT or SIGTERM. It then stops taking and handing out messages, stores what is
decided, and ends with 0; a second signal makes it leave the rest as a crash would, which loses nothing either.
SIGHUP reads the token file and the certificates again.

Journals:
` + journals.Help() + `

Without --journal, a Pebble store that is in ` + defaultDir + ` already goes on being used, which the log says.

Brokers on the same replicated journal share its queues: each has a part of them, and takes over those of one that dies or
leaves. Any of them takes any client and sends it on to the one that has the queue. They must reach each other at their
--advertise addresses.

On the --http address: /healthz (the process lives), /readyz (all of its queues are recovered), /readyz?queue=QUEUE (that one can be
used, at whichever broker), /metrics (Prometheus).`,
		Example: `  holdfast serve
  holdfast serve --journal segment:/var/lib/holdfast --listen 127.0.0.1:9650 --listen unix:/run/holdfast.sock
  holdfast serve --listen 0.0.0.0:9650 --tls-cert broker.pem --tls-key broker.key --token-file tokens`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), a, f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.journal, "journal", journals.DefaultScheme+":"+defaultDir, "`URL` of the journal")
	fs.StringSliceVar(&f.listen, "listen", []string{DefaultListen}, "`address` for clients, HOST:PORT or unix:PATH; can be repeated")
	fs.StringVar(&f.http, "http", DefaultHTTP, "`address` for /healthz, /readyz and /metrics, HOST:PORT or unix:PATH; empty for none")
	fs.BoolVar(&f.pprof, "pprof", false, "serve profiles of this process at the --http address, below /debug/pprof/")
	fs.StringVar(&f.advertise, "advertise", "", "`address` of this broker that clients and other brokers are told, and by which it is known among them")
	fs.Var(&f.heartbeat, "heartbeat", "how often a broker that shares its journal tells the others that it lives")
	fs.Var(&f.expiry, "expiry", "after which time without a heartbeat a broker is taken for dead; at least three heartbeats, and the same for all brokers")
	fs.Var(&f.maxBody, "max-body", "largest body of a message")
	fs.Var(&f.cache, "cache", "memory for messages that will soon be handed out")
	fs.Var(&f.budget, "send-budget", "bytes that all senders together may have sent without an answer")
	fs.IntVar(&f.opening, "open-limit", broker.DefaultOpenLimit, "queues that are recovered at the same time")
	fs.BoolVar(&f.noCreate, "no-auto-create", false, "refuse the use of queues that were not created, instead of creating them")
	fs.Var(&f.patience, "stop-timeout", "how long a graceful stop may take")
	fs.StringVar(&f.tlsCert, "tls-cert", "", "`file` with the broker's certificate chain, PEM")
	fs.StringVar(&f.tlsKey, "tls-key", "", "`file` with the key of the certificate, PEM")
	fs.StringVar(&f.tlsClientCA, "tls-client-ca", "", "`file` with the CAs that sign clients' certificates, PEM")
	fs.StringVar(&f.policy, "token-file", "", "`file` that says which tokens and certificates may do what with which queues; docs/protocol.md describes it")
	fs.BoolVar(&f.insecure, "insecure", false, "allow clients of other machines without TLS or without a token file")
	return cmd
}
