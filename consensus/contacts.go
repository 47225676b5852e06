package consensus

import (
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A ContactState is whether a member of the domain answers.
type ContactState string

// The states of a member. Only the leader, and a member that knows no leader, exchange messages with
// all others; of the rest a member knows nothing without the leader's word.
const (
	ContactAlive   ContactState = "alive"
	ContactSilent  ContactState = "silent" // nothing was received of it for silentAfter
	ContactUnknown ContactState = "unknown"
)

// silentAfter is after how long without a message or an answer a member is silent. A leader sends
// each member a heartbeat at least five times a second.
const silentAfter = 3 * time.Second

// contacts know when this member last received something of each other one: a message of Raft, an
// answer to one, or its word to the leader.
type contacts struct {
	cfg   *Config
	log   *slog.Logger
	group *group
	life  *lifecycle

	mu    sync.Mutex
	heard map[raft.ServerID]time.Time
	// matches are how far members have this leader's log, by their answers to Raft's messages.
	matches map[raft.ServerID]logMatch
	// promoted are the members to which this leader has given a vote and that have not answered since.
	promoted map[raft.ServerID]time.Time
	// added are the members that this leader has added and that have not answered since.
	added map[raft.ServerID]time.Time
	// since is when this member began to exchange messages with all others; zero while it follows a
	// leader.
	since  time.Time
	logged map[raft.ServerID]bool // the members that were logged as silent; of run alone
	// duplicates are the second processes with the identities of members that have asked to join of late.
	duplicates map[spiffeid.ID]duplicate
}

// note notes that something of a member was received now.
func (c *contacts) note(id raft.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard[id] = time.Now()
	delete(c.added, id)
}

// add notes that this leader adds a member, which answers only once this leader sends to it.
func (c *contacts) add(id raft.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added[id] = time.Now()
}

// A logMatch is how far a member has the log of this leader in a term, and when it said so last.
type logMatch struct {
	term, index uint64
	at          time.Time
}

// match notes that a member has answered this leader that it has the log up to an index.
func (c *contacts) match(id raft.ServerID, term, index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()

	known := c.matches[id]

	// The answers of a term may overtake each other.
	if known.term == term {
		index = max(index, known.index)
	}

	c.matches[id] = logMatch{term, index, time.Now()}
	delete(c.promoted, id)
}

// promote notes that this leader gives a member its vote.
func (c *contacts) promote(id raft.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.promoted[id] = time.Now()
}

// unanswered returns a member that this leader gave a vote answerAfter ago and that has never answered
// since; zero if there is none.
func (c *contacts) unanswered() raft.ServerID {
	c.mu.Lock()
	defer c.mu.Unlock()

	for id, at := range c.promoted {
		if time.Since(at) > answerAfter {
			delete(c.promoted, id)
			return id
		}
	}

	return ""
}

// answerAfter is how long a new voter has to answer its leader.
const answerAfter = 30 * time.Second

// matched returns how far a member has the log of a leader that this member was or is, and when it said so last;
// zero if it has never answered entries.
func (c *contacts) matched(id spiffeid.ID) logMatch {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.matches[raft.ServerID(id.String())]
}

// last returns when a member was last in contact; zero if this member does not know.
func (c *contacts) last(id spiffeid.ID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.heard[raft.ServerID(id.String())]
}

// state judges a member of which this member should have received something, because it leads or
// knows no leader, and returns when it was last in contact; zero if that is unknown.
func (c *contacts) state(id spiffeid.ID) (ContactState, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	heard, since := c.heard[raft.ServerID(id.String())], c.since
	if added := c.added[raft.ServerID(id.String())]; added.After(since) {
		since = added
	}

	switch {
	case time.Since(heard) <= silentAfter:
		return ContactAlive, heard
	case c.since.IsZero() || heard.IsZero() && time.Since(since) <= silentAfter:
		return ContactUnknown, time.Time{} // contacts of an earlier term say nothing
	}

	return ContactSilent, heard
}

// follow notes whether this member follows a leader. Contacts from before it began to exchange
// messages with all others count only if they are of the last moments.
func (c *contacts) follow(follows bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if follows {
		c.since = time.Time{}
		return
	}

	// Later rounds leave the beginning of the silence as it is.
	if !c.since.IsZero() {
		return
	}

	// These members are of an earlier term.
	clear(c.promoted)
	clear(c.added)

	// The silence began with the leader's, which elections notice late.
	c.since = time.Now().Add(-noticedWithin)
	for id, at := range c.heard {
		if time.Since(at) > silentAfter {
			delete(c.heard, id)
		} else if at.After(c.since) {
			c.since = at
		}
	}
}

// noticedWithin bounds how long before this member lost its leader the silence of others may have begun:
// so each has at least the rest of silentAfter to answer.
const noticedWithin = silentAfter - time.Second

// A duplicate is a second process with the identity of a member.
type duplicate struct {
	address string
	seen    time.Time
}

// duplicateKept is for how long a second process is shown after its last join request. It repeats it
// after joinPauseLongest.
const duplicateKept = 4 * joinPauseLongest

// noteDuplicate notes, as the leader, that two processes have one identity: the member at its seat,
// and another one. It logs that once.
func (c *contacts) noteDuplicate(id spiffeid.ID, seat, other string) {
	c.mu.Lock()
	known, ok := c.duplicates[id]
	c.duplicates[id] = duplicate{other, time.Now()}
	c.mu.Unlock()

	if !ok || known.address != other || time.Since(known.seen) > duplicateKept {
		c.log.Warn("two processes use this identity; the second one is refused", "node", id, "address", seat,
			"second_address", other)
	}
}

// clearDuplicate forgets the second process of a member.
func (c *contacts) clearDuplicate(id spiffeid.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.duplicates, id)
}

