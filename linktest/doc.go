// Package linktest tries a holdfast.Link: senders and consumers use a queue over it by random, while its streams break, answers are
// lost and old ones arrive late, all by seed; then what users were told is compared with what consumers saw.
//
// It is for authors of links, of brokers and of what lies between, and runs best in the virtual time of testing/synctest.
package linktest
