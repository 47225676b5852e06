package federation

import (
	"context"

	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Record returns the signed record of a registration of any domain, with the disclosures
// that the mesh stream has (of the own domain) or that were meant for this one. Its
// signature was verified. If the one on disk is no longer valid because the key was
// rotated, a holder signs the record again. The error is directory.NotFound or
// Unavailable.
func (m *Mesh) Record(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error) {
	return m.prover.record(ctx, origin, rid)
}

// Proof returns everything but the bundle that proves a registration offline: its record,
// a page that lists it, and the key document that is valid for both. The error is
// directory.NotFound or Unavailable.
func (m *Mesh) Proof(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (record, page, keys string, err error) {
	return m.prover.proof(ctx, origin, rid)
}

// Evidence lists the evidence that this node has against a domain, the oldest first.
func (m *Mesh) Evidence(td spiffeid.TrustDomain) []EvidenceFile { return m.evidence.evidenceOf(td) }

// EvidenceFile returns a file that Evidence lists, the oldest if id is empty. The error is
// directory.NotFound if there is none.
func (m *Mesh) EvidenceFile(td spiffeid.TrustDomain, id string) ([]byte, error) {
	return m.evidence.file(td, id)
}

// MayRelease asks a frozen origin for its newest key document, and returns a
// directory.Conflict if evidence of this node or of another of the domain still convicts
// the origin: none of the keys that signed it is revoked, and its epoch isn't over
// (federation.md, "Evidence"). It returns a directory.Unavailable if no node that answers
// has evidence and one doesn't answer, because that one may have some.
func (m *Mesh) MayRelease(ctx context.Context, td spiffeid.TrustDomain) error {
	return m.evidence.mayRelease(ctx, td)
}
