package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	njs "github.com/nats-io/nats.go/jetstream"

	"github.com/holdfastmq/holdfast/journal"
)

// checkSync reads from every server of the stream whether it syncs before it answers, by a user of the system account, if the URL has one.
// Servers that do not answer are allowed if they are a minority: they may be down.
func checkSync(ctx context.Context, cfg *config, info *njs.StreamInfo, log *slog.Logger) error {
	if cfg.systemUser == "" && cfg.systemCreds == "" {
		return nil // declared
	}
	auth := []nats.Option{nats.UserInfo(cfg.systemUser, cfg.systemPassword)}
	if cfg.systemCreds != "" {
		auth = []nats.Option{nats.UserCredentials(cfg.systemCreds)}
	}
	nc, err := connect(ctx, cfg, auth, nil)
	if err != nil {
		return fmt.Errorf("as the user of the system account: %w", err)
	}
	defer nc.Close()
	want := servers(nc, info)
	lazy, silent, err := askSync(ctx, nc, want)
	switch {
	case err != nil:
		return err
	case len(lazy) > 0:
		return fmt.Errorf("%w: %s answer before they have synced; set sync_interval: always in the jetstream section of their configuration and restart them", journal.ErrWeak, strings.Join(lazy, ", "))
	case 2*len(silent) >= len(want):
		return fmt.Errorf("read sync_interval: no answer of %s; is %s a user of the system account, and are the servers up?", strings.Join(silent, ", "), cfg.systemUser)
	case len(silent) > 0:
		log.Warn("journal: NATS servers that do not answer were not asked whether they sync", "servers", silent)
	}
	return nil
}

// servers returns the names of the servers that have the stream.
func servers(nc *nats.Conn, info *njs.StreamInfo) []string {
	if info.Cluster == nil {
		return []string{nc.ConnectedServerName()}
	}
	var names []string
	if info.Cluster.Leader != "" {
		names = append(names, info.Cluster.Leader)
	}
	for _, r := range info.Cluster.Replicas {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// askSync asks all servers for their configuration, and returns which of want do not sync always and which were silent.
func askSync(ctx context.Context, nc *nats.Conn, want []string) (lazy, silent []string, _ error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, nil, err
	}
	if err := nc.PublishRequest("$SYS.REQ.SERVER.PING.VARZ", sub.Subject, nil); err != nil {
		return nil, nil, err
	}
	tctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	silent = slices.Clone(want)
	for len(silent) > 0 {
		m, err := sub.NextMsgWithContext(tctx)
		if errors.Is(err, nats.ErrNoResponders) || tctx.Err() != nil {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		var answer struct {
			Server struct {
				Name string `json:"name"`
			} `json:"server"`
			Data struct {
				JetStream struct {
					Config struct {
						SyncAlways bool `json:"sync_always"`
					} `json:"config"`
				} `json:"jetstream"`
			} `json:"data"`
		}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			return nil, nil, fmt.Errorf("read sync_interval: %w", err)
		}
		i := slices.Index(silent, answer.Server.Name)
		if i < 0 {
			continue
		}
		silent = slices.Delete(silent, i, i+1)
		if !answer.Data.JetStream.Config.SyncAlways {
			lazy = append(lazy, answer.Server.Name)
		}
	}
	slices.Sort(lazy)
	return lazy, silent, ctx.Err()
}
