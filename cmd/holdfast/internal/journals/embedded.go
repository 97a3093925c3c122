package journals

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// DefaultScheme is the scheme of the embedded journal that is taken where nobody chose one.
const DefaultScheme = "segment"

// marks tell whose files a directory has, by scheme: how the file FORMAT begins, and names that only that engine gives.
var marks = map[string]struct {
	format string
	names  func(name string) bool
	called string
}{
	"pebble": {"holdfast pebble journal, format ", func(n string) bool {
		return strings.HasPrefix(n, "MANIFEST-") || strings.HasPrefix(n, "marker.") || strings.HasSuffix(n, ".sst")
	}, "a Pebble store"},
	"segment": {"holdfast segment journal, format ", func(n string) bool {
		return strings.HasSuffix(n, ".seg") || strings.HasPrefix(n, "CHECKPOINT-")
	}, "a segment log"},
}

// Found returns the scheme of the embedded journal that a directory holds, or "" where it holds none, or is not there. A store that was begun and
// not finished, so that it does not say yet what it is, is told by its files.
func Found(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "FORMAT"))
	if err == nil {
		for scheme, m := range marks {
			if strings.HasPrefix(string(text), m.format) {
				return scheme, nil
			}
		}
		return "", nil // the driver says what is wrong with it
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for a journal in %s: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for a journal in %s: %w", dir, err)
	}
	for _, e := range entries {
		for scheme, m := range marks {
			if m.names(e.Name()) {
				return scheme, nil
			}
		}
	}
	return "", nil
}

// Default returns the URL of the embedded journal in a directory, for whoever has chosen none: that of what is there, so that a store that an
// earlier version made goes on being used; otherwise one of DefaultScheme. move is not empty if what is there is of another kind: it says so, and
// how to change that.
func Default(dir string) (url, move string, err error) {
	scheme, err := Found(dir)
	if err != nil {
		return "", "", err
	}
	if scheme == "" || scheme == DefaultScheme {
		return DefaultScheme + ":" + dir, "", nil
	}
	url = scheme + ":" + dir
	move = fmt.Sprintf("%s holds %s, and not %s, which is the default by now: it goes on being used; to move it, stop this broker, run \"holdfast journal copy %s %s:%[1]s-%[5]s\", and serve with --journal %[5]s:%[1]s-%[5]s",
		dir, marks[scheme].called, marks[DefaultScheme].called, url, DefaultScheme)
	return url, move, nil
}

// KindError says that a directory holds an embedded journal of another kind than its URL says. It matches ErrURL.
type KindError struct {
	// Dir is the directory as the URL names it.
	Dir string
	// Scheme is what the URL says, Found what is there.
	Scheme, Found string
}

func (e *KindError) Error() string {
	return fmt.Sprintf("%s holds %s, not %s: use %s:%s, or copy it to another directory with: holdfast journal copy %[4]s:%[1]s %[6]s:ANOTHER",
		e.Dir, marks[e.Found].called, marks[e.Scheme].called, e.Found, e.Dir, e.Scheme)
}

// Is makes every KindError match ErrURL.
func (e *KindError) Is(target error) bool { return target == ErrURL }

// checkKind refuses a directory that holds an embedded journal of another kind, before anything in it is touched.
func (u *URL) checkKind() error {
	if _, embedded := marks[u.Scheme]; !embedded || u.Place == "" {
		return nil
	}
	found, err := Found(u.Place)
	if err != nil {
		return err
	}
	if found != "" && found != u.Scheme {
		return &KindError{Dir: u.Place, Scheme: u.Scheme, Found: found}
	}
	return nil
}

// sizeOption is an option of an embedded journal that counts bytes.
type sizeOption struct {
	name string
	// least and most are the values that the driver takes; 0 always means its default.
	least, most cli.Size
	set         func(cli.Size)
}

// sizes reads options that count bytes. Faults are reported together, and match ErrURL.
func (u *URL) sizes(options ...sizeOption) error {
	var errs []error
	for _, o := range options {
		text, ok := u.option(o.name)
		if !ok {
			continue
		}
		var s cli.Size
		err := s.Set(text)
		if err == nil && s != 0 && (s < o.least || s > o.most) {
			err = fmt.Errorf("is %s, want %s up to %s, or 0 for its default", &s, &o.least, &o.most)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: option %s: %w", ErrURL, o.name, err))
			continue
		}
		o.set(s)
	}
	return errors.Join(errs...)
}

// flag reads an option that is true or false, false if it is not there. A fault matches ErrURL.
func (u *URL) flag(name string) (bool, error) {
	text, ok := u.option(name)
	if !ok {
		return false, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%w: option %s: %q is not true or false", ErrURL, name, text)
	}
	return v, nil
}

// checkReserve refuses to keep more space free than the file system of a directory has, which would refuse every send.
func checkReserve(dir string, reserve int64) error {
	if reserve == 0 {
		return nil
	}
	at, err := filepath.Abs(dir)
	if err != nil {
		return nil //nolint:nilerr // the driver says what is wrong with the directory
	}
	for {
		_, total, err := vfs.OS().Space(at)
		if err == nil && total > 0 && uint64(reserve) >= total {
			return fmt.Errorf("%w: option reserve: is %s, and the file system of %s has %s in all", ErrURL, cli.FormatSize(reserve), dir, cli.FormatSize(int64(total)))
		}
		if parent := filepath.Dir(at); err != nil && parent != at {
			at = parent // it is not there yet
			continue
		}
		return nil
	}
}
