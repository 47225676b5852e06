package federation

import (
	"sync"
	"sync/atomic"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// A feedPair is both feeds of an origin. Their streams' lock guards it.
type feedPair struct {
	mesh    feed // for the mesh
	private feed // for this domain alone
}

// A shownIndex is the index of an origin's registrations behind the import policy of its
// peering. Its streams' lock guards changes.
type shownIndex struct {
	cfg     *Config
	index   *index.Index
	peering *atomic.Pointer[directory.Peering]
	stale   bool // nothing is shown: the origin was silent for long, and its peering wants that
}

// quotas bound what is held of an origin. The holder of its streams' change or lock may
// ask them.
type quotas struct {
	cfg     *Config
	peering *atomic.Pointer[directory.Peering]
	pair    *feedPair
}

// A writer writes pages and records of an origin to disk.
type writer struct {
	cfg      *Config
	domain   spiffeid.TrustDomain
	store    *store.Store
	refusals *refusalLog
	quotas   *quotas
	shown    *shownIndex
}

// An entryReader reads entries back from disk, to show them.
type entryReader struct {
	cfg     *Config
	domain  spiffeid.TrustDomain
	store   *store.Store
	records *recordGate
	pair    *feedPair
	shown   *shownIndex
}

// A readmitter asks again for records that there was no room for.
type readmitter struct {
	streams *streams

	mu   sync.Mutex // guards what follows
	room bool       // something was freed, or may be held, since readmit looked
}

// A rejudger brings the index in line with the import policy. Its streams' lock guards it.
type rejudger struct {
	streams *streams
	judging *judging // nil if the index is in line
	unshown bool     // something is held and isn't shown yet, because it could not be read
}

// A comparer finds contradictions between a page and what is held.
type comparer struct {
	cfg     *Config
	streams *streams
	pace    *rate.Limiter // pages of a chain that are read
}
