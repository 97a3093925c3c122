package hbase

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// formatVersion is the version of rows and columns that this package writes.
const formatVersion = 1

// Open opens the journal in a table, which is created if there is none and opts.ReadOnly is not set.
//
// Errors: journal.ErrInvalid, with all faults of the options; journal.ErrWeak, where neither the options say that HBase
// syncs, or the table's own settings are weaker than FSYNC_WAL; journal.ErrNewerFormat; journal.ErrNotFound, where ReadOnly is set and there is no
// table. Each says what to change, and so does that of an HBase which cannot be reached or refuses.
func Open(ctx context.Context, opts Options) (*Journal, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("hbase journal: %w", err)
	}
	j := &Journal{opts: opts, table: []byte(opts.Table), log: opts.Logger}
	dial := dialSocket(opts.Framed)
	if opts.HTTP || opts.HTTPS {
		var err error
		if dial, j.shut, err = dialHTTP(&j.opts); err != nil {
			return nil, fmt.Errorf("hbase journal: %w", err)
		}
	}
	j.pool = newPool(&j.opts, dial)
	err := j.checkGateway(ctx)
	if err == nil {
		err = j.checkTable(ctx)
	}
	if err == nil {
		err = j.checkFormat(ctx)
	}
	if err != nil {
		_ = j.Close() // returns no error
		return nil, fmt.Errorf("hbase journal: gateway %s, table %s: %w", strings.Join(opts.Gateways, ","), opts.Table, oneLine(err))
	}
	return j, nil
}

// connectTries is how often a gateway is asked first: a connection that is lost says nothing of what listens there.
const connectTries = 3

// checkGateway verifies that a Thrift2 gateway answers, in the transport that the options say.
func (j *Journal) checkGateway(ctx context.Context) error {
	var kind thrift2.TThriftServerType
	var late *timeoutError
	var nobody *unreachableError
	var app thrift.TApplicationException
	var err error
	for range connectTries {
		err = j.pool.do(ctx, func(ctx context.Context, c client) (err error) {
			kind, err = c.GetThriftServerType(ctx)
			return err
		})
		if err == nil || ctx.Err() != nil || errors.As(err, &late) || errors.As(err, &nobody) || errors.As(err, &app) || errors.Is(err, journal.ErrClosed) {
			break
		}
	}
	switch {
	case err == nil && kind == thrift2.TThriftServerType_TWO:
		return nil
	case err == nil:
		return errors.New("it is a gateway of the first Thrift protocol: start one by \"hbase thrift2 start\" and name its port")
	case errors.As(err, &nobody), ctx.Err() != nil, errors.Is(err, journal.ErrClosed):
		return err
	case strings.Contains(err.Error(), "HTTP Response code: 401"), strings.Contains(err.Error(), "HTTP Response code: 403"):
		return fmt.Errorf("it asks for another user or password, or for Kerberos, which this driver does not speak: set USER:PASSWORD@ in the URL to those "+
			"of a proxy before the gateway: %w", err)
	case strings.Contains(err.Error(), "x509"), strings.Contains(err.Error(), "tls:"):
		return fmt.Errorf("its certificate is not to be trusted: set ca=FILE to the certificate of who has signed it, and HOST to a name that it has: %w", err)
	}
	if errors.As(err, &late) || !errors.As(err, &app) {
		return fmt.Errorf("something listens there that does not answer as a Thrift2 gateway would: set framed=true if it runs with the framed transport (-f), http=true or "+
			"https=true if in HTTP mode, or none of them if in neither: %w", err)
	}
	return j.opts.explain(err)
}

// thriftTable returns the table's name in two parts.
func (j *Journal) thriftTable() *thrift2.TTableName {
	name := &thrift2.TTableName{Qualifier: j.table}
	if ns, table, ok := strings.Cut(j.opts.Table, ":"); ok {
		name.Ns, name.Qualifier = []byte(ns), []byte(table)
	}
	return name
}

// checkTable verifies the table's settings, or creates it.
func (j *Journal) checkTable(ctx context.Context) error {
	exists := false
	err := j.read(ctx, func(ctx context.Context, c client) (err error) {
		exists, err = c.TableExists(ctx, j.thriftTable())
		return err
	})
	var late *timeoutError
	switch {
	case errors.As(err, &late):
		return fmt.Errorf("the gateway answers, and HBase behind it does not: see that HBase runs, and that the gateway's hbase-site.xml names its ZooKeeper: %w", err)
	case err != nil:
		return err
	case !exists && j.opts.ReadOnly:
		return fmt.Errorf("%w: there is no such table", journal.ErrNotFound)
	case !exists:
		if err := j.createTable(ctx); err != nil {
			return err
		}
	}
	var d *thrift2.TTableDescriptor
	err = j.read(ctx, func(ctx context.Context, c client) (err error) {
		d, err = c.GetTableDescriptor(ctx, j.thriftTable())
		return err
	})
	if err != nil {
		return fmt.Errorf("read the table's settings: %w", err)
	}
	return j.checkDescriptor(d)
}

