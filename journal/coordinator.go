package journal

import "context"

// MaxMemberBytes bounds the data of a member's entry, in bytes.
const MaxMemberBytes = 32 << 10

// Coordinator is the optional side of a journal that several processes share: a small table
// in which each says that it is there. It is no lock and decides nothing: who owns a stream is decided by
// [Journal.Acquire] alone. The entries are the members' own business; the journal only
// keeps them.
//
// All methods may be called concurrently. A change that ended without an answer is [ErrUnknown];
// repeating it is safe.
type Coordinator interface {
	// PutMember stores the entry of a member, in place of the one that it had. Every call of
	// Members that begins after it has returned sees it, in whichever process. It need not be
	// durable on return. Ids obey [CheckName]; data may be empty, and above [MaxMemberBytes] it is ErrTooLarge.
	PutMember(ctx context.Context, id string, data []byte) error

	// DeleteMember removes an entry; one that is not there is no error.
	DeleteMember(ctx context.Context, id string) error

	// Members returns all entries by id. The map and its data belong to the caller.
	Members(ctx context.Context) (map[string][]byte, error)
}
