package replica

import (
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// ResumeRepull takes up what doubt put off.
func (o *Origin) ResumeRepull() {
	doc, _, ok := o.Cfg.Keys.Keys(o.Domain)
	if !ok {
		return
	}

	if o.Streams.Change.Lock(o.Store) != nil {
		return // tend sees to it again
	}

	defer o.Streams.Change.Unlock()

	if o.Streams.HasEnded() {
		return
	}

	if err := o.RepullRevoked(doc); err != nil && !errors.Is(err, store.ErrStalled) {
		o.Cfg.Logger.Error("searching for statements of revoked keys failed", "peer", o.Domain.Name(), "err", err)
	}
}

// RepullRevoked looks for what the newly revoked keys of an origin's document signed. It is
// safe to repeat, and is repeated after a start: what was begun may not have ended.
// o.change is held.
func (o *Origin) RepullRevoked(doc *signed.KeyDocument) error {
	o.Streams.clampRepull(doc)

	done := o.Keys.revokedKeys()

	revoked := map[string]bool{}
	for _, id := range doc.Revoked {
		if !done[id] {
			revoked[id] = true
		}
	}

	if len(revoked) == 0 || !o.repulls.Allow() { // tend sees to what is put off
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

// repull has both streams of an origin pulled from their beginning. o.change is held.
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

// How often an origin is looked through for what a key signed: it takes a while where the
// origin has much, and the origin says how often it revokes one.
const (
	RepullEvery = time.Minute
	RepullBurst = 8
)
