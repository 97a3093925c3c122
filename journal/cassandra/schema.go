package cassandra

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// schemaVersion is the version of the tables that this driver makes and reads.
const schemaVersion = 1

// Tombstones are kept for three hours, as long as nodes keep hints: what they hide is dead by the marks in the heads already, so that one that
// comes back after a node's longer absence costs space only. The state of compare-and-sets, which holds the last record of each bucket, is kept as long.
const tableOptions = " gc_grace_seconds = 10800"

// tables are made in this order; the last one tells that all are there.
var tables = []struct{ name, columns, options string }{
	{"streams", `stream text, start bigint, fence bigint static, uid blob static, low bigint static, tail bigint static, dropped boolean static,
		base_end bigint static, base_crc bigint static, base_time bigint static, fences blob static, parts blob static, next_slot bigint static, rev bigint static,
		gone blob, PRIMARY KEY (stream, start)`, ""},
	{"records", `stream text, start bigint, kind int, seq bigint, fence bigint static, end_seq bigint static, end_crc bigint static, end_time bigint static,
		closed boolean static, records int static, bytes bigint static, header blob, data blob, PRIMARY KEY ((stream, start), kind, seq)`, ""},
	{"bodies", `stream text, start bigint, seq bigint, epoch bigint, crc bigint, data blob, PRIMARY KEY ((stream, start), seq, epoch, crc)`, ""},
	{"parts", `stream text, slot bigint, id blob, data blob, PRIMARY KEY ((stream, slot), id)`, ""},
	{"members", `id text PRIMARY KEY, data blob, stamp bigint`, ""},
	{"holdfast", `name text PRIMARY KEY, value text`, ""},
}

// tableID makes processes that create the tables at the same time create the same ones: Cassandra takes tables of one name
// and different ids for a conflict that it cannot solve.
func tableID(keyspace, table string) string {
	sum := sha256.Sum256([]byte("holdfast journal 1\x00" + keyspace + "\x00" + table))
	u, _ := gocql.UUIDFromBytes(sum[:16]) // 16 bytes are a UUID
	b := u.Bytes()
	b[6], b[8] = b[6]&0x0f|0x50, b[8]&0x3f|0x80
	u, _ = gocql.UUIDFromBytes(b)
	return u.String()
}

// keyspace is what Cassandra tells about ours.
type keyspace struct {
	exists  bool
	durable bool
	options map[string]string
}

func readKeyspace(ctx context.Context, s *gocql.Session, name string) (k keyspace, err error) {
	err = s.Query("SELECT durable_writes, replication FROM system_schema.keyspaces WHERE keyspace_name = ?", name).
		Consistency(gocql.One).ScanContext(ctx, &k.durable, &k.options)
	if errors.Is(err, gocql.ErrNotFound) {
		return keyspace{}, nil
	}
	k.exists = err == nil
	return k, err
}

// check refuses a keyspace that keeps less than a synced majority, or another one than is declared.
func (k *keyspace) check(o *Options) error {
	class := k.options["class"]
	class = class[strings.LastIndexByte(class, '.')+1:]
	weak := func(format string, args ...any) error {
		return fmt.Errorf("keyspace %s "+format+": %w", append(append([]any{o.Keyspace}, args...), journal.ErrWeak)...)
	}
	if !k.durable && !o.AcceptWeak {
		return weak("has durable_writes = false, so that nothing reaches the commit log; ALTER KEYSPACE %s WITH durable_writes = true", o.Keyspace)
	}
	switch {
	case class == "NetworkTopologyStrategy":
	case class == "SimpleStrategy" && !o.Local:
	case class == "SimpleStrategy":
		return fmt.Errorf("keyspace %s uses SimpleStrategy, which knows no datacenters; with consistency=local_quorum it has to be NetworkTopologyStrategy", o.Keyspace)
	default:
		return fmt.Errorf("keyspace %s uses %s; want NetworkTopologyStrategy", o.Keyspace, class)
	}
	factors := map[string]int{}
	for name, text := range k.options {
		if name == "class" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("keyspace %s has replication %s: %s (transient replicas are not for it)", o.Keyspace, name, text)
		}
		factors[name] = n
	}
	if o.Local {
		n, ok := factors[o.Datacenter]
		if !ok {
			return fmt.Errorf("keyspace %s has no replicas in datacenter %q, but in %s; ALTER KEYSPACE, or take another dc",
				o.Keyspace, o.Datacenter, strings.Join(slices.Sorted(maps.Keys(factors)), ", "))
		}
		factors = map[string]int{o.Datacenter: n}
	}
	all := 0
	for name, n := range factors {
		all += n
		if o.Replication != 0 && n != o.Replication {
			return fmt.Errorf("keyspace %s has %d replicas (%s), the URL says replication=%d; correct the URL, or ALTER KEYSPACE and repair", o.Keyspace, n, name, o.Replication)
		}
	}
	if all == 0 {
		return weak("has no replicas")
	}
	if all == 1 && o.Replication != 1 && !o.AcceptWeak {
		return weak("has one replica, so that a lost node loses everything; ALTER KEYSPACE to 3, or declare it by replication=1")
	}
	return nil
}

