// Command twoprocesses shows reliable delivery between two programs: a shop that sends orders, and a warehouse that handles
// them. Either can be killed and started again at any moment.
//
//	go run ./examples/twoprocesses receive 127.0.0.1:9660 ledger.txt
//	go run ./examples/twoprocesses send -store shop.db 127.0.0.1:9660 1000
//
// The warehouse writes a line for each order that it handles. However often the shop is killed and started again, with
// -store each order is in the ledger once. Without, the shop knows only what was confirmed to it; it goes on
// behind that with -from, and what was handled in between is handled again. When the warehouse is killed, only
// what was not acknowledged yet is handled again, and nothing is lost.
//
// Between machines, both sides get TLS and the shop a token: rpc.Options and client.Options have both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// consumerName is what the warehouse's consumer is called. A shop with a token needs the right to send to it.
const consumerName = "orders"

// Order is the message.
type Order struct {
	Number uint64
	Item   string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: twoprocesses receive [-work DURATION] ADDRESS LEDGER, or twoprocesses send [-store DIR] [-from N] ADDRESS COUNT")

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	work := flags.Duration("work", time.Millisecond, "how long handling an order takes")
	store := flags.String("store", "", "directory in which what is not confirmed is kept over crashes")
	from := flags.Uint64("from", 1, "number of the first order; with -store, the store knows")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errUsage
	}
	switch args[0] {
	case "receive":
		return receive(ctx, flags.Arg(0), flags.Arg(1), *work)
	case "send":
		count, err := strconv.ParseUint(flags.Arg(1), 10, 64)
		if err != nil {
			return errUsage
		}
		return send(ctx, flags.Arg(0), *store, *from, count)
	}
	return errUsage
}
