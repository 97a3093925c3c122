// Package lint checks the rules of this repository that no general linter knows. It is run as a test
// (`make rules`, and with all other tests), parses every Go file under the folder of
// go.work, and needs nothing but the standard library.
//
// The rules, by the name that a finding carries:
//
//	layer      imports point down the layer table ([Layers]); a package that is in no row is refused
//	driver     only the binary, the benchmarks and the driver itself import a journal driver
//	pure       pure packages import no clock, context, network, file, log, sync or journal, and have no goroutines
//	module     the core module requires no database, and no module of this repository
//	decision   each dependency is named, with its reason, in docs/decisions
//	sleep      no time.Sleep, except in the virtual time of testing/synctest
//	skip       no test is skipped, nor hidden behind a build tag
//	print      libraries print nothing, exit nothing, and log by log/slog
//	context    no context is kept in a struct
//	goleak     a package that starts goroutines checks in TestMain that they end
//	size       files, functions and packages stay short enough to be read
//	doc        every package and exported name has a doc comment; so has every field of an options struct
//	allow      an exception gives its reason and is needed
//
// An exception is a comment on the line of the finding, or on the line before it:
//
//	//holdfast:allow sleep: the child process has no virtual time
//
// The rules layer, driver, pure, module, decision and skip have no exceptions: change the table, with a decision
// page, or the code.
//
// Generated files (those that say so in the standard form) are held to layer, driver and pure only. Folders
// called testdata are not looked at.
package lint
