package federation

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// smallPage bounds a page in a proof file, which has at most 8 KiB.
const smallPage = 4 << 10

var errNoRegistration = directory.Refuse(directory.NotFound, "this node holds no such registration")

// Record returns the signed record of a registration of any domain. It carries the
// disclosures of the mesh stream for the own domain, and those addressed to this domain for
// others. Its signature is verified. If the stored record is no longer valid because the key
// was rotated, a holder signs it again. The error is directory.NotFound or Unavailable.
func (m *Mesh) Record(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error) {
	if origin == m.cfg.Domain {
		digest, ok := m.cfg.Source.Current(rid, directory.Mesh)
		if !ok || !digest.Live() {
			return "", errNoRegistration
		}

		record, ok, err := m.publisher.Record(directory.Mesh, protocol.NameOf(digest))
		switch {
		case err != nil:
			return "", directory.Refuse(directory.Unavailable, "%w", err)
		case !ok:
			return "", errNoRegistration
		}

		return record.Text(), nil
	}

	o, st, held, r, err := m.heldRecord(origin, rid)
	if err != nil {
		return "", err
	}

	if r != nil && m.verifies(origin, r) {
		return r.Signed().String(), nil
	}

	return m.resigned(ctx, o, st, rid, held)
}

func (m *Mesh) verifies(origin spiffeid.TrustDomain, r *store.Record) bool {
	_, _, err := m.cfg.Keys.Verify(origin, signed.TypeRecord, r.Signed().JWS)
	return err == nil
}

// heldRecord returns a live registration of another domain; r is nil if its record is
// missing.
func (m *Mesh) heldRecord(origin spiffeid.TrustDomain, rid directory.RID) (o *replica.Origin, st *replica.Stream,
	held *store.Entry, r *store.Record, err error) {
	if o = m.origins.Get(origin); o == nil {
		return nil, nil, nil, nil, errNoRegistration
	}

	// Both streams may have the registration. The proof is for the entry that is shown.
	aud := directory.Mesh
	if e, ok := o.Shown.Index.Get(rid); ok && e.Received.Private {
		aud = directory.Only(m.cfg.Domain)
	}

	if st = o.ShownStream(aud); st == nil {
		return nil, nil, nil, nil, errNoRegistration
	}

	type both struct {
		held   *store.Entry
		record *store.Record
	}
	found, err := store.ReadFor(m.store, st.Id, func(t *store.Tx) (b both, err error) {
		if b.held, err = t.Get(rid); err != nil || b.held == nil {
			return b, err
		}

		b.record, err = t.Record(b.held)

		return b, err
	})

	held, r, err = found.held, found.record, unavailable(err)
	if err == nil && (held == nil || held.Record == store.RecordRefused || held.Format != 0 ||
		o.Shown.Index.Clock.Now().Unix() >= held.Deadline) {
		err = errNoRegistration
	}

	return o, st, held, r, err
}

// Statement returns the payload of the statement of another domain's registration, as the registration is shown. It
// is as the origin stated it, because its hash is in a page. The error is directory.NotFound if its record is not here.
func (m *Mesh) Statement(e *directory.Entry) ([]byte, error) {
	_, _, _, r, err := m.heldRecord(e.Origin, e.RID)
	if err != nil {
		return nil, err
	}

	// A page may have changed the registration since it was shown.
	if r == nil || directory.HashOf(r.Payload) != e.Received.H {
		return nil, errNoRegistration
	}

	return r.Payload, nil
}

// resigned requests a record with a currently valid signature from holders, and stores it.
func (m *Mesh) resigned(ctx context.Context, origin *replica.Origin, st *replica.Stream, rid directory.RID,
	held *store.Entry) (string, error) {
	for _, n := range m.peers.holders(origin, st.Id.Audience) {
		got := m.receiver.fetch(ctx, origin.Domain, []protocol.RecordName{held.Name()}, []protocol.Node{n}, 1)

		rec, ok := got[held.Name()]
		if !ok || !m.verifies(origin.Domain, rec.Record) {
			continue
		}

		err := m.store.Within(func() error { return m.keepResigned(origin, st, rid, held.Name(), rec) })
		if err != nil {
			// The caller gets the record all the same, and the next one requests it again.
			m.cfg.Logger.Warn("storing a re-signed record failed", "origin", origin.Domain.Name(), "err", err)
		}

		return rec.Signed().String(), nil
	}

	return "", directory.Refuse(directory.Unavailable, "no reachable node can sign this record; try again later")
}

// keepResigned replaces the stored record of the same name.
func (m *Mesh) keepResigned(origin *replica.Origin, st *replica.Stream, rid directory.RID, of protocol.RecordName,
	rec replica.Fetched) error {
	return origin.Change(func() error {
		_, err := m.store.Change(st.Id, func(t *store.Tx) error {
			now, err := t.Get(rid)

			// A page may have changed the entry while its record was requested.
			if err != nil || now == nil || now.Name() != of || now.Record != store.RecordHeld {
				return err
			}

			return t.Rewrite(now, rec.Record.Stored(now.Name()))
		})

		return err
	})
}

