package replica

import (
	"context"
	"errors"
	"slices"
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

	if o.change.Lock(o.Store) != nil {
		return // tend calls again later
	}

	defer o.change.Unlock()

	if o.HasEnded() {
		return
	}

	if err := o.RepullRevoked(doc); err != nil && !errors.Is(err, store.ErrStalled) {
		o.Cfg.Logger.Error("searching for statements of revoked keys failed", "peer", o.Domain.Name(), "err", err)
	}
}

// RepullRevoked searches stored pages and entries for signatures of newly revoked keys, and of
// keys that no present authority of the origin certified, because a thief of a former one may
// have made them. If it finds any, it pulls the origin's streams again. It is safe to repeat,
// and is repeated after a start because a stop may have interrupted it. doc is the newest key
// document. The caller holds change.
func (o *Origin) RepullRevoked(doc *signed.KeyDocument) error {
	o.clampRepull(doc)

	done := o.Keys.revokedKeys()

	refused := slices.Concat(doc.Revoked, o.forsakenKeys(doc))

	revoked := map[string]bool{}
	for _, id := range refused {
		if !done[id] {
			revoked[id] = true
		}
	}

	if len(revoked) == 0 || !o.repulls.Allow() { // tend resumes a postponed search
		return nil
	}

	// Without a head the key id is empty, and no revoked key has that id.
	parts, _ := protocol.SplitJWS(o.NewestHead())

	bad := revoked[protocol.KeyIDOf(parts.Header)]
	for _, f := range o.Feeds() {
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
		o.Cfg.Logger.Warn("a key that signed stored pages of a peer was revoked, or its authority was dropped; "+
			"the streams are pulled again", "peer", o.Domain.Name())

		if err := o.repull(protocol.Issue(doc)); err != nil {
			return err
		}
	}

	for _, id := range refused {
		revoked[id] = true
	}

	// Marked only after the pull was begun, so that a failed search is repeated.
	o.Keys.setRevoked(revoked)

	return nil
}

// forsakenKeys returns the ids of an origin's keys that no present authority of it certified,
// among those of the stored key documents. It returns nothing while the newest document is itself
// by such a key: a document by a certified key must first state the origin's position.
func (o *Origin) forsakenKeys(doc *signed.KeyDocument) (ids []string) {
	_, text, _ := o.Cfg.Keys.Keys(o.Domain)
	parts, _ := protocol.SplitJWS(text)

	signer, err := doc.Key(protocol.KeyIDOf(parts.Header))
	if err != nil || !o.certified(signer) {
		return nil
	}

	judged := map[string]bool{}

	for _, key := range o.knownKeys() {
		id := key.KeyID()
		if !judged[id] && !o.certified(key) {
			ids = append(ids, id)
		}

		judged[id] = true
	}

	return ids
}

// knownKeys returns the keys that the origin's key documents list, the newest document first. A key may be
// in several.
func (o *Origin) knownKeys() (keys []signed.SigningKey) {
	if doc, _, ok := o.Cfg.Keys.Keys(o.Domain); ok {
		keys = doc.Keys
	}

	for _, past := range o.Keys.documents() {
		keys = slices.Concat(keys, past.doc.Keys)
	}

	return keys
}

// repull makes both streams of an origin be pulled from their beginning, in pages that were made at the
// position from or later. The caller holds change.
func (o *Origin) repull(from directory.Position) error {
	o.forgetHead() // before the first write, so that it doesn't come back from disk

	for _, f := range o.Feeds() {
		if err := o.rewind(f, from); err != nil {
			return err
		}
	}

	o.mu.Lock()
	o.passedOn = directory.Position{}
	o.endRun()
	o.run, o.endRun = context.WithCancel(context.Background())
	o.mu.Unlock()

	Wake(o.Ask)
	o.Moved()

	// Without a stream nothing was written yet.
	return o.Store.SaveOrigin(o.Domain, o.saved())
}

// The pace of searches for signatures of revoked keys. A search of a large origin takes
// long, and the origin chooses how often it revokes a key.
const (
	RepullEvery = time.Minute
	RepullBurst = 8
)
