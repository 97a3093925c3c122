package root_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := clitest.Clean(); err != nil {
			fmt.Println(err)
		}
		os.Exit(code)
	}))
}

// Help and data go to standard output with 0, mistakes to standard error with 2 and a hint.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{nil, 0, "Available Commands:", ""},
		{[]string{"--help"}, 0, "Exit codes: 0 done, 1 failed", ""},
		{[]string{"queue"}, 0, "holdfast queue [command]", ""},
		{[]string{"journal", "--help"}, 0, "verify", ""},
		{[]string{"version"}, 0, "holdfast test\n", ""},
		{[]string{"--version"}, 0, "holdfast test\n", ""},
		{[]string{"completion", "bash"}, 0, "bash completion", ""},
		{[]string{"completion", "fish"}, 0, "fish completion", ""},
		{[]string{"nonsense"}, 2, "", "holdfast: unknown command \"nonsense\" for \"holdfast\"\nholdfast: see holdfast --help\n"},
		{[]string{"queue", "nonsense"}, 2, "", "holdfast: see holdfast queue --help\n"},
		{[]string{"version", "extra"}, 2, "", "holdfast: version takes no arguments, and got 1 arguments"},
		{[]string{"send"}, 2, "", "holdfast: send takes QUEUE [BODY...], and got 0 arguments\nholdfast: see holdfast send --help\n"},
		{[]string{"send", "q", "x", "--priority", "abc"}, 2, "", `invalid argument "abc" for "--priority" flag: "abc" is not a whole number`},
		{[]string{"send", "q", "x", "--priority", "99999999999999999999"}, 2, "", "is out of range"},
		{[]string{"--nonsense"}, 2, "", "unknown flag: --nonsense"},
		{[]string{"receive", "q", "--count", "x"}, 2, "", "holdfast: see holdfast receive --help\n"},
		{[]string{"version", "--config", "/nowhere"}, 2, "", "read the configuration"},
		{[]string{"version", "--log-format", "xml"}, 2, "", "none of text, json"},
	} {
		r := clitest.Run(t, c.args...)
		if r.Code != c.code || !strings.Contains(r.Out, c.out) || !strings.Contains(r.Err, c.err) || (c.out == "" && r.Out != "") || (c.err == "" && r.Err != "") {
			t.Errorf("%v: exit code %d, want %d\nout: %s\nerr: %s", c.args, r.Code, c.code, r.Out, r.Err)
		}
	}
}

// Flags come from the environment and the file too, and of --addr and --journal the one that is closer to the command is taken.
func TestSettings(t *testing.T) {
	addr, _ := clitest.Serve(t)
	dir := clitest.Dir(t)
	file := dir + "/config.yaml"
	if err := os.WriteFile(file, []byte("addr: "+addr+"\nreceive:\n  count: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(env map[string]string, args ...string) clitest.Result {
		return clitest.Start(t, clitest.Options{Env: env}, args...).Wait(t)
	}
	run(map[string]string{"HOLDFAST_ADDR": addr, "HOLDFAST_HEADER": "a=1"}, "send", "q", "from the environment").Want(t, 0)
	run(map[string]string{"HOLDFAST_CONFIG": file}, "send", "q", "from the file").Want(t, 0)
	run(nil, "receive", "q", "--config", file).WantOut(t, "from the environment\n")
	run(map[string]string{"HOLDFAST_OUTPUT": "raw"}, "receive", "q", "--config", file).WantOut(t, "from the file")
	journal := map[string]string{"HOLDFAST_JOURNAL": clitest.Journal(dir + "/data")}
	run(journal, "send", "q", "on a store", "--config", file).Want(t, 0)
	run(journal, "receive", "q", "--count", "1", "--wait", "100ms", "--addr", addr).Want(t, 1)
	run(journal, "receive", "q", "--count", "1").WantOut(t, "on a store\n")
	run(map[string]string{"HOLDFAST_COUNT": "x"}, "receive", "q", "--addr", addr).WantErr(t, 2, "environment variable HOLDFAST_COUNT")
}
