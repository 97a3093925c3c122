// Package failovertest runs several broker processes on one database, kills, stops, adds and removes them under load, and
// judges what senders and receivers saw.
package failovertest
