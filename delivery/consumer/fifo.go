package consumer

// fifo is a queue in a slice that is used again and again: it allocates only when it is longer than ever.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) {
	if f.head > 0 && len(f.items) == cap(f.items) && f.head >= len(f.items)/2 {
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
		f.items, f.head = f.items[:0], 0
	}
	return v
}

// unpop puts items back in front.
func (f *fifo[T]) unpop(items []T) {
	if len(items) <= f.head {
		f.head -= len(items)
		copy(f.items[f.head:], items)
		return
	}
	all := make([]T, 0, len(items)+f.len())
	all = append(append(all, items...), f.items[f.head:]...)
	f.items, f.head = all, 0
}

// remove takes out what matches, calling out with each, in order.
func (f *fifo[T]) remove(match func(*T) bool, out func(T)) {
	kept := f.items[:f.head]
	for _, v := range f.items[f.head:] {
		if match(&v) {
			out(v)
		} else {
			kept = append(kept, v)
		}
	}
	clear(f.items[len(kept):])
	f.items = kept
}
