package federation

import (
	"context"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// MayRelease asks a frozen origin for its newest key document, and returns a
// directory.Conflict where evidence that this node has convicts it still: none of
// the keys that signed it is revoked, and its epoch isn't over (federation.md,
// "Evidence").
func (m *Mesh) MayRelease(ctx context.Context, td spiffeid.TrustDomain) error {
	o := m.origin(td)
	if o == nil || m.cfg.Court == nil {
		return nil
	}
	asked := m.newestKeys(ctx, o)
	for _, f := range m.Evidence(td) {
		evidence, err := m.EvidenceFile(td, f.ID)
		if err != nil {
			return err
		}
		if _, err := m.cfg.Court.Judge(evidence); err != nil {
			continue
		}
		missing := "it has revoked no key that signed it, and has begun no new epoch"
		if asked != nil {
			missing = "and it can't be asked for a newer key document: " + asked.Error()
		}
		return directory.Refuse(directory.Conflict, "evidence %s convicts %s still: %s", f.ID, td.Name(), missing)
	}
	return nil
}

// newestKeys takes an origin's key document from the first of its nodes that gives
// one.
func (m *Mesh) newestKeys(ctx context.Context, o *origin) (err error) {
	for _, n := range o.nodes() {
		if err = m.refreshKeys(ctx, o, n); err == nil {
			break
		}
	}
	return err
}
