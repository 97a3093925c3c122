# Shortens the output of `go test -v` over several packages: of a package that
# passed, one line for each top-level test, the seeds of random tests and the closing line; of one that
# failed, everything. Ends with one line that counts tests.
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

/^[ \t]*--- PASS: / { passed++ }
/^[ \t]*--- FAIL: / { failed++ }
/^[ \t]*--- SKIP: / { skipped++ }

/^ok  \t/              { flush_short(); print; fflush(); next }
/^\?   \t/             { held = 0; print; next }
/^FAIL\t/              { broken++; flush_all(); print; fflush(); next }

{ line[held++] = $0 }

END {
	flush_all()
	if (broken) printf "%d packages failed\n", broken
	printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
}
