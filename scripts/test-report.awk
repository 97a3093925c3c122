# Shortens the output of `go test -v` over several packages: of a package that
# passed, one line for each top-level test, the seeds of random tests and the closing line; of one that
# failed, everything. Ends with what each failed test printed last, since that is
# where one looks in a long log, and with one line that counts tests.
#
# go test prints packages one after the other, so a package's lines are held
# back until the line that closes it.

function flush_all(   i) {
	for (i = 0; i < held; i++) print line[i]
	held = 0
}

function flush_short(   i) {
	for (i = 0; i < held; i++)
		if (line[i] ~ /^--- (PASS|SKIP)/ || line[i] ~ /[Ss]eed[ :=]/) print line[i]
	held = 0
}

# summarize keeps the last lines of each failed test of the package that is held, and the first of each panic and race.
function summarize(package,   i, j, name, test, n, said, failed_here, order, names, from) {
	test = ""
	names = 0
	for (i = 0; i < held; i++) {
		if (line[i] ~ /^=== (RUN|CONT|NAME|PAUSE) /) { split(line[i], word, /[ \t]+/); test = word[3]; continue }
		if (line[i] ~ /^[ \t]*--- FAIL: /) {
			split(line[i], word, "--- FAIL: "); split(word[2], name, " ")
			if (!(name[1] in failed_here)) { failed_here[name[1]] = 1; order[++names] = name[1] }
			continue
		}
		if (line[i] ~ /^[ \t]*--- /) continue
		if (line[i] ~ /^(panic:|fatal error:|WARNING: DATA RACE|goleak:)/)
			for (j = i; j < held && j < i + 40; j++) summary[summaries++] = "  " line[j]
		said[test, ++n[test]] = line[i]
	}
	for (i = 1; i <= names; i++) {
		test = order[i]
		summary[summaries++] = "--- FAIL: " package " " test
		from = n[test] > 25 ? n[test] - 24 : 1
		for (j = from; j <= n[test]; j++) summary[summaries++] = "  " substr(said[test, j], 1, 600)
	}
	if (!names) summary[summaries++] = "--- FAIL: " package " (no test of it says so: see above)"
}

/^[ \t]*--- PASS: / { passed++ }
/^[ \t]*--- FAIL: / { failed++ }
/^[ \t]*--- SKIP: / { skipped++ }

/^ok  \t/              { flush_short(); print; fflush(); next }
/^\?   \t/             { held = 0; print; next }
/^FAIL\t/              { broken++; summarize($2); flush_all(); print; fflush(); next }

{ line[held++] = $0 }

END {
	flush_all()
	if (summaries) print "\n=== what failed"
	for (i = 0; i < summaries; i++) print summary[i]
	if (broken) printf "%d packages failed\n", broken
	printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
}