// duplicate returns the address of the second process with a member's identity; empty if there is none.
func (c *contacts) duplicate(id spiffeid.ID) string {
	c.mu.Lock()
	defer c.mu.Unlock()

	if one, ok := c.duplicates[id]; ok && time.Since(one.seen) <= duplicateKept {
		return one.address
	}

	return ""
}

// run logs, as the leader, the members that fall silent and those that answer again.
func (c *contacts) run(leads func() bool) {
	every(c.life.closing, c.cfg.Timing.Sweep, func() {
		leader, ok := c.group.leader()
		c.follow(ok && leader.ID != c.cfg.Node)

		// A follower receives messages of its leader alone, and a member that stops may be one of many.
		if !leads() || c.group.stopping.Load() {
			clear(c.logged)
			return
		}

		for _, m := range c.group.servers() {
			if m.ID != c.cfg.Node {
				c.logChange(m)
			}
		}
	})
}

// isNew reports whether this member has begun to exchange messages with all others only silentAfter ago.
func (c *contacts) isNew() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return time.Since(c.since) <= noticedWithin+silentAfter
}

// logChange logs that a member has fallen silent, or that it answers again.
func (c *contacts) logChange(m server) {
	id := raft.ServerID(m.ID.String())

	switch state, last := c.state(m.ID); {
	case state == ContactSilent && last.IsZero() && c.isNew():
		// It may be slow to answer its new leader. The silence of one that died with the former leader is
		// logged a little later.
	case state == ContactSilent && !c.logged[id]:
		c.logged[id] = true
		attributes := []any{"node", m.ID, "address", m.Address}

		if !last.IsZero() {
			attributes = append(attributes, "silent_ms", time.Since(last).Milliseconds())
		}

		c.log.Warn("a member is silent", attributes...)
	case state == ContactAlive && c.logged[id]:
		delete(c.logged, id)
		c.log.Info("a member answers again", "node", m.ID, "address", m.Address)
	}
}
