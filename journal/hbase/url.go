package hbase

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// Scheme is that of the driver's URLs.
const Scheme = "hbase"

// urlHelp describes the URLs in errors.
const urlHelp = "hbase://HOST[:PORT][,HOST[:PORT]…]/[NAMESPACE:]TABLE?synced=true"

// defaultPort is the gateway's own default.
const defaultPort = "9090"

// urlOptions are the options of a URL by name, and what each sets.
var urlOptions = map[string]func(o *Options, v string) error{
	"synced":         func(o *Options, v string) error { return setBool(&o.Synced, v) },
	"framed":         func(o *Options, v string) error { return setBool(&o.Framed, v) },
	"http":           func(o *Options, v string) error { return setBool(&o.HTTP, v) },
	"https":          func(o *Options, v string) error { return setBool(&o.HTTPS, v) },
	"ca":             func(o *Options, v string) error { return setText(&o.CAFile, v) },
	"cert":           func(o *Options, v string) error { return setText(&o.CertFile, v) },
	"key":            func(o *Options, v string) error { return setText(&o.KeyFile, v) },
	"max-record":     func(o *Options, v string) error { return setNumber(&o.MaxRecordBytes, v) },
	"bucket-records": func(o *Options, v string) error { return setNumber(&o.BucketRecords, v) },
	"bucket-bytes":   func(o *Options, v string) error { return setNumber(&o.BucketBytes, v) },
	"regions":        func(o *Options, v string) error { return setNumber(&o.Regions, v) },
	"connections":    func(o *Options, v string) error { return setNumber(&o.Connections, v) },
	"timeout":        func(o *Options, v string) error { return setDuration(&o.Timeout, v) },
}

// ParseURL reads a URL hbase://[USER:PASSWORD@]HOST[:PORT][,…]/[NAMESPACE:]TABLE?OPTION=VALUE&…. The port defaults to
// 9090, the table to [DefaultTable].
//
// Options: synced=true (required, see [Options.Synced]); framed, http or https=true; ca, cert and key (files); max-record, bucket-records,
// bucket-bytes, regions and connections (numbers, sizes with KiB or MiB); timeout (5s). Anything else is an error. All faults are reported
// together; they match journal.ErrInvalid.
func ParseURL(text string) (Options, error) {
	var o Options
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	rest, ok := strings.CutPrefix(text, Scheme+"://")
	if !ok {
		return o, fmt.Errorf("%w: not of the form %s", journal.ErrInvalid, urlHelp)
	}
	// By hand, as net/url knows one host only, and as an error of its would show the password.
	rest, query, _ := strings.Cut(rest, "?")
	hosts, table, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		user, password, _ := strings.Cut(hosts[:at], ":")
		var userErr, passwordErr error
		o.User, userErr = url.PathUnescape(user)
		o.Password, passwordErr = url.PathUnescape(password)
		if userErr != nil || passwordErr != nil {
			fail("%w: user and password: a %% that is not followed by two hexadecimal digits", journal.ErrInvalid)
		}
		hosts = hosts[at+1:]
	}
	for host := range strings.SplitSeq(hosts, ",") {
		address, err := gatewayAddress(host)
		if err != nil {
			errs = append(errs, err)
		}
		o.Gateways = append(o.Gateways, address)
	}
	table, err := url.PathUnescape(table)
	if err != nil {
		fail("%w: table: %w", journal.ErrInvalid, err)
	}
	o.Table = strings.TrimSuffix(table, "/")
	values, err := url.ParseQuery(query)
	if err != nil {
		fail("%w: options: %w", journal.ErrInvalid, err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set, known := urlOptions[name]
		if !known {
			fail("%w: unknown option %q; known are %s", journal.ErrInvalid, name, strings.Join(slices.Sorted(maps.Keys(urlOptions)), ", "))
		} else if err := set(&o, values.Get(name)); err != nil || len(values[name]) > 1 {
			fail("%w: option %s: %w", journal.ErrInvalid, name, cmpErr(err))
		}
	}
	return o, errors.Join(errs...)
}

func cmpErr(err error) error {
	if err != nil {
		return err
	}
	return errors.New("given twice")
}

// gatewayAddress completes an address of a URL.
func gatewayAddress(host string) (string, error) {
	if host == "" {
		return "", fmt.Errorf("%w: no host; want %s", journal.ErrInvalid, urlHelp)
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil { // without a port, or not at all
		name, port = strings.Trim(host, "[]"), defaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || name == "" || strings.ContainsAny(name, " /@") {
		return "", fmt.Errorf("%w: gateway %q: want HOST:PORT", journal.ErrInvalid, host)
	}
	return net.JoinHostPort(name, port), nil
}

func setBool(to *bool, v string) (err error) {
	if *to, err = strconv.ParseBool(v); err != nil {
		return fmt.Errorf("%q is not true or false", v)
	}
	return nil
}

func setText(to *string, v string) error {
	*to = v
	if v == "" {
		return errors.New("empty")
	}
	return nil
}

// setNumber reads a number above 0, or a size.
func setNumber(to *int, v string) error {
	digits, factor := v, 1
	for unit, f := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if d, ok := strings.CutSuffix(v, unit); ok {
			digits, factor = d, f
		}
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is not a number above 0, or a size like 512KiB or 8MiB", v)
	}
	*to = int(n) * factor
	return nil
}

func setDuration(to *time.Duration, v string) (err error) {
	if *to, err = time.ParseDuration(v); err != nil || *to <= 0 {
		return fmt.Errorf("%q is not a duration above 0, like 5s", v)
	}
	return nil
}
