package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast/journal"
)

// schemaVersion is the version of the tables that this driver makes and reads. An older driver
// refuses a newer one, and changes nothing.
const schemaVersion = 1

// The kinds of range tables.
const (
	kindRecord = 1 // record_N: header and meta
	kindBody   = 2 // body_N: header and body, and the data of parts
)

var kindNames = map[int]string{kindRecord: "record", kindBody: "body"}

// tableName names a range table.
func tableName(kind int, no int64) string { return fmt.Sprintf("%s_%d", kindNames[kind], no) }

// The statements that make a journal. docs/decisions/postgres.md explains the tables.
const schemaSQL = `
CREATE TABLE holdfast (version int NOT NULL);
CREATE SEQUENCE life;
CREATE SEQUENCE piece;
CREATE SEQUENCE range_no;
CREATE TABLE stream (
	id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name    text COLLATE "C" NOT NULL UNIQUE,
	life    bigint NOT NULL UNIQUE,
	uid     bytea NOT NULL,
	epoch   bigint NOT NULL,
	ended   bigint NOT NULL,
	crc     bigint NOT NULL,
	time    bigint NOT NULL,
	low     bigint NOT NULL,
	dropped boolean NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE fence (
	stream bigint NOT NULL,
	epoch  bigint NOT NULL,
	ended  bigint NOT NULL,
	crc    bigint NOT NULL,
	PRIMARY KEY (stream, epoch)
);
CREATE TABLE range (
	no     bigint PRIMARY KEY,
	kind   int NOT NULL,
	closed boolean NOT NULL
);
CREATE TABLE extent (
	life  bigint NOT NULL,
	kind  int NOT NULL,
	first bigint NOT NULL,
	no    bigint NOT NULL,
	PRIMARY KEY (life, kind, first)
);
CREATE INDEX ON extent (no);
CREATE TABLE part (
	life bigint NOT NULL,
	name text COLLATE "C" NOT NULL,
	no   bigint NOT NULL,
	id   bigint NOT NULL,
	PRIMARY KEY (life, name)
);
CREATE INDEX ON part (no);
CREATE UNLOGGED TABLE member (
	id   text COLLATE "C" PRIMARY KEY,
	data bytea NOT NULL
);`

// rangeSQL makes a range table. Nothing is compressed: bodies that die young are not worth it, and
// others can be compressed by who sends them. Nobody has to vacuum a table that is going to be dropped.
func rangeSQL(kind int, no int64) string {
	name := tableName(kind, no)
	return fmt.Sprintf(`
CREATE TABLE %[1]s (
	stream bigint NOT NULL,
	first  bigint NOT NULL,
	last   bigint NOT NULL,
	data   bytea NOT NULL,
	PRIMARY KEY (stream, first)
) WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);
ALTER TABLE %[1]s ALTER COLUMN data SET STORAGE EXTERNAL;
INSERT INTO range (no, kind, closed) VALUES (%[2]d, %[3]d, false);`, name, no, kind)
}

// advisoryLock keeps processes that do the same to one journal apart, until the end of the transaction.
func advisoryLock(f, schema string, what int) string {
	return fmt.Sprintf("SELECT %s(hashtextextended('holdfast %s', %d))", f, schema, what)
}

// The reasons for an advisory lock.
const (
	lockSchema  = 1
	lockRoll    = 2
	lockCollect = 3
)

// prepareSchema verifies the journal's schema, and makes it if there is none.
func (j *Journal) prepareSchema(ctx context.Context) error {
	exists, err := j.checkVersion(ctx)
	if err != nil || exists {
		return err
	}
	if j.opts.ReadOnly {
		return fmt.Errorf("schema %q of database %q holds no journal", j.opts.Schema, j.database)
	}
	err = j.createSchema(ctx)
	if code(err) == codePrivilege {
		return fmt.Errorf("role %q may not make schema %q in database %q, or tables in it: have an administrator run"+
			" CREATE SCHEMA %s AUTHORIZATION %s there, or name another with schema= (%w)", j.user, j.opts.Schema, j.database, j.opts.Schema, j.user, err)
	}
	return err
}

// checkVersion tells whether there is a journal, and refuses one that it does not know or may not use.
func (j *Journal) checkVersion(ctx context.Context) (bool, error) {
	var version int
	err := j.pool.QueryRow(ctx, "SELECT version FROM "+j.opts.Schema+".holdfast").Scan(&version)
	switch {
	case code(err) == codeUndefinedTable || code(err) == "3F000":
		return false, nil
	case code(err) == codePrivilege:
		return false, fmt.Errorf("role %q may not read schema %q: connect as the role that made it (%w)", j.user, j.opts.Schema, err)
	case errors.Is(err, pgx.ErrNoRows):
		return false, fmt.Errorf("schema %q has an empty table \"holdfast\": %w", j.opts.Schema, journal.ErrCorrupt)
	case err != nil:
		return false, err
	case version > schemaVersion:
		return false, fmt.Errorf("schema %q is of version %d, this binary knows up to %d: %w", j.opts.Schema, version, schemaVersion, journal.ErrNewerFormat)
	case version < 1:
		return false, fmt.Errorf("schema %q is of version %d: %w", j.opts.Schema, version, journal.ErrCorrupt)
	}
	if j.opts.ReadOnly {
		return true, nil
	}
	// Tables are dropped again, and only their owner can do that.
	var owner string
	var mayUse, mayCreate bool
	err = j.pool.QueryRow(ctx, `SELECT pg_get_userbyid(relowner), pg_has_role(relowner, 'USAGE'), has_schema_privilege($1, 'CREATE')
		FROM pg_class WHERE oid = ($1 || '.stream')::regclass`, j.opts.Schema).Scan(&owner, &mayUse, &mayCreate)
	switch {
	case err != nil:
		return false, err
	case !mayUse:
		return false, fmt.Errorf("role %q may not change the tables of schema %q, which are role %q's: connect as that role, or have an administrator run GRANT %s TO %s",
			j.user, j.opts.Schema, owner, owner, j.user)
	case !mayCreate:
		return false, fmt.Errorf("role %q may not make tables in schema %q: have an administrator run GRANT CREATE ON SCHEMA %s TO %s", j.user, j.opts.Schema, j.opts.Schema, j.user)
	}
	return true, nil
}

func (j *Journal) createSchema(ctx context.Context) error {
	return pgx.BeginFunc(ctx, j.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, advisoryLock("pg_advisory_xact_lock", j.opts.Schema, lockSchema)); err != nil {
			return err
		}
		var schema, made bool
		err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL, to_regclass($1 || '.holdfast') IS NOT NULL", j.opts.Schema).Scan(&schema, &made)
		if err != nil || made {
			return err // by another process, meanwhile
		}
		if !schema {
			if _, err := tx.Exec(ctx, "CREATE SCHEMA "+j.opts.Schema); err != nil {
				return err
			}
		}
		sql := "SET LOCAL search_path = " + j.opts.Schema + ";" + schemaSQL
		for no, kind := range []int{kindRecord, kindBody} {
			sql += rangeSQL(kind, int64(no)+1)
		}
		sql += fmt.Sprintf("SELECT setval('range_no', 2); INSERT INTO holdfast (version) VALUES (%d);", schemaVersion)
		_, err = tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
		return err
	})
}
