package federation

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

// MayRelease requests the newest key document of a frozen origin. It returns a
// directory.Conflict if evidence of this node or of another of the domain still convicts the
// origin: none of the keys that signed it is revoked, and its epoch isn't over
// (federation.md, "Evidence"). It returns a directory.Unavailable if no node that answers has
// evidence and one doesn't answer, because that one may have some.
func (m *Mesh) MayRelease(ctx context.Context, td spiffeid.TrustDomain) error {
	origin := m.origins.Get(td)
	if origin == nil {
		return nil
	}

	// The newest key document comes first, because a revocation in it lifts the conviction.
	asked := m.receiver.newestKeys(ctx, origin)
	id, holds, known, err := m.evidence.convictingStill(td)

	silent := ""
	for _, node := range m.peers.siblings(maxSiblings) {
		if holds || err != nil {
			break
		}

		found, evidence, failed := m.evidence.askEvidence(ctx, node, td)
		switch {
		case failed != nil:
			silent = node.Base
			m.cfg.Logger.Warn("asking another node for its evidence failed", "node", node.Base, "err", failed)
		case evidence != nil:
			// This node judges the evidence itself; the sibling's word is not enough.
			if v, judged := m.cfg.Verifier.Judge(evidence, false); judged == nil && v.Origin == td {
				id, holds = v.ID, true
			}
		}

		known = known || found
	}

	switch {
	case err != nil:
		return err
	case holds && asked != nil:
		return directory.Refuse(directory.Conflict,
			"evidence %s still convicts %s, and its newest key document can't be fetched: %w", id, td.Name(), asked)
	case holds:
		return directory.Refuse(directory.Conflict,
			"evidence %s still convicts %s: the peer has not revoked the key that signed it, nor begun a new epoch",
			id, td.Name())
	case !known && silent != "":
		return directory.Refuse(directory.Unavailable,
			"no reachable node has the evidence against %s, and %s doesn't respond", td.Name(), silent)
	}

	return nil
}

// maxSiblings bounds the nodes of the own domain that are asked one after the other.
const maxSiblings = 64

// convictingStill returns this node's first evidence that still convicts an origin, and
// whether this node has any evidence.
func (pr *prosecutor) convictingStill(td spiffeid.TrustDomain) (id string, holds, known bool, err error) {
	for _, file := range pr.cases.Files(td) {
		evidence, err := pr.file(td, file.ID)
		if err != nil {
			return "", false, true, err
		}

		if known = true; pr.judged(evidence) {
			return file.ID, true, true, nil
		}
	}

	return "", false, known, nil
}

func (pr *prosecutor) judged(evidence []byte) bool {
	_, err := pr.cfg.Verifier.Judge(evidence, false)
	return err == nil
}

// giveEvidence answers a node of the own domain with the evidence that still convicts an
// origin: 204 if there is only evidence that is no longer valid, 404 if there is none.
func (s *server) giveEvidence(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	td, err := protocol.ParseOrigin(r.URL.Query())
	switch {
	case err != nil:
		return err
	case from != s.cfg.Domain:
		return directory.Refuse(directory.Forbidden,
			"only nodes of this domain may fetch evidence here; operators use their own route")
	}

	id, holds, known, err := s.evidence.convictingStill(td)
	switch {
	case err != nil:
		return err
	case !known:
		return directory.Refuse(directory.NotFound, "this node has no evidence against %s", td.Name())
	case !holds:
		w.WriteHeader(http.StatusNoContent)
		return nil
	}

	evidence, err := s.evidence.file(td, id)
	if err != nil {
		return err
	}

	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(evidence) // fails only when the caller is gone

	return nil
}

// askEvidence requests evidence from a node of the own domain. found reports whether that node
// has any; evidence is returned if it still convicts by that node's judgement.
func (pr *prosecutor) askEvidence(ctx context.Context, node protocol.Node, td spiffeid.TrustDomain) (found bool,
	evidence []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
	defer cancel()

	text, err := pr.client.Get(ctx, node, protocol.PathEvidence, url.Values{"origin": {td.Name()}}, maxEvidence)
	switch {
	case errors.Is(err, protocol.ErrNotFound):
		return false, nil, nil
	case err != nil:
		return false, nil, err
	case len(text) > maxEvidence:
		return false, nil, io.ErrShortBuffer
	case text == "":
		return true, nil, nil
	}

	return true, []byte(text), nil
}
