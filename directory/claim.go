package directory

import "bytes"

// A Claim reserves an Idempotency-Key in the domain for one request (draft-cui, 5:
// idempotency).
type Claim struct {
	Key    Hash   // of the caller, the agent and the key's text
	Caller Hash   // of the caller, whose claims are bounded; of a ForeignClaimant
	Body   Hash   // of the requested invocation
	Holder Hash   // this request's own, random: to claim again with it changes nothing
	Lease  uint32 // seconds within which it has settled, or was lost
	Window uint32 // seconds for which the key is kept
}

// foreignMark is how the hash of another domain begins as a claim's caller. Other hashes don't begin so,
// except one in 2^64.
var foreignMark = [8]byte{}

// ForeignClaimant returns the caller of the claims of another domain's callers, which are bounded
// together.
func ForeignClaimant(domain string) Hash {
	hash := HashOf([]byte("domain " + domain))
	copy(hash[:], foreignMark[:])

	return hash
}

// IsForeignClaimant reports whether the caller of a claim is another domain.
func IsForeignClaimant(caller Hash) bool { return bytes.HasPrefix(caller[:], foreignMark[:]) }

// A Settlement ends a claim with the result of its request.
type Settlement struct {
	Key, Holder Hash
	// Release gives the key free: nothing has reached the agent.
	Release bool
	// Answer is returned to later requests with the key; nil if it is not stored.
	Answer *StoredAnswer
}

// A StoredAnswer is the first answer to an Idempotency-Key: a reply of the agent, or an
// Error if Problem is set.
type StoredAnswer struct {
	Status          int
	ContentType     string
	Body            []byte
	Problem         Problem
	Detail, Pointer string
}
