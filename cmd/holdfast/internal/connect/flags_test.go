package connect_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// G11: a file that a flag names and that cannot be used is a mistake of the caller.
func TestUnusableFiles(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--token", "@" + none}, "read the token: "},
		{[]string{"--tls-ca", none}, "read the broker's CAs: "},
		{[]string{"--tls-ca", empty}, "has no certificate in PEM"},
		{[]string{"--tls-cert", none, "--tls-key", none}, "read the certificate: "},
		{[]string{"--tls-cert", empty, "--tls-key", empty}, "read the certificate: "},
		{[]string{"--config", none}, "read the configuration: "},
	} {
		clitest.Run(t, append([]string{"send", "q", "x", "--timeout", "1s"}, c.args...)...).WantErr(t, 2, c.want)
	}
}