// Proof returns everything but the origin's bundle that proves a registration offline: its
// record, a page that lists it, and the key document that is valid for both. The error is
// directory.NotFound or Unavailable.
func (m *Mesh) Proof(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (record, page,
	keys string, err error) {
	if record, err = m.Record(ctx, origin, rid); err != nil {
		return "", "", "", err
	}

	if origin == m.cfg.Domain {
		page, err = m.ownPage(rid)
	} else {
		page, err = m.listingPage(ctx, origin, rid)
	}

	if err != nil {
		return "", "", "", err
	}

	_, keys, ok := m.cfg.Keys.Keys(origin)
	if !ok {
		return "", "", "", directory.Refuse(directory.Unavailable, "no key document of %s is known", origin.Name())
	}

	return record, page, keys, nil
}

// Staple returns an offline proof that a registration of the own domain was in force just now: its
// record, a page of it alone that is signed now, and the attestation of the key that signed both. The
// error is directory.NotFound or Unavailable.
func (m *Mesh) Staple(rid directory.RID) (record, page, attestation string, err error) {
	digest, ok := m.cfg.Source.Current(rid, directory.Mesh)
	if !ok || !digest.Live() {
		return "", "", "", errNoRegistration
	}

	signedRecord, ok, err := m.publisher.Record(directory.Mesh, protocol.NameOf(digest))
	if err != nil {
		return "", "", "", directory.Refuse(directory.Unavailable, "%w", err)
	}

	made, err := m.publisher.EntryPage(directory.Mesh, digest.Revision)
	if err != nil {
		return "", "", "", directory.Refuse(directory.Unavailable, "%w", err)
	}

	doc, _, known := m.cfg.Keys.Keys(m.cfg.Domain)

	// The three reads share no lock, so the registration may have changed between them.
	if !ok || made == nil || !known || protocol.NameOf(made.Digests[0]) != protocol.NameOf(digest) {
		return "", "", "", errChanging
	}

	record = signedRecord.Text()
	jws, _, _ := strings.Cut(record, "~")

	key, err := doc.Key(signerOf(made.Text))
	if err != nil || len(key.Attestations) == 0 || signerOf(jws) != key.KeyID() {
		return "", "", "", errChanging
	}

	return record, made.Text, key.Attestations[len(key.Attestations)-1], nil
}

// signerOf returns the id of the key that a JWS of this node names; empty for none.
func signerOf(jws string) string {
	parts, err := protocol.SplitJWS(jws)
	if err != nil {
		return ""
	}

	return protocol.KeyIDOf(parts.Header)
}

var errChanging = directory.Refuse(directory.Unavailable,
	"the registration or this node's key is changing; try again")

func (m *Mesh) ownPage(rid directory.RID) (string, error) {
	digest, ok := m.cfg.Source.Current(rid, directory.Mesh)
	if !ok || !digest.Live() {
		return "", errNoRegistration
	}

	made, err := m.publisher.Page(directory.Mesh, digest.Revision-1, 1, true)
	if err != nil || made == nil || len(made.Digests) != 1 || made.Digests[0].RID != rid {
		return "", directory.Refuse(directory.Unavailable,
			"no proof of this registration can be made right now; try again")
	}

	return made.Text, nil
}

// listingPage returns a page of another domain that lists a registration as stored here: the
// one in the chain if it is small, else a page from the origin that lists only this
// registration.
func (m *Mesh) listingPage(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error) {
	o, st, held, _, err := m.heldRecord(origin, rid)
	if err != nil {
		return "", err
	}

	link, err := store.ReadFor(m.store, st.Id, func(t *store.Tx) (*store.Page, error) {
		return t.PageAfter(held.Revision - 1)
	})
	if err != nil {
		return "", unavailable(err)
	}

	chained := link != nil && m.proves(origin, link.JWS, rid, held) == nil
	if chained && len(link.JWS) <= smallPage {
		return link.JWS, nil
	}

	values := url.Values{"origin": {origin.Name()}, "aud": {st.Id.Audience.String()},
		"since": {strconv.FormatUint(held.Revision-1, 10)}, "limit": {"1"}}
	for _, n := range o.Contacts.Nodes() {
		// An answer counts only if it proves the stored state: a node may be ahead or behind.
		if text, err := m.client.Get(ctx, n, protocol.PathPages, values, protocol.MaxPage); err == nil &&
			m.proves(origin, text, rid, held) == nil {
			return text, nil
		}
	}

	if chained {
		return link.JWS, nil
	}

	return "", directory.Refuse(directory.Unavailable,
		"%s is unreachable, so no page that proves this registration can be fetched; try again later", origin.Name())
}

// proves checks that a page is signed by a current key of the origin, and lists the
// registration as stored here.
func (m *Mesh) proves(origin spiffeid.TrustDomain, text string, rid directory.RID, held *store.Entry) error {
	payload, _, err := m.cfg.Keys.Verify(origin, signed.TypePage, text)
	if err != nil {
		return err
	}

	page, err := m.cfg.Dialect.ParsePage(payload)
	if err != nil {
		return err
	}

	return lists(page, rid, held)
}

var errNotListing = errors.New("the page does not list the registration as it is held")

// lists reports whether a page lists a registration as stored here.
func lists(p *signed.Page, rid directory.RID, h *store.Entry) error {
	for _, d := range p.Digests {
		if d.RID == rid && d.Live() && d.Revision == h.Revision && protocol.NameOf(d) == h.Name() &&
			d.Deadline == h.Deadline {
			return nil
		}
	}

	return errNotListing
}
