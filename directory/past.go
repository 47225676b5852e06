package directory

// A Past is a part of the history of a registration: statements of its domain, the first one first.
type Past struct {
	Statements []PastStatement
	// Earlier is the place of the first of them, an epoch and an index, if there are others before it; else zero.
	Earlier Position
	// Complete is false if a node has not all statements that the domain has kept.
	Complete bool
	// Erased is set once an operator has had the contents of all statements erased.
	Erased bool
	// Checkpoints are signed notes of the ledgers that the statements are in.
	Checkpoints []string
	// Before and After are the registrations that had the same name before and after; zero if none had.
	Before, After RID
}

// A PastStatement is a statement of a Past.
type PastStatement struct {
	Inclusion

	H    Hash   // of its payload
	Path []Hash // from its entry to the root of the checkpoint of its log; nil if it can't be proven here
	// Payload is the statement's, without disclosures: salted hashes of members. It is nil once the
	// contents were pruned.
	Payload []byte
	// Revision is that of the statement; 0 once the contents were pruned.
	Revision uint64
	// Entry is the registration as it was stated; nil for the statement of its end, and once pruned.
	Entry *Entry
}
