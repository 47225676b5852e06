package federation

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// holdings reads the pages, records and key documents that this node serves to others.
type holdings struct {
	cfg       *Config
	store     *store.Store
	publisher *publish.Publisher
	origins   *replica.Set
	access    *access
}

// pageOf returns a page of the own domain, or the link of another origin's chain that
// continues from since, unchanged.
func (h *holdings) pageOf(from spiffeid.TrustDomain, query protocol.PageQuery) (string, error) {
	if query.Origin == h.cfg.Domain {
		made, err := h.publisher.Page(query.Aud, query.Since, query.Limit, query.Wait == 0 &&
			h.access.lists(h.cfg.Domain, from))
		if made == nil || err != nil {
			return "", err
		}

		return made.Text, nil
	}

	origin := h.origins.Get(query.Origin)
	if origin == nil {
		return "", directory.Refuse(directory.NotFound, "this node holds nothing of that origin")
	}

	st := origin.Streams.ShownStream(query.Aud)
	if st == nil {
		return "", nil
	}

	page, err := store.ReadFor(h.store, st.Id, func(t *store.Tx) (*store.Page, error) {
		return t.PageAfter(query.Since)
	})
	if page == nil || err != nil {
		return "", unavailable(err)
	}

	return page.JWS, nil
}

// A foundRecord is the result of a search for one record. found is false if there is none that the
// caller may have.
type foundRecord struct {
	protocol.RecordParts
	found bool
	err   error
}

// recordsOf returns a function that finds the records that the domain to may have, one for each
// name. For the own domain these are the records that one of its streams to that domain names.
// For another origin they are the records of its mesh stream and, if to is this domain, of the
// private stream. The streams of an origin are looked up once, because their lock is held most
// of the time while one is pulled.
func (h *holdings) recordsOf(origin, to spiffeid.TrustDomain) func([]protocol.RecordName) ([]foundRecord, error) {
	if origin == h.cfg.Domain {
		return func(names []protocol.RecordName) ([]foundRecord, error) { return h.ownRecords(to, names), nil }
	}

	auds := []directory.Audience{directory.Mesh}
	if to == h.cfg.Domain {
		auds = append(auds, directory.Only(to))
	}

	var shown []store.StreamID
	if o := h.origins.Get(origin); o != nil {
		for _, aud := range auds {
			if st := o.Streams.ShownStream(aud); st != nil {
				shown = append(shown, st.Id)
			}
		}
	}

	return func(names []protocol.RecordName) ([]foundRecord, error) { return h.storedRecords(shown, names) }
}

func (h *holdings) ownRecords(to spiffeid.TrustDomain, names []protocol.RecordName) []foundRecord {
	auds := []directory.Audience{directory.Only(to)}
	if h.access.lists(h.cfg.Domain, to) {
		auds = []directory.Audience{directory.Mesh, directory.Only(to)}
	}

	found := make([]foundRecord, len(names))
	for i, name := range names {
		for _, aud := range auds {
			parts, ok, err := h.publisher.Record(aud, name)
			found[i] = foundRecord{parts, ok, err}

			if ok || err != nil {
				break
			}
		}
	}

	return found
}

// storedRecords returns the records that streams of another origin name. The error is
// store.ErrStalled.
func (h *holdings) storedRecords(streams []store.StreamID, names []protocol.RecordName) ([]foundRecord, error) {
	found := make([]foundRecord, len(names))

	for _, id := range streams {
		records, err := h.store.Find(id, names)
		if err != nil {
			return nil, err
		}

		for i, record := range records {
			if record != nil && !found[i].found {
				found[i] = foundRecord{RecordParts: record.Parts(), found: true}
			}
		}
	}

	return found, nil
}

// documentFor returns the newest key document of another domain that lists a key; "" if none.
func (h *holdings) documentFor(td spiffeid.TrustDomain, kid string) string {
	if o := h.origins.Get(td); o != nil {
		return o.Keys.IssuedFor(kid)
	}

	return ""
}
