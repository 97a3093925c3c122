package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Size is the value of a flag that counts bytes: a number with an optional unit, B, KiB, MiB, GiB, TiB, or kB, MB, GB, TB.
type Size int64

// MaxSize is the largest Size that can be written.
const MaxSize Size = 1 << 62

var units = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// Set reads a size. It implements pflag.Value.
func (s *Size) Set(text string) error {
	number, factor := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = strings.TrimSpace(n), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), n != n:
		return fmt.Errorf("%q is not a size like 4096, 64KiB or 1.5GB", text)
	case n < 0:
		return fmt.Errorf("%q is a negative size", text)
	case n*float64(factor) > float64(MaxSize):
		return fmt.Errorf("%q is too large, want at most %s", text, FormatSize(int64(MaxSize)))
	}
	*s = Size(n * float64(factor))
	return nil
}

// String writes the size with the largest unit that divides it.
func (s *Size) String() string { return FormatSize(int64(*s)) }

// Type names the value in the help. It implements pflag.Value.
func (s *Size) Type() string { return "size" }

// FormatSize writes a number of bytes as a Size is read, with one digit behind the point where the unit does not divide it.
func FormatSize(n int64) string {
	for i := 3; i >= 0; i-- {
		switch u := units[i]; {
		case n < u.bytes:
		case n%u.bytes == 0:
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		default:
			return strconv.FormatFloat(float64(n)/float64(u.bytes), 'f', 1, 64) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// Duration is the value of a flag that is a time span: as time.ParseDuration reads it, with d for days of 24 hours at its
// beginning: 7d, 1d12h, 90s. It is not negative.
type Duration time.Duration

var errDuration = errors.New("is not a duration like 500ms, 90s, 1h30m or 7d")

// Set reads a duration. It implements pflag.Value.
func (d *Duration) Set(text string) error {
	rest, total := text, time.Duration(0)
	if days, more, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return fmt.Errorf("%q %w", text, errDuration)
		}
		total, rest = time.Duration(n)*24*time.Hour, more
	}
	if rest != "" {
		v, err := time.ParseDuration(rest)
		if err != nil || v < 0 || total+v < total {
			return fmt.Errorf("%q %w", text, errDuration)
		}
		total += v
	} else if text == "" {
		return fmt.Errorf("%q %w", text, errDuration)
	}
	*d = Duration(total)
	return nil
}

// String writes the duration without the zeroes at its end.
func (d *Duration) String() string { return FormatDuration(time.Duration(*d)) }

// Type names the value in the help. It implements pflag.Value.
func (d *Duration) Type() string { return "duration" }

// FormatDuration writes 2h0m0s as 2h, and 48h as 2d.
func FormatDuration(d time.Duration) string {
	if d > 0 && d%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// Choice is the value of a flag that is one of a few words.
type Choice struct {
	// Value is the word that was chosen.
	Value string
	// Of are the words.
	Of []string
}

// Set reads a word. It implements pflag.Value.
func (c *Choice) Set(text string) error {
	for _, w := range c.Of {
		if text == w {
			c.Value = w
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(c.Of, ", "))
}

// String returns the word.
func (c *Choice) String() string { return c.Value }

// Type names the value in the help. It implements pflag.Value.
func (c *Choice) Type() string { return strings.Join(c.Of, "|") }

// Count writes how many of a thing there are: 1 message, 2,000 messages.
func Count[T ~int | ~int64 | ~uint64 | ~uint32](n T, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return FormatCount(n) + " " + thing
}

// FormatCount writes a number with commas between its thousands.
func FormatCount[T ~int | ~int64 | ~uint64 | ~uint32](n T) string {
	s := fmt.Sprint(n)
	start := 0
	if strings.HasPrefix(s, "-") {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
