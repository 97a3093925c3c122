package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// artemisPeer is Artemis with its own protocol, whose client is a Java one: so senders and receivers are Java programs, which make their queue too.
func artemisPeer() *peer {
	return &peer{
		name: "artemis", about: "journal on NIO, synced, flushed as often as the disk can (as its \"create\" sets it); core protocol, Java client; each message acknowledged, not confirmed", synced: true, warm: warmJIT,
		start: func(ctx context.Context, e *env, dir string) (*server, error) {
			ports, err := freePorts(ctx, 1)
			if err != nil {
				return nil, err
			}
			addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
			s, err := e.serve(dir, addr, "java", "-Xms1g", "-Xmx2g", "-cp", filepath.Join(e.servers, "classes")+":"+filepath.Join(e.servers, "artemis", "*"), "ArtemisServer", dir, addr)
			if err != nil {
				return nil, err
			}
			return s, s.await(ctx, func(ctx context.Context) error {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				if err == nil {
					c.Close()
				}
				return err
			})
		},
		connect: func(context.Context, string) (conn, error) { return artemis{}, nil },
		program: func(e *env, s spec) []string { return e.java("artemis", "Artemis", s) },
		ready:   true,
		version: jarVersion("Artemis", "artemis", "artemis-server"),
	}
}

// artemis does nothing: all is done by the Java programs.
type artemis struct{}

var errJava = errors.New("this is done by a Java program")

func (artemis) create(context.Context, string) error                { return nil }
func (artemis) sender(context.Context, string, int) (sender, error) { return nil, errJava }
func (artemis) close()                                              {}
func (artemis) receive(context.Context, string, func([]byte), func(int)) error {
	return errJava
}
