package placement

// Score is the rendezvous hash of a broker and a queue. All brokers of a journal must compute the same, of whatever version they
// are: it is 64-bit FNV-1a over the id, a zero byte and the name, and then the finalizer of SplitMix64, without which
// names that differ in their last byte alone would order the brokers alike.
func Score(id, queue string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * prime
	}
	h *= prime // a zero byte
	for i := range len(queue) {
		h = (h ^ uint64(queue[i])) * prime
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
