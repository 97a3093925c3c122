package access

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Right is a set of things that can be allowed.
type Right uint8

// The rights.
const (
	Send    Right = 1 << iota // send to the queue
	Receive                   // receive from it, acknowledge, see its messages and numbers
	Admin                     // create, configure, pause, purge, delete, redrive it; see its messages and numbers
	Any     = Send | Receive | Admin
)

// String returns the rights as a policy writes them.
func (r Right) String() string {
	var s []string
	for _, n := range rightNames {
		if r&n.right != 0 {
			s = append(s, n.name)
		}
	}
	return strings.Join(s, ",")
}

var rightNames = []struct {
	name  string
	right Right
}{{"send", Send}, {"receive", Receive}, {"admin", Admin}}

const (
	minSecret = 16
	maxLine   = 64 << 10
)

// grant is rights for queues whose names match a pattern.
type grant struct {
	rights  Right
	pattern string
}

// Identity is somebody and what they may do. It does not change. The nil Identity may do everything.
type Identity struct {
	name   string
	grants []grant
}

// Name returns what the identity is called in logs.
func (i *Identity) Name() string {
	if i == nil {
		return "anyone"
	}
	return i.name
}

// May reports whether the identity has at least one of the rights for a queue.
func (i *Identity) May(rights Right, queue string) bool {
	if i == nil {
		return true
	}
	for _, g := range i.grants {
		if g.rights&rights != 0 && match(g.pattern, queue) {
			return true
		}
	}
	return false
}

// match reports whether a name matches a pattern in which * stands for any characters.
func match(pattern, name string) bool {
	// back is where to go on when what follows the last star does not fit after all.
	p, n, star, back := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, back = p, n
			p++
		case p < len(pattern) && pattern[p] == name[n]:
			p++
			n++
		case star >= 0:
			back++
			p, n = star+1, back
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

type token struct {
	hash [sha256.Size]byte
	id   *Identity
}

// Policy says who may do what. It does not change, and may be used concurrently.
type Policy struct {
	tokens   []token
	subjects map[string]*Identity // by "cn:…", "dns:…", "uri:…"
}

// Load reads the policy of a file. If others than its owner could read secrets in it, that is an error.
func Load(path string) (*Policy, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read access policy: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read access policy: %w", err)
	}
	p, plain, err := parse(f)
	if err != nil {
		return nil, fmt.Errorf("read access policy %s: %w", path, err)
	}
	if plain && info.Mode().IsRegular() && info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("read access policy %s: it holds secrets and everyone may read it (mode %v): chmod 600, or write token-sha256 lines", path, info.Mode().Perm())
	}
	return p, nil
}

// Parse reads a policy. All wrong lines are reported together, by number.
func Parse(r io.Reader) (*Policy, error) {
	p, _, err := parse(r)
	return p, err
}

// parse also tells whether any secret stands there as it is.
func parse(r io.Reader) (p *Policy, plain bool, err error) {
	p = &Policy{subjects: map[string]*Identity{}}
	var errs []error
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		fields, err := split(line)
		if err == nil {
			err = p.add(fields)
		}
		if err != nil {
			// The line itself is not shown: it may hold a secret.
			errs = append(errs, fmt.Errorf("line %d: %w", n, err))
			continue
		}
		plain = plain || fields[0] == "token"
	}
	if err := in.Err(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, plain, errors.Join(errs...)
	}
	return p, plain, nil
}

// split cuts a line into fields at blanks; a field in double quotes is unquoted.
func split(line string) ([]string, error) {
	var fields []string
	for line != "" {
		if line[0] != '"' {
			i := strings.IndexAny(line, " \t")
			if i < 0 {
				i = len(line)
			}
			fields = append(fields, line[:i])
			line = strings.TrimLeft(line[i:], " \t")
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, fmt.Errorf("field %d has no closing quote", len(fields)+1)
		}
		rest := line[len(quoted):]
		if rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			return nil, fmt.Errorf("field %d goes on behind its closing quote", len(fields)+1)
		}
		s, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("field %d is not a quoted string", len(fields)+1)
		}
		fields = append(fields, s)
		line = strings.TrimLeft(rest, " \t")
	}
	return fields, nil
}

