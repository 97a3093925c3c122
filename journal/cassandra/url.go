package cassandra

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// URLHelp describes the URL in a line.
const URLHelp = "cassandra://[USER:PASSWORD@]HOST[:PORT],…/KEYSPACE  in an Apache Cassandra cluster, for several processes"

// urlOptions are the options of a URL, and what each sets.
var urlOptions = map[string]func(o *Options, files *tlsFiles, value string) error{
	"replication":     func(o *Options, _ *tlsFiles, v string) error { return setInt(&o.Replication, v) },
	"dc":              func(o *Options, _ *tlsFiles, v string) error { o.Datacenter = v; return nil },
	"consistency":     func(o *Options, _ *tlsFiles, v string) error { return setConsistency(o, v) },
	"accept-weak":     func(o *Options, _ *tlsFiles, v string) error { return setBool(&o.AcceptWeak, v) },
	"timeout":         func(o *Options, _ *tlsFiles, v string) error { return setDuration(&o.Timeout, v) },
	"connect-timeout": func(o *Options, _ *tlsFiles, v string) error { return setDuration(&o.ConnectTimeout, v) },
	"max-record":      func(o *Options, _ *tlsFiles, v string) error { return setBytes(&o.MaxRecordBytes, v) },
	"max-part":        func(o *Options, _ *tlsFiles, v string) error { return setBytes(&o.MaxPartBytes, v) },
	"inline":          func(o *Options, _ *tlsFiles, v string) error { return setBytes(&o.InlineBytes, v) },
	"bucket-records":  func(o *Options, _ *tlsFiles, v string) error { return setInt(&o.BucketRecords, v) },
	"bucket-bytes":    func(o *Options, _ *tlsFiles, v string) error { return setBytes(&o.BucketBytes, v) },
	"tls":             func(_ *Options, f *tlsFiles, v string) error { return setBool(&f.use, v) },
	"ca":              func(_ *Options, f *tlsFiles, v string) error { f.ca = v; return nil },
	"cert":            func(_ *Options, f *tlsFiles, v string) error { f.cert = v; return nil },
	"key":             func(_ *Options, f *tlsFiles, v string) error { f.key = v; return nil },
	"tls-name":        func(_ *Options, f *tlsFiles, v string) error { f.name = v; return nil },
}

// ParseURL reads the URL of a journal:
//
//	cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE?OPTION=VALUE&…
//
// User, password and ports may be left out; "%" encodes what has a meaning in URLs. The options:
//
//	replication=N          replicas in each datacenter; a new keyspace is made with them, an existing one must have them. 1 declares that one is enough
//	dc=NAME                the datacenter that requests go to
//	consistency=quorum     a majority of all replicas (default), or local_quorum: of those in dc, where then all brokers must be
//	accept-weak=true       accept a commit log that is synced later than it answers
//	timeout=2s             for an answer of a node; connect-timeout=1s for each step of connecting
//	max-record=4MiB        largest record; max-part=1MiB largest part
//	inline=32KiB           larger bodies are written before the conditional write of their record
//	bucket-records=512     a partition holds so many records at most; bucket-bytes=16MiB is where it ends sooner
//	tls=true               with ca=FILE, cert=FILE and key=FILE (PEM), and tls-name=NAME for what the nodes' certificates say; each of these implies it
//
// All faults are reported together. The error has no password in it.
func ParseURL(text string) (Options, error) {
	var o Options
	rest, ok := strings.CutPrefix(text, "cassandra:")
	if !ok {
		return o, errors.New("cassandra journal: the URL has another scheme than cassandra")
	}
	rest, query, _ := strings.Cut(rest, "?")
	rest, ok = strings.CutPrefix(rest, "//")
	if !ok {
		return o, errors.New("cassandra journal: want cassandra://HOST[,HOST…]/KEYSPACE")
	}
	place, keyspace, _ := strings.Cut(rest, "/")
	o.Keyspace = keyspace
	var errs []error
	if at := strings.LastIndexByte(place, '@'); at >= 0 {
		if err := o.setUser(place[:at]); err != nil {
			errs = append(errs, err)
		}
		place = place[at+1:]
	}
	for host := range strings.SplitSeq(place, ",") {
		if err := checkHost(host); err != nil {
			errs = append(errs, err)
		}
		o.Hosts = append(o.Hosts, host)
	}
	if err := o.setQuery(query); err != nil {
		errs = append(errs, err)
	}
	check := o
	if err := check.validate(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return Options{}, fmt.Errorf("cassandra journal: %w", err)
	}
	return o, nil
}

