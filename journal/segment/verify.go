package segment

import "context"

// Damage is one thing that Verify found.
type Damage struct{ What string }

// Verify is to come.
func Verify(_ context.Context, dir string, opts Options, _ func(Damage)) error {
	opts.ReadOnly, opts.AcceptLoss = true, false
	j, err := Open(dir, opts)
	if err != nil {
		return err
	}
	return j.Close()
}