func (p *Policy) add(f []string) error {
	if len(f) < 4 || len(f) > 5 {
		return fmt.Errorf("has %d fields, want KIND NAME SECRET RIGHTS [QUEUES]", len(f))
	}
	name := f[1]
	if name == "" {
		return errors.New("the name is empty")
	}
	rights, err := parseRights(f[3])
	if err != nil {
		return err
	}
	patterns := []string{"*"}
	if len(f) == 5 {
		patterns = strings.Split(f[4], ",")
	}
	var grants []grant
	for _, pattern := range patterns {
		if err := checkPattern(pattern); err != nil {
			return err
		}
		grants = append(grants, grant{rights, pattern})
	}
	id, err := p.identity(f[0], f[2], name)
	if err != nil {
		return err
	}
	if id.name != name {
		return fmt.Errorf("is of %s, but what it presents is that of %s already", name, id.name)
	}
	id.grants = append(id.grants, grants...)
	return nil
}

// identity returns whom a line is about, new if no line before was.
func (p *Policy) identity(kind, secret, name string) (*Identity, error) {
	var hash [sha256.Size]byte
	switch kind {
	case "token":
		if len(secret) < minSecret {
			return nil, fmt.Errorf("the secret has %d characters, want at least %d", len(secret), minSecret)
		}
		hash = sha256.Sum256([]byte(secret))
	case "token-sha256":
		b, err := hex.DecodeString(secret)
		if err != nil || len(b) != len(hash) {
			return nil, fmt.Errorf("the hash is not %d hexadecimal digits", 2*len(hash))
		}
		copy(hash[:], b)
	case "cert":
		scheme, rest, ok := strings.Cut(secret, ":")
		if !ok || rest == "" || scheme != "cn" && scheme != "dns" && scheme != "uri" {
			return nil, fmt.Errorf("the subject %q is none of cn:…, dns:…, uri:…", secret)
		}
		if p.subjects[secret] == nil {
			p.subjects[secret] = &Identity{name: name}
		}
		return p.subjects[secret], nil
	default:
		return nil, fmt.Errorf("begins with %q, want token, token-sha256 or cert", kind)
	}
	for _, t := range p.tokens {
		if t.hash == hash {
			return t.id, nil
		}
	}
	id := &Identity{name: name}
	p.tokens = append(p.tokens, token{hash, id})
	return id, nil
}

func parseRights(s string) (r Right, err error) {
next:
	for word := range strings.SplitSeq(s, ",") {
		for _, n := range rightNames {
			if n.name == word {
				r |= n.right
				continue next
			}
		}
		return 0, fmt.Errorf("the right %q is none of send, receive, admin", word)
	}
	return r, nil
}

func checkPattern(s string) error {
	if s == "" {
		return errors.New("a pattern of queues is empty")
	}
	for _, c := range s {
		if c != '*' && c != '_' && c != '.' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return fmt.Errorf("the pattern %q has other characters than [A-Za-z0-9_.-] and *", s)
		}
	}
	return nil
}

// Token returns whose bearer token secret is, nil if nobody's. Its time does not depend on how much of it is right.
func (p *Policy) Token(secret string) *Identity {
	hash := sha256.Sum256([]byte(secret))
	var id *Identity
	for i := range p.tokens {
		if subtle.ConstantTimeCompare(hash[:], p.tokens[i].hash[:]) == 1 {
			id = p.tokens[i].id
		}
	}
	return id
}

// Certificate returns whose verified client certificate cert is, nil if nobody's. What it is named for by
// several subjects adds up; the name is that of the first.
func (p *Policy) Certificate(cert *x509.Certificate) *Identity {
	subjects := make([]string, 0, 8)
	if cert.Subject.CommonName != "" {
		subjects = append(subjects, "cn:"+cert.Subject.CommonName)
	}
	for _, n := range cert.DNSNames {
		subjects = append(subjects, "dns:"+n)
	}
	for _, u := range cert.URIs {
		subjects = append(subjects, "uri:"+u.String())
	}
	var id *Identity
	for _, s := range subjects {
		switch found := p.subjects[s]; {
		case found == nil:
		case id == nil:
			id = found
		default:
			id = &Identity{name: id.name, grants: append(append([]grant(nil), id.grants...), found.grants...)}
		}
	}
	return id
}

// Empty reports whether the policy lets nobody in.
func (p *Policy) Empty() bool { return len(p.tokens) == 0 && len(p.subjects) == 0 }
