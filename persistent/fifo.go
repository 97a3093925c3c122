package persistent

// fifo is a queue in a slice that is used again.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) front() *T { return &f.items[f.head] }

// all returns what is in, in order.
func (f *fifo[T]) all() []T { return f.items[f.head:] }

func (f *fifo[T]) push(v T) {
	if f.head > 32 && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

func (f *fifo[T]) pop() T {
	var zero T
	v := f.items[f.head]
	f.items[f.head] = zero
	if f.head++; f.head == len(f.items) {
		if f.items, f.head = f.items[:0], 0; cap(f.items) > 4096 {
			f.items = nil
		}
	}
	return v
}
