package journals

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// hidden stands for a password or a token.
const hidden = "xxxxx"

// Redacted returns the URL of a journal for logs: without its options, and without a password or token. Hosts, and the user, stay. Of
// a text that names no journal it returns what is safe to show.
func Redacted(text string) string {
	scheme, place, ok := strings.Cut(text, ":")
	if !ok {
		if strings.Contains(text, "@") {
			return "…"
		}
		return text
	}
	place, options, _ := strings.Cut(place, "?")
	if ownProcess[scheme] {
		return scheme + ":" + place
	}
	rest, ok := strings.CutPrefix(place, "//")
	if !ok || strings.Contains(options, "@") {
		// It may be a password that is cut off in front of the @.
		return scheme + ":…"
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return scheme + "://" + rest
	}
	user, _, both := strings.Cut(rest[:at], ":")
	switch {
	case !both && scheme == "nats", strings.ContainsAny(user, "/@#"):
		user = hidden // a token, or nothing that a user is called
	case both:
		user += ":" + hidden
	}
	return scheme + "://" + user + "@" + rest[at+1:]
}

// Redacted returns the URL for logs: see the function of that name.
func (u *URL) Redacted() string { return Redacted(u.text) }

// checkSecret refuses a user or password that ends where it should not: the drivers would take parts of it for hosts, paths or options, and name
// those in their errors.
func (u *URL) checkSecret() error {
	rest, ok := strings.CutPrefix(u.Place, "//")
	if !ok || ownProcess[u.Scheme] {
		return nil
	}
	authority, path, _ := strings.Cut(rest, "/")
	bad := strings.ContainsAny(authority, "#") || strings.Contains(path, "@") || strings.Count(authority, "@") > 1
	for name := range u.options {
		bad = bad || strings.ContainsAny(name, "@/")
	}
	if bad {
		return fmt.Errorf("%w: an @ stands where no user and password end; in those write @ as %%40, / as %%2F, ? as %%3F, # as %%23, %% as %%25", ErrURL)
	}
	return nil
}

// secrets returns what must not be told of the URL: passwords and tokens, as they are written and as they are meant.
func (u *URL) secrets() []string {
	var all []string
	add := func(s string) {
		all = append(all, s)
		for _, unescape := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
			if plain, err := unescape(s); err == nil {
				all = append(all, plain)
			}
		}
	}
	if rest, ok := strings.CutPrefix(u.Place, "//"); ok && !ownProcess[u.Scheme] {
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			user, password, both := strings.Cut(rest[:at], ":")
			if both {
				add(password)
			} else if u.Scheme == "nats" {
				add(user)
			}
		}
	}
	for name, values := range u.options {
		if name = strings.ToLower(name); strings.Contains(name, "password") || strings.Contains(name, "secret") || strings.Contains(name, "token") {
			for _, v := range values {
				add(v)
				add(url.QueryEscape(v))
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.DeleteFunc(all, func(s string) bool { return len(s) < minSecret })
}

// minSecret is the length below which a password is not looked for in errors: it would be found in words.
const minSecret = 4

// redactedError is an error whose text had a secret in it.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// redact takes the URL's secrets out of the text of an error.
func (u *URL) redact(err error) error {
	text := err.Error()
	for _, s := range u.secrets() {
		text = strings.ReplaceAll(text, s, hidden)
	}
	if text == err.Error() {
		return err
	}
	return &redactedError{text, err}
}
