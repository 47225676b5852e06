package federation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/evidence"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/limit"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const (
	maxEvidence = 4 << 20
	tellFor     = time.Hour // limit of retries; a domain may also find evidence itself
)

// evidenceRate is the rate at which this node judges evidence from one domain.
var evidenceRate = limit.Rate{PerSecond: 1, Burst: 8}

// toTell returns the nodes to which a conviction's evidence is sent: the domain's other nodes,
// and one node of each peer that may have the stream. Evidence from a private stream goes to
// no other domain.
func (pr *prosecutor) toTell(conviction evidence.Conviction) (all []protocol.Node) {
	all = pr.peers.allSiblings()

	for _, n := range pr.peers.others(conviction.Origin) {
		if conviction.Audience == (directory.Audience{}) || conviction.Audience == directory.Mesh &&
			pr.peers.lists(conviction.Origin, n.Domain) {
			all = append(all, n)
		}
	}

	return all
}

var errNotTaken = errors.New("the evidence was not accepted")

// tell sends evidence to a domain's nodes in turn until one has judged it. Its verdict is
// not used here.
func (pr *prosecutor) tell(ctx context.Context, pending *evidence.Pending, node protocol.Node) {
	tries := 0

	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		// One node is enough for a peer, so each try goes to the next. A sibling is tried itself.
		to := node
		if o := pr.origins.Get(node.Domain); o != nil {
			if all := o.Contacts.Nodes(); len(all) > 0 {
				to = all[tries%len(all)]
			}
		}

		tries++

		return struct{}{}, pr.showEvidence(ctx, to, pending.Evidence)
	}, backoff.WithMaxElapsedTime(tellFor), backoff.WithBackOff(newBackoff()))
	if err != nil && ctx.Err() == nil {
		pr.cfg.Logger.Warn("sending evidence to a domain failed", "origin", pending.Origin.Name(), "to",
			node.Domain.Name(), "err", err)
	}
}

func (pr *prosecutor) showEvidence(ctx context.Context, node protocol.Node, evidence []byte) error {
	ctx, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
	defer cancel()

	res, err := pr.client.Post(ctx, node, protocol.PathEvidence, evidence, "")
	if err != nil {
		return err
	}
	defer res.Body.Close()

	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 4<<10))

	// Any other answer is taken for a verdict, which the same evidence would not change.
	if res.StatusCode >= http.StatusInternalServerError || res.StatusCode == http.StatusTooManyRequests {
		return fmt.Errorf("%w: %s answers %s", errNotTaken, node.Base, protocol.Status(res))
	}

	return nil
}

// takeEvidence receives evidence from a peer or from another node of the domain. This node
// judges it itself; the sender adds no weight.
func (s *server) takeEvidence(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	if !s.mayShow(from) {
		return directory.Refuse(directory.Unavailable, "too much evidence from this domain; retry later")
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvidence))

	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return directory.Refuse(directory.TooLarge, "the body has over %d bytes", maxEvidence)
	case err != nil:
		return directory.Refuse(directory.BadRequest, "the request body is incomplete")
	}

	if _, err := s.evidence.convict(body, true); err != nil {
		s.cfg.Logger.Warn("received evidence is not valid", "from", from.Name(), "err", err)
		return directory.Refuse(directory.BadRequest, "the evidence is not valid here: %w", err)
	}

	w.WriteHeader(http.StatusNoContent)

	return nil
}

// mayShow limits the rate of evidence from each domain.
func (s *server) mayShow(from spiffeid.TrustDomain) bool {
	_, _, ok := s.shows.Take(from, evidenceRate, time.Now(), 1)
	return ok
}
