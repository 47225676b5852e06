package postings

import "sync/atomic"

// A DeadCount remembers how many of a list's postings are of dead slots, and of how many
// deaths that was; 0 if it is not known. Queries write it side by side, and all
// write the same.
type DeadCount struct{ word atomic.Uint64 }

func (t *DeadCount) forget() { t.word.Store(0) }

func (t *DeadCount) Load() uint64 { return t.word.Load() }

func (t *DeadCount) Store(word uint64) { t.word.Store(word) }
