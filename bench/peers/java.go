package main

import (
	"fmt"
	"path/filepath"
	"time"
)

// How long what a Java or Erlang machine runs is warmed up before it counts: a server once, a client in each measurement. Kafka's first figures after
// three seconds were half of those after ten.
const (
	warmJIT    = 10 * time.Second
	warmClient = 4 * time.Second
)

// java is the command of one of our Java programs (servers/java), with the artifacts of a folder of the servers' directory.
func (e *env) java(folder, class string, s spec, more ...string) []string {
	args := []string{"java", "-Xms256m", "-Xmx512m", "-cp", filepath.Join(e.servers, "classes") + ":" + filepath.Join(e.servers, folder, "*"), class,
		"addr", s.Addr, "queue", s.Queue, "send", fmt.Sprint(s.Send), "payload", fmt.Sprint(s.Payload), "window", fmt.Sprint(s.Window), "count", fmt.Sprint(s.Count),
		"rate", fmt.Sprint(s.Rate), "ahead", fmt.Sprint(s.Ahead), "warmup", fmt.Sprint(s.Warmup.Nanoseconds()), "duration", fmt.Sprint(s.Duration.Nanoseconds())}
	return append(args, more...)
}