func (o *Options) setUser(text string) error {
	user, password, _ := strings.Cut(text, ":")
	var err, err2 error
	o.Username, err = url.PathUnescape(user)
	o.Password, err2 = url.PathUnescape(password)
	if err != nil || err2 != nil {
		return errors.New("user name and password: a % that is none of %00…%FF; write %25 for a percent sign")
	}
	return nil
}

// checkHost verifies HOST, HOST:PORT or [IPv6]:PORT.
func checkHost(host string) error {
	name, port := host, ""
	if end := strings.LastIndexByte(host, ']'); strings.HasPrefix(host, "[") && end > 0 {
		name, port = host[1:end], strings.TrimPrefix(host[end+1:], ":")
	} else if at := strings.LastIndexByte(host, ':'); at >= 0 {
		name, port = host[:at], host[at+1:]
		if port == "" {
			port = "none"
		}
	}
	if n, err := strconv.Atoi(port); port != "" && (err != nil || n < 1 || n > 65535) {
		return fmt.Errorf("host %q: the port is no number from 1 to 65535", host)
	}
	if name == "" || strings.ContainsAny(name, " []@") {
		return fmt.Errorf("host %q: want HOST or HOST:PORT, several with commas between", host)
	}
	return nil
}

func (o *Options) setQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	var errs []error
	var files tlsFiles
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set, ok := urlOptions[name]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("unknown option %q; known are %s", name, strings.Join(slices.Sorted(maps.Keys(urlOptions)), ", ")))
		case len(values[name]) > 1:
			errs = append(errs, fmt.Errorf("option %s is given %d times", name, len(values[name])))
		default:
			if err := set(o, &files, values.Get(name)); err != nil {
				errs = append(errs, fmt.Errorf("option %s: %w", name, err))
			}
		}
	}
	o.TLS, err = files.config()
	return errors.Join(append(errs, err)...)
}

// tlsFiles are the options about TLS.
type tlsFiles struct {
	use                 bool
	ca, cert, key, name string
}

func (f *tlsFiles) config() (*tls.Config, error) {
	if !f.use && *f == (tlsFiles{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.name}
	var errs []error
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		c.RootCAs = x509.NewCertPool()
		if err != nil {
			errs = append(errs, fmt.Errorf("option ca: %w", err))
		} else if !c.RootCAs.AppendCertsFromPEM(pem) {
			errs = append(errs, fmt.Errorf("option ca: %s has no certificate in PEM form", f.ca))
		}
	}
	if (f.cert == "") != (f.key == "") {
		errs = append(errs, errors.New("options cert and key: one of them is missing"))
	} else if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			errs = append(errs, fmt.Errorf("options cert and key: %w", err))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, errors.Join(errs...)
}

func setInt(to *int, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is no whole number above 0", v)
	}
	*to = n
	return nil
}

func setBool(to *bool, v string) error {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return fmt.Errorf("%q is not true or false", v)
	}
	*to = b
	return nil
}

func setDuration(to *time.Duration, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is no duration above 0, like 2s or 500ms", v)
	}
	*to = d
	return nil
}

func setBytes(to *int, v string) error {
	n, ok := parseSize(v)
	if !ok || n < 1 || n > 1<<30 {
		return fmt.Errorf("%q is no size from 1 to 1GiB, like 64KiB or 4MiB", v)
	}
	*to = int(n)
	return nil
}

// parseSize reads a size as Cassandra's settings and the options of URLs write it.
func parseSize(v string) (int64, bool) {
	for unit, factor := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1, "": 1} {
		digits, ok := strings.CutSuffix(v, unit)
		if n, err := strconv.ParseInt(digits, 10, 64); ok && err == nil && n >= 0 && n <= 1<<62/factor {
			return n * factor, true
		}
	}
	return 0, false
}

func setConsistency(o *Options, v string) error {
	switch strings.ToLower(v) {
	case "quorum":
		o.Local = false
	case "local_quorum":
		o.Local = true
	default:
		return fmt.Errorf("%q: want quorum or local_quorum; anything else would lose what was acknowledged", v)
	}
	return nil
}
