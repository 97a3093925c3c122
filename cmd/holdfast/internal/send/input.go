package send

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
)

var holdfastLimits = message.Limits{}

// maxInput bounds one message, or one line, that is read from a file or from standard input.
const maxInput = 1 << 30

// input yields the messages to send.
type input struct {
	// next returns the next message, or io.EOF.
	next func() (holdfast.Message, error)
	// what a message is called when it is told where to resume: "line", "file", "message".
	unit string
	// wait, if not nil, waits until the next message is due.
	wait func(ctx context.Context) error
	// reads tells that next may block.
	reads bool
}

// newInput returns the input that the command line describes. skip is called with the number of messages that are left out.
func newInput(f *flags, in io.Reader, bodies []string) (*input, error) {
	base, err := f.message()
	if err != nil {
		return nil, err
	}
	switch {
	case f.repeat:
		return f.repeated(base, bodies[0]), nil
	case f.files:
		return filesInput(base, in, bodies), nil
	case len(bodies) > 0:
		return bodiesInput(base, bodies), nil
	case f.lines:
		return linesInput(base, in), nil
	}
	done := false
	return &input{unit: "message", reads: true, next: func() (holdfast.Message, error) {
		if done {
			return base, io.EOF
		}
		done = true
		m := base
		m.Body, err = io.ReadAll(io.LimitReader(in, maxInput+1))
		if err == nil && len(m.Body) > maxInput {
			err = fmt.Errorf("standard input has more than %d bytes", maxInput)
		}
		return m, err
	}}, nil
}

func bodiesInput(base holdfast.Message, bodies []string) *input {
	return &input{unit: "message", next: func() (holdfast.Message, error) {
		if len(bodies) == 0 {
			return base, io.EOF
		}
		m := base
		m.Body, bodies = []byte(bodies[0]), bodies[1:]
		return m, nil
	}}
}

// repeated yields the same body again and again, with the number of the message in it.
func (f *flags) repeated(base holdfast.Message, body string) *input {
	n, sender := int64(0), f.sender()
	in := &input{unit: "message", next: func() (holdfast.Message, error) {
		if f.count > 0 && n >= f.count {
			return base, io.EOF
		}
		n++
		m := base
		m.Body = []byte(strings.NewReplacer("{n}", strconv.FormatInt(n, 10), "{sender}", sender).Replace(body))
		return m, nil
	}}
	if f.every > 0 {
		var begin time.Time
		sent := 0
		in.wait = func(ctx context.Context) error {
			if begin.IsZero() {
				begin = time.Now()
			}
			t := time.NewTimer(time.Until(begin.Add(time.Duration(sent) * time.Duration(f.every))))
			defer t.Stop()
			sent++
			select {
			case <-t.C:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return in
}

func linesInput(base holdfast.Message, in io.Reader) *input {
	next := lineReader(in)
	return &input{unit: "line", reads: true, next: func() (holdfast.Message, error) {
		m := base
		var err error
		m.Body, err = next()
		return m, err
	}}
}

// lineReader returns a function that returns line after line, each a slice of its own, without its end.
func lineReader(in io.Reader) func() ([]byte, error) {
	r := bufio.NewReaderSize(in, 64<<10)
	return func() ([]byte, error) {
		var line []byte
		for {
			part, err := r.ReadSlice('\n')
			line = append(line, part...)
			switch {
			case len(line) > maxInput:
				return nil, fmt.Errorf("a line has more than %d bytes", maxInput)
			case errors.Is(err, bufio.ErrBufferFull):
				continue
			case errors.Is(err, io.EOF) && len(line) > 0:
				return line, nil
			case err != nil:
				return nil, err
			}
			return bytes.TrimSuffix(line, []byte("\n")), nil
		}
	}
}

// filesInput yields the contents of files, whose paths are arguments or lines of standard input.
func filesInput(base holdfast.Message, in io.Reader, paths []string) *input {
	next := lineReader(in)
	if len(paths) > 0 {
		next = func() ([]byte, error) {
			if len(paths) == 0 {
				return nil, io.EOF
			}
			p := paths[0]
			paths = paths[1:]
			return []byte(p), nil
		}
	}
	return &input{unit: "file", reads: true, next: func() (holdfast.Message, error) {
		m := base
		path, err := next()
		if err != nil {
			return m, err
		}
		m.Headers = append(m.Headers[:len(m.Headers):len(m.Headers)], holdfast.Header{Name: "path", Value: string(path)})
		m.Body, err = os.ReadFile(string(path))
		return m, err
	}}
}