// checkDescriptor refuses a table whose settings lose what was acknowledged.
func (j *Journal) checkDescriptor(d *thrift2.TTableDescriptor) error {
	var errs []error
	have := map[string]bool{}
	for _, f := range d.Columns {
		have[string(f.Name)] = true
		// HBase says for ever by the largest number.
		if ttl := f.GetTimeToLive(); f.TimeToLive != nil && ttl > 0 && ttl < 1<<31-1 {
			errs = append(errs, fmt.Errorf("%w: family %s drops cells after %d s: alter '%s', {NAME => '%s', TTL => 'FOREVER'} in the HBase shell",
				journal.ErrWeak, f.Name, ttl, j.opts.Table, f.Name))
		}
	}
	for _, name := range families {
		if !have[name] {
			errs = append(errs, fmt.Errorf("%w: it has no family %q, so it is not a journal's table: name another in the URL, or create this one as the documentation says",
				journal.ErrInvalid, name))
			break
		}
	}
	if got := d.GetDurability(); d.Durability == nil || got != thrift2.TDurability_FSYNC_WAL {
		errs = append(errs, fmt.Errorf("%w: the table's durability is %v: alter '%s', DURABILITY => 'FSYNC_WAL' in the HBase shell", journal.ErrWeak, got, j.opts.Table))
	}
	return errors.Join(errs...)
}

// createTable creates the table. That another process does so at the same time is no error.
func (j *Journal) createTable(ctx context.Context) error {
	d := &thrift2.TTableDescriptor{TableName: j.thriftTable(), Durability: &synced}
	versions := int32(1)
	for _, name := range families {
		d.Columns = append(d.Columns, &thrift2.TColumnFamilyDescriptor{Name: []byte(name), MaxVersions: &versions})
	}
	var splits [][]byte
	for i := 1; i < j.opts.Regions; i++ {
		splits = append(splits, fmt.Appendf(nil, "%02x", 256*i/j.opts.Regions))
	}
	// It takes the gateway a second or two, and no harm is done when it takes longer than a call may.
	err := j.write(ctx, "create table", "", func(ctx context.Context, c client) error { return c.CreateTable(ctx, d, splits) })
	var late *timeoutError
	var said *hbaseError
	switch {
	case errors.As(err, &said) && strings.Contains(said.text, "TableExistsException"):
	case errors.As(err, &said) && denied(said.text):
		return fmt.Errorf("there is no such table, and the gateway's user may not create it; in the HBase shell: create '%s', {NAME => 'h'}, {NAME => 'm'}, {NAME => 'b'}, {NAME => 'p'}, "+
			"{DURABILITY => 'FSYNC_WAL'} and grant 'USER', 'RWXC', '%s': %w", j.opts.Table, j.opts.Table, err)
	case err != nil && !errors.As(err, &late):
		return fmt.Errorf("create the table: %w", err)
	}
	j.log.Info("hbase journal: created the table", "table", j.opts.Table, "regions", j.opts.Regions)
	return j.awaitTable(ctx)
}

// createTimeout bounds how long a new table may take until its regions are open.
const createTimeout = 30 * time.Second

// awaitTable waits until the table can be read.
func (j *Journal) awaitTable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	for {
		_, err := j.get(ctx, rowFormat, newGet(), colFormat)
		switch {
		case err == nil || errors.Is(err, journal.ErrClosed):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("the table was created, and is not ready after %v: see the log of HBase's master: %w", createTimeout, err)
		}
		pause(ctx, 3)
	}
}

// checkFormat verifies the version of what the table holds, and the right to write to it.
func (j *Journal) checkFormat(ctx context.Context) error {
	r, err := j.get(ctx, rowFormat, newGet(), colFormat)
	if err != nil {
		return fmt.Errorf("read the table's version: %w", err)
	}
	have := r.value(colFormat)
	mine := []byte(strconv.Itoa(formatVersion))
	if have != nil {
		n, err := strconv.Atoi(string(have))
		switch {
		case err != nil:
			return &journal.CorruptError{What: fmt.Sprintf("the table's version is %q", have)}
		case n > formatVersion:
			return fmt.Errorf("%w: it holds version %d, this binary knows up to %d", journal.ErrNewerFormat, n, formatVersion)
		}
	} else if again, err := j.checkNew(ctx); err != nil || again {
		if err != nil {
			return err
		}
		return j.checkFormat(ctx)
	}
	if j.opts.ReadOnly {
		return nil
	}
	// Written even where it is there already: whoever may not, is to know now.
	var ch change
	ch.put(colFormat, mine)
	done := false
	err = retry(ctx, func() (err error) {
		done, err = j.swap(ctx, "write version", "", rowFormat, colFormat, have, &ch)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("write the table's version: %w", err)
	case !done: // another has written one meanwhile
		return j.checkFormat(ctx)
	}
	return nil
}

// checkNew refuses a table that has no version but has something else. again tells that it has got a version meanwhile.
func (j *Journal) checkNew(ctx context.Context) (again bool, err error) {
	rows, err := j.scan(ctx, "", "", false, 1, column{family: familyHeads})
	if err == nil && len(rows) > 0 {
		var r row
		if r, err = j.get(ctx, rowFormat, newGet(), colFormat); err == nil && r.value(colFormat) == nil {
			return false, fmt.Errorf("%w: the table holds rows and no version of a journal: name another in the URL", journal.ErrInvalid)
		}
		again = true
	}
	if err != nil {
		return false, fmt.Errorf("look into the table: %w", err)
	}
	return again, nil
}
