package access

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func parsed(t *testing.T, lines ...string) *Policy {
	t.Helper()
	p, err := Parse(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Tokens and subjects have the rights of all of their lines, for matching queues only.
func TestRights(t *testing.T) {
	sum := sha256.Sum256([]byte("a secret that is not in the file"))
	p := parsed(t,
		"# who may do what", "",
		"token shop 0123456789abcdef send orders,orders.*",
		"token shop 0123456789abcdef admin scratch-*",
		"token-sha256 worker "+hex.EncodeToString(sum[:])+" receive,send",
		`cert ops "cn:Ops Laptop" admin`,
		"cert ops uri:spiffe://here/ops send a",
		"cert web dns:web.example send *.in",
	)
	for _, c := range []struct {
		secret string
		right  Right
		queue  string
		want   bool
	}{
		{"0123456789abcdef", Send, "orders", true},
		{"0123456789abcdef", Send, "orders.eu", true},
		{"0123456789abcdef", Send, "orders2", false},
		{"0123456789abcdef", Receive, "orders", false},
		{"0123456789abcdef", Receive | Send, "orders", true},
		{"0123456789abcdef", Admin, "scratch-1", true},
		{"0123456789abcdef", Send, "scratch-1", false},
		{"0123456789abcdeF", Any, "orders", false},
		{"0123456789abcde", Any, "orders", false},
		{"", Any, "orders", false},
		{"a secret that is not in the file", Receive, "anything", true},
		{"a secret that is not in the file", Admin, "anything", false},
	} {
		id := p.Token(c.secret)
		if got := id != nil && id.May(c.right, c.queue); got != c.want {
			t.Errorf("%q may %v %q: %v", c.secret, c.right, c.queue, got)
		}
	}
	spiffe, err := url.Parse("spiffe://here/ops")
	if err != nil {
		t.Fatal(err)
	}
	ops := p.Certificate(&x509.Certificate{Subject: pkix.Name{CommonName: "Ops Laptop"}, URIs: []*url.URL{spiffe}})
	if ops.Name() != "ops" || !ops.May(Admin, "x") || !ops.May(Send, "a") || ops.May(Send, "x") {
		t.Errorf("ops: %v", ops)
	}
	web := p.Certificate(&x509.Certificate{DNSNames: []string{"other.example", "web.example"}})
	if web.Name() != "web" || !web.May(Send, "eu.in") || web.May(Send, "eu.out") {
		t.Errorf("web: %v", web)
	}
	if id := p.Certificate(&x509.Certificate{Subject: pkix.Name{CommonName: "ops"}}); id != nil {
		t.Errorf("a stranger is %v", id)
	}
	if p.Empty() || !parsed(t, "# nobody").Empty() {
		t.Error("Empty is wrong")
	}
}

// Wrong lines are refused, all together, by number, and without showing secrets (G11).
func TestWrongLines(t *testing.T) {
	for line, want := range map[string]string{
		"token shop 0123456789abcdef":                        "has 3 fields",
		"token shop 0123456789abcdef send a b":               "has 6 fields",
		"token shop short send":                              "the secret has 5 characters, want at least 16",
		"token-sha256 shop 0123456789abcdef send":            "the hash is not 64 hexadecimal digits",
		"cert shop ou:x send":                                `the subject "ou:x" is none of`,
		"cert shop cn: send":                                 `the subject "cn:" is none of`,
		"key shop 0123456789abcdef send":                     `begins with "key"`,
		"token shop 0123456789abcdef write":                  `the right "write" is none of`,
		"token shop 0123456789abcdef send,":                  `the right "" is none of`,
		"token shop 0123456789abcdef send a,,b":              "a pattern of queues is empty",
		"token shop 0123456789abcdef send a/b":               `the pattern "a/b" has other characters`,
		`token "shop 0123456789abcdef send`:                  "field 2 has no closing quote",
		`token "shop"x 0123456789abcdef send`:                "field 2 goes on behind its closing quote",
		`token "" 0123456789abcdef send`:                     "the name is empty",
		"token other fedcba9876543210 send":                  "is of other, but what it presents is that of first already",
		"token shop " + strings.Repeat("x", 70000) + " send": "token too long",
	} {
		_, err := Parse(strings.NewReader("token first fedcba9876543210 send\n\n" + line + "\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", line, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "0123456789abcdef") || !strings.Contains(err.Error(), "line 3: ") && want != "token too long") {
			t.Errorf("%.60q: %v", line, err)
		}
	}
	_, err := Parse(strings.NewReader("x\ntoken a 0123456789abcdef send\ny\n"))
	if err == nil || !strings.Contains(err.Error(), "line 1: ") || !strings.Contains(err.Error(), "line 3: ") {
		t.Errorf("two wrong lines: %v", err)
	}
}

// A file with secrets that everyone may read is refused.
func TestLoadChecksMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string, mode os.FileMode) error {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		return err
	}
	if err := write("token shop 0123456789abcdef send\n", 0o604); err == nil || !strings.Contains(err.Error(), "everyone may read it") {
		t.Errorf("mode 604: %v", err)
	}
	if err := write("token shop 0123456789abcdef send\n", 0o600); err != nil {
		t.Errorf("mode 600: %v", err)
	}
	if err := write("token-sha256 shop "+strings.Repeat("ab", 32)+" send\n", 0o644); err != nil {
		t.Errorf("only hashes: %v", err)
	}
	if err := write("token shop\n", 0o600); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("wrong line: %v", err)
	}
	if _, err := Load(path + ".none"); err == nil {
		t.Error("no file was no error")
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "a", true}, {"a", "a", true}, {"a", "ab", false}, {"ab", "a", false}, {"a*", "a", true},
		{"a*", "abc", true}, {"*c", "abc", true}, {"*c", "abd", false}, {"a*c*e", "abcde", true}, {"a*c*e", "abde", false},
		{"*ab", "aab", true}, {"*aab*", "aaab", true}, {"**", "x", true}, {"a**b", "ab", true}, {"", "", true}, {"", "a", false},
	} {
		if match(c.pattern, c.name) != c.want {
			t.Errorf("match(%q, %q) is %v", c.pattern, c.name, !c.want)
		}
	}
}

// FuzzPolicy gives any text to the parser: no panic, and what it accepts lets nobody in by an empty token.
func FuzzPolicy(f *testing.F) {
	f.Add("token shop 0123456789abcdef send orders,orders.*\ncert ops \"cn:Ops Laptop\" admin")
	f.Add("token-sha256 w " + strings.Repeat("0a", 32) + " receive *")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(strings.NewReader(text))
		if err == nil && p.Token("") != nil && !strings.Contains(text, "e3b0c44298fc1c149afbf4c8996fb924") {
			t.Errorf("%q accepts an empty token", text)
		}
	})
}
