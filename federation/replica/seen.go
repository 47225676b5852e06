package replica

import "math/rand/v2"

// A Seen is the state of a stream that readers see: its position here, and its origin's
// key document, which belongs to the mesh stream.
type Seen struct {
	of   *Stream // another one after a new epoch and after a repeated pull
	UpTo uint64
	Keys string
	from uint64 // where the comparison of a new stream begins
}

func (o *Origin) Seen(feed *Feed) (seen Seen) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if st := feed.Cur; st != nil {
		seen.of, seen.UpTo = st, st.State.Watermark
		if st.State.Listed > crossFirst {
			seen.from = st.State.Watermark
		}
	}

	return seen
}

// Compare calls with to compare the revisions of a stream that are new since s, and stores
// the revision reached. The next round continues there. A comparison that is too far behind
// skips revisions, so that a stream that is always too busy is compared in part.
func (s *Seen) Compare(now Seen, with func(since uint64) (reached uint64, enough bool)) {
	if now == *s {
		return
	}

	if now.of != s.of {
		*s = Seen{of: now.of, UpTo: now.from}
	}

	if now.UpTo > s.UpTo+crossLag {
		s.UpTo = now.UpTo - rand.Uint64N(crossLag)
	}

	if reached, enough := with(s.UpTo); enough { // otherwise a node is behind, and is asked again
		*s = now
		s.UpTo = reached
	}
}

const crossFirst = 10_000 // digests of a chain that is compared from its beginning

const crossLag = 100_000 // revisions that a comparison may be behind
