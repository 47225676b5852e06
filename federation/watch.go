package federation

import (
	"context"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"golang.org/x/time/rate"
)

// The pace of a watch.
const (
	watchEvery = 500 * time.Millisecond
	callAfter  = 6500 * time.Millisecond // silence after which all nodes of a peer are asked, again and again
	callTime   = 2 * time.Second         // for their answers: before the peer counts as unreachable
	callMost   = 8                       // nodes
	lateTick   = 2 * time.Second         // if a tick is later, this process did not run
	failingFor = 15 * time.Second        // after which a peer that only pings is logged
	watchLines = 6                       // log lines about a peer at once; later one a minute
)

// watch follows whether a peer answers until ctx ends. It logs each change once, at a
// limited rate, so that a peer can't fill the log by answering now and then.
func (fl *follower) watch(ctx context.Context, origin *replica.Origin) {
	var calls sync.WaitGroup
	defer calls.Wait()

	lines := rate.NewLimiter(rate.Every(time.Minute), watchLines)
	logged, called, ticked, failing := peerUnknown, time.Time{}, time.Now(), time.Time{}

	for wait(ctx, nil, fl.cfg.Stretch.of(watchEvery)) {
		status := origin.Status()

		// A process that was stopped for a while took no answers meanwhile.
		late := time.Since(ticked)-fl.cfg.Stretch.of(watchEvery) > fl.cfg.Stretch.of(lateTick)
		if late && logged == peerUp {
			origin.Answers.Excuse()
			status = origin.Status()
		}

		ticked = time.Now()

		if status.State != "failing" {
			failing = time.Time{}
		} else if failing.IsZero() {
			failing = ticked
		}

		now := watched(&status)
		if now == peerFailing && ticked.Sub(failing) < failingFor {
			now = peerUnknown // it answers again, and its head is on the way
		}

		// logged changes only with a line, so that a line that the limiter holds back is written later.
		if now != logged && now != peerUnknown && lines.Allow() {
			fl.logPhase(&status, logged, now)
			logged = now
		}

		_, silent, _ := origin.Answers.Last()
		isSilent := time.Since(silent) > fl.cfg.Stretch.of(callAfter)

		if time.Since(called) > fl.cfg.Stretch.of(callAfter) && (isSilent || origin.Theirs.Doubtful()) {
			called = time.Now()
			calls.Go(func() { fl.callAll(ctx, origin) })
		}
	}
}

// A peerPhase is the state of a peer by which a watch logs changes.
type peerPhase string

const (
	peerUnknown     peerPhase = ""
	peerUp          peerPhase = "up"
	peerNotExported peerPhase = "not_exported"
	peerLost        peerPhase = "lost"
	peerRefusing    peerPhase = "refusing"
	peerFailing     peerPhase = "failing"
)

// watched returns the phase of a peer; peerUnknown if it doesn't have to be logged yet.
func watched(status *replica.PeerStatus) peerPhase {
	switch {
	case !status.SilentSince.IsZero():
		return peerLost
	case status.State == "failing":
		return peerFailing
	case status.State == "refused":
		return peerRefusing
	case status.State == "not_exported":
		return peerNotExported
	case status.State == "active", status.State == "behind", status.State == "unsupported":
		return peerUp
	}

	return peerUnknown
}

// logPhase writes the line about a change.
func (fl *follower) logPhase(status *replica.PeerStatus, before, now peerPhase) {
	attrs := []any{"peer", status.Domain.Name()}

	if !status.LastPage.IsZero() {
		attrs = append(attrs, "last_page", status.LastPage.UTC())
	}

	switch {
	case now == peerLost:
		if !status.LastAnswer.IsZero() {
			attrs = append(attrs, "last_answer", status.LastAnswer.UTC().Truncate(time.Millisecond))
		}

		if status.LastError != "" {
			attrs = append(attrs, slog.String("err", status.LastError))
		}

		fl.cfg.Logger.Warn("peer lost: none of its nodes answers", attrs...)
	case now == peerFailing:
		fl.cfg.Logger.Warn("peer failing: it answers, and no head of it verifies", append(attrs,
			"head_age_ms", status.HeadAge.Milliseconds(), "err", status.LastError)...)
	case now == peerRefusing:
		fl.cfg.Logger.Warn("peer refuses this domain", append(attrs, "as", status.Refusal, "node", status.Theirs.Node,
			"evidence", status.Theirs.Evidence, "err", status.Theirs.Error)...)
	case before == peerRefusing:
		fl.cfg.Logger.Info("peer refuses this domain no longer", append(attrs, "state", status.State)...)
	case before == peerNotExported && now == peerUp:
		fl.cfg.Logger.Info("peer exports to this domain now", append(attrs, "state", status.State)...)
	case before == peerLost:
		fl.cfg.Logger.Info("peer back", append(attrs, "state", status.State)...)
	default:
		fl.cfg.Logger.Info("peer "+status.State, attrs...)
	}
}

// callAll asks all nodes of a peer at once whether they answer, and how they see this domain. A peer
// thus isn't called unreachable while one node answers, and the refusal of one node isn't taken for
// the peer's. The first node that answers is followed from then on.
func (fl *follower) callAll(ctx context.Context, origin *replica.Origin) {
	ctx, cancel := context.WithTimeout(ctx, fl.cfg.Stretch.of(callTime))
	defer cancel()

	nodes := origin.Contacts.Nodes()

	var (
		all   sync.WaitGroup
		first sync.Once
	)
	for _, node := range nodes[:min(len(nodes), callMost)] {
		all.Go(func() {
			query := url.Values{"origin": {origin.Domain.Name()}}

			_, err := fl.client.Get(ctx, node, protocol.PathHeads, query, gossip.MaxHead)
			if err == nil {
				first.Do(func() { origin.Contacts.Prefer(node) })
			}
		})
	}

	all.Wait()
}
