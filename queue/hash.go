package queue

import "crypto/sha256"

// HashKey hashes an ordering key: FNV-1a of 64 bits, finished by a mixing step. It is fixed for good, since stored
// events carry it. Two keys of the same hash are merely processed one after the other. 0 means no key and is never
// returned for one.
func HashKey(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return max(h, 1)
}

// HashDedupID hashes a dedup id: the first half of its SHA-256, so that no two ids that anybody can find are taken for
// one (G2). It is fixed for good.
func HashDedupID(id []byte) [16]byte {
	sum := sha256.Sum256(id)
	return [16]byte(sum[:16])
}
