// Package postgres keeps journals in a PostgreSQL database, which several brokers may share.
//
// Records and bodies are only ever inserted, into standalone tables of bounded size that all
// streams share; a table whose rows are dead is dropped, and one that is mostly dead is copied
// into a smaller one. So no dead rows pile up behind the front, and a transaction that somebody
// keeps open elsewhere in the database costs nothing. docs/decisions/postgres.md has the layout and its reasons.
package postgres
