package replica

import (
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// ResumeRepull resumes a search that RepullRevoked postponed.
func (o *Origin) ResumeRepull() {
	doc, _, ok := o.Cfg.Keys.Keys(o.Domain)
	if !ok {
		return
	}

	if o.Streams.Change.Lock(o.Store) != nil {
		return // tend calls again later
	}

	defer o.Streams.Change.Unlock()

	if o.Streams.HasEnded() {
		return
	}

	if err := o.RepullRevoked(doc); err != nil && !errors.Is(err, store.ErrStalled) {
		o.Cfg.Logger.Error("searching for statements of revoked keys failed", "peer", o.Domain.Name(), "err", err)
	}
}

// RepullRevoked searches stored pages and entries for signatures of newly revoked keys. If
// it finds any, it pulls the origin's streams again. It is safe to repeat, and is repeated
// after a start because a stop may have interrupted it. The caller holds Change.
func (o *Origin) RepullRevoked(doc *signed.KeyDocument) error {
	o.Streams.clampRepull(doc)

	done := o.Keys.revokedKeys()

	revoked := map[string]bool{}
	for _, id := range doc.Revoked {
		if !done[id] {
			revoked[id] = true
		}
	}

	if len(revoked) == 0 || !o.repulls.Allow() { // tend resumes a postponed search
		return nil
	}

	parts, _ := protocol.SplitJWS(o.NewestHead())

	bad := revoked[protocol.KeyIDOf(parts.Header)]
	for _, f := range o.Streams.Pair.Feeds() {
		for _, st := range []*Stream{f.Cur, f.next} {
			if st == nil || bad {
				continue
			}

			var err error
			if bad, err = o.Store.RestsOn(st.Id, revoked); err != nil {
				return err
			}
		}
	}

	if bad {
		if err := o.repull(doc); err != nil {
			return err
		}
	}

	for _, id := range doc.Revoked {
		revoked[id] = true
	}

	o.Keys.setRevoked(revoked)

	return nil
}

// repull makes both streams of an origin be pulled from their beginning. The caller holds
// Change.
func (o *Origin) repull(doc *signed.KeyDocument) error {
	o.Cfg.Logger.Warn("a peer revoked a key that signed stored pages; its streams are pulled again", "peer",
		o.Domain.Name())

	for _, f := range o.Streams.Pair.Feeds() {
		if err := o.Streams.rewind(f, doc); err != nil {
			return err
		}
	}

	o.forgetHead()
	o.Mu.Lock()
	o.PassedOn = directory.Position{}
	o.Mu.Unlock()

	Wake(o.Ask)
	o.Moved()

	return o.Store.SaveOrigin(o.Domain, o.Saved(o.Streams.Shown.Index.Clock.Now()))
}

// The pace of searches for signatures of revoked keys. A search of a large origin takes
// long, and the origin chooses how often it revokes a key.
const (
	RepullEvery = time.Minute
	RepullBurst = 8
)
