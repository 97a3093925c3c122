// Command mongodb serves MongoDB's protocol at the address that is its first argument, by FerretDB on SQLite files
// in the folder that is its second. Of the environment it takes what the script start names.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mongodb HOST:PORT DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	listener := ferretdb.ListenerConfig{TCP: address}
	if cert := os.Getenv("MONGODB_CERT"); cert != "" {
		listener = ferretdb.ListenerConfig{TLS: address, TLSCertFile: cert, TLSKeyFile: os.Getenv("MONGODB_KEY")}
	}
	query := ""
	if mode := os.Getenv("MONGODB_SYNC"); mode != "" {
		query = "?_pragma=synchronous(" + mode + ")"
	}
	f, err := ferretdb.New(&ferretdb.Config{
		Listener:  listener,
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Handler:   "sqlite",
		SQLiteURL: "file:" + dir + "/" + query,
	})
	if err != nil {
		return err
	}
	return f.Run(ctx)
}