// setUp makes the keyspace and the tables where they are missing, and refuses those of another version. It is
// idempotent, and may run in several processes at once.
func setUp(ctx context.Context, s *gocql.Session, o *Options) error {
	k, err := readKeyspace(ctx, s, o.Keyspace)
	if err != nil {
		return fmt.Errorf("read about keyspace %s: %w", o.Keyspace, err)
	}
	if !k.exists {
		if o.Replication == 0 || o.ReadOnly {
			return fmt.Errorf("there is no keyspace %s; correct the URL, or have it made by the option replication=3", o.Keyspace)
		}
		if err := createKeyspace(ctx, s, o); err != nil {
			return err
		}
		if k, err = readKeyspace(ctx, s, o.Keyspace); err != nil {
			return fmt.Errorf("read about keyspace %s: %w", o.Keyspace, err)
		}
	}
	if err := k.check(o); err != nil {
		return err
	}
	// The table that is made last tells that all are there.
	have := map[string]bool{}
	it := s.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", o.Keyspace).Consistency(gocql.One).IterContext(ctx)
	for name := ""; it.Scan(&name); {
		have[name] = true
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("read about the tables of keyspace %s: %w", o.Keyspace, err)
	}
	if have["holdfast"] {
		if found, err := checkVersion(ctx, s, o); found || err != nil {
			return err
		}
	}
	if o.ReadOnly {
		return fmt.Errorf("keyspace %s has no journal", o.Keyspace)
	}
	for _, t := range tables {
		if have[t.name] {
			continue
		}
		stmt := fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s.%s (%s) WITH id = %s AND", o.Keyspace, t.name, t.columns, tableID(o.Keyspace, t.name)) + tableOptions + t.options
		if err := s.Query(stmt).ExecContext(ctx); err != nil {
			return fmt.Errorf("create table %s.%s: %w", o.Keyspace, t.name, o.rights(err))
		}
	}
	if err := s.AwaitSchemaAgreement(ctx); err != nil {
		return fmt.Errorf("the nodes do not agree on the tables of keyspace %s: %w", o.Keyspace, err)
	}
	for name, value := range map[string]string{"version": strconv.Itoa(schemaVersion), "consistency": o.scope()} {
		stmt := "INSERT INTO " + o.Keyspace + ".holdfast (name, value) VALUES (?, ?) IF NOT EXISTS"
		if _, err := s.Query(stmt, name, value).MapScanCASContext(ctx, map[string]any{}); err != nil {
			return fmt.Errorf("note the %s in keyspace %s: %w", name, o.Keyspace, o.rights(err))
		}
	}
	_, err = checkVersion(ctx, s, o)
	return err
}

// scope is what all processes of a keyspace have to agree on.
func (o *Options) scope() string {
	if o.Local {
		return "local_quorum in " + o.Datacenter
	}
	return "quorum"
}

func createKeyspace(ctx context.Context, s *gocql.Session, o *Options) error {
	dcs := map[string]int{}
	for _, h := range s.GetHosts() {
		dcs[h.DataCenter()]++
	}
	var options []string
	for _, dc := range slices.Sorted(maps.Keys(dcs)) {
		if dcs[dc] < o.Replication {
			return fmt.Errorf("there is no keyspace %s, and datacenter %s has %d nodes, too few for replication=%d; create the keyspace yourself, or correct the number",
				o.Keyspace, dc, dcs[dc], o.Replication)
		}
		options = append(options, fmt.Sprintf("'%s': %d", strings.ReplaceAll(dc, "'", "''"), o.Replication))
	}
	stmt := fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = {'class': 'NetworkTopologyStrategy', %s}", o.Keyspace, strings.Join(options, ", "))
	if err := s.Query(stmt).ExecContext(ctx); err != nil {
		var denied *gocql.RequestErrUnauthorized
		if errors.As(err, &denied) {
			return fmt.Errorf("there is no keyspace %s, and the role %q may not make it; have a superuser make it, and GRANT CREATE, SELECT and MODIFY on it: %w", o.Keyspace, o.Username, err)
		}
		return fmt.Errorf("create keyspace %s: %w", o.Keyspace, err)
	}
	return nil
}

// checkVersion tells whether the tables are noted as complete, and refuses those that this driver must not touch.
func checkVersion(ctx context.Context, s *gocql.Session, o *Options) (found bool, err error) {
	values := map[string]string{}
	it := s.Query("SELECT name, value FROM " + o.Keyspace + ".holdfast WHERE name IN ('version', 'consistency')").IterContext(ctx)
	for name, value := "", ""; it.Scan(&name, &value); {
		values[name] = value
	}
	if err := it.Close(); err != nil {
		return false, fmt.Errorf("read the version of keyspace %s: %w", o.Keyspace, o.rights(err))
	}
	text, ok := values["version"]
	if !ok {
		return false, nil
	}
	version, err := strconv.Atoi(text)
	switch {
	case err != nil || version < 1:
		return false, fmt.Errorf("keyspace %s has version %q: %w", o.Keyspace, text, journal.ErrCorrupt)
	case version > schemaVersion:
		return false, fmt.Errorf("keyspace %s has version %d, this binary knows up to %d; start the newer one: %w", o.Keyspace, version, schemaVersion, journal.ErrNewerFormat)
	}
	scope, ok := values["consistency"]
	if ok && scope != o.scope() {
		return false, fmt.Errorf("keyspace %s is used with consistency %s, the URL says %s; processes that differ in that do not fence each other: use the same options consistency and dc everywhere",
			o.Keyspace, scope, o.scope())
	}
	return ok, nil
}
