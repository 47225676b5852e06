package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ErrOtherHistory says that the nodes of one domain have two histories. One of them began while the
// disks of the other were away or lost.
var ErrOtherHistory = errors.New("the domain has two histories")

// histories compares the name of this node's history with those of the other nodes. Indexes and terms
// don't tell two histories apart, because both begin with the same ones.
type histories struct {
	cfg   *Config
	log   *slog.Logger
	life  *lifecycle
	group *group
	own   func() transport.History

	mu     sync.Mutex
	others map[spiffeid.ID]transport.Claim // nodes with another history
}

// claim returns this node's word on its history, for handshakes.
func (h *histories) claim() transport.Claim {
	me, joined := h.group.server(h.cfg.Node)

	return transport.Claim{History: h.own(), Voter: joined && me.voter}
}

// judge compares a node's claim with this node's history. A node without a history, which waits to be
// let in, goes with every other one.
func (h *histories) judge(from spiffeid.ID, claim transport.Claim) error {
	own := h.own()
	if own.IsZero() || claim.History.IsZero() || claim.History == own {
		h.forget(from)
		return nil
	}

	if from.TrustDomain() != h.cfg.Domain {
		// A node of another domain is refused elsewhere.
		return nil
	}

	err := fmt.Errorf("%w: this node has %s and %s has %s", ErrOtherHistory, own, from, claim.History)
	if h.note(from, claim) {
		h.log.Error("refusing a node of the domain that has another history; "+
			"docs/runbooks.md#two-histories says what to do", "node", from, "history", claim.History.String(),
			"own", own.String())
	}

	h.stopIfOutnumbered()

	return err
}

// note remembers a node of another history, and reports whether that is news.
func (h *histories) note(from spiffeid.ID, claim transport.Claim) bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	before, known := h.others[from]
	h.others[from] = claim

	return !known || before.History != claim.History
}

// forget forgets a node that had another history, and has this one or none by now.
func (h *histories) forget(id spiffeid.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.others, id)
}

// list returns the nodes that have another history.
func (h *histories) list() map[spiffeid.ID]transport.Claim {
	h.mu.Lock()
	defer h.mu.Unlock()

	return maps.Clone(h.others)
}

// stopIfOutnumbered stops this member if more than half of all voters that it knows have another
// history: its own can't have a majority beside them. Fewer can't stop it, so that one node that was
// begun by mistake doesn't end the domain.
func (h *histories) stopIfOutnumbered() {
	voters := map[spiffeid.ID]bool{}
	for _, m := range h.group.servers() {
		if m.voter {
			voters[m.ID] = true
		}
	}

	var others []string

	own := h.own()

	names := map[transport.History]bool{}
	for id, claim := range h.list() {
		if !claim.Voter {
			continue
		}

		// A node that only claims a vote raises the total, too, so it can't outnumber this history alone.
		voters[id] = true
		others = append(others, id.String())
		names[claim.History] = true
	}

	if 2*len(others) <= len(voters) {
		return
	}

	slices.Sort(others)

	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name.String())
	}

	slices.Sort(list)

	h.life.fail(fmt.Errorf("%w: %s, with most of its voters, have %s and this node has %s; nothing of the one is in "+
		"the other", ErrOtherHistory, strings.Join(others, ", "), strings.Join(list, ", "), own))
}
