package cli

import (
	"log/slog"
)

// NewLogger returns the log that --log-level and --log-format ask for, on standard error.
func (a *App) NewLogger(level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, Usagef("log level %q is none of debug, info, warn, error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(a.Err, o)), nil
	}
	return slog.New(slog.NewTextHandler(a.Err, o)), nil
}
