package directory

// A Claim asks that a request be its Idempotency-Key's first in the domain (draft-cui,
// 5: idempotency).
type Claim struct {
	Key    Hash   // of the caller, the agent and the key's text
	Caller Hash   // of the caller: each may hold so many
	Body   Hash   // of what is asked for
	Holder Hash   // this request's own, random: to claim again with it changes nothing
	Lease  uint32 // seconds within which it has settled, or was lost
	Window uint32 // seconds for which the key is kept
}

// A Settlement is what came of the request that holds a claim.
type Settlement struct {
	Key, Holder Hash
	// Release is that nothing has reached the agent: the next request is the first.
	Release bool
	// Answer is for those that come with the key again; nil where it is not kept.
	Answer *StoredAnswer
}

// A StoredAnswer is the first answer to an Idempotency-Key: a Reply's, or an Error's
// where Problem is set.
type StoredAnswer struct {
	Status          int
	ContentType     string
	Body            []byte
	Problem         Problem
	Detail, Pointer string
}
