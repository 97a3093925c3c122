package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Real peers are started, measured and seen to sync, and nothing of them is left: a few that start fast, and all of them in a soak.
func TestSmoke(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	names := "goqite,postgres,river"
	servers := filepath.Join(root, "bin/peers")
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		get := exec.Command(filepath.Join(root, "bench/peers/servers/get"), servers)
		if out, err := get.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var all []string
		for _, p := range known() {
			all = append(all, p.name)
		}
		names = strings.Join(all, ",")
	}
	peers, err := find(names)
	if err != nil {
		t.Fatal(err)
	}
	g, err := startGuard()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.end(); err != nil {
			t.Error(err)
		}
	}()
	parent := t.TempDir()
	// PostgreSQL runs as a user of its own, who has to get there.
	if err := os.Chmod(filepath.Dir(parent), 0o755); err != nil {
		t.Fatal(err)
	}
	b := &bench{table: &table{}, env: &env{root: root, servers: servers, guard: g}, parent: parent, out: filepath.Join(t.TempDir(), "x"), runs: 1, syncs: true, groups: groups(peers)}
	for _, kind := range []string{"send", "pipeline"} {
		b.loads = append(b.loads, load{name: kind, kind: kind, payload: 100, window: 100, duration: 300 * time.Millisecond})
	}
	b.loads = append(b.loads, load{name: "latency", kind: "latency", payload: 100, window: 100, rate: 50, duration: 300 * time.Millisecond})
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range peers {
		for _, l := range b.loads {
			if !p.does(l) {
				continue
			}
			if r := b.table.row(l, p); len(r.Figures) != 1 || r.Figures[0].Total == 0 {
				t.Errorf("%+v", r)
			}
		}
		a := b.table.about(p.name)
		if a.Version == "" {
			t.Errorf("the version of %s is not known", p.name)
		}
		if p.synced && p.does(load{kind: "send"}) && (a.Syncs == nil || *a.Syncs < loneSends) {
			t.Errorf("%s is not seen to sync: %s", p.name, a.syncedText())
		}
	}
	if left, err := os.ReadDir(b.parent); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
