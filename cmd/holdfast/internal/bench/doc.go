// Package bench is "holdfast bench": workloads that measure a broker, beside what the same machine and directory give without a queue.
//
//	command.go    the commands and their flags
//	options.go    what the flags say
//	run.go        one call of a benchmark: directory, ceilings, runs, report
//	broker.go     the broker that is measured
//	crew.go       the worker processes of a run
//	load.go       send, receive, pipeline and latency
//	backlog.go    backlog
//	deliver.go    delivery
//	output.go     table, JSON and chart
package bench
