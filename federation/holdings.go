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

// recordsOf returns a function that finds the records that the domain to may have. For the own
// domain these are the records that one of its streams to that domain names. For another
// origin they are the records of its mesh stream and, if to is this domain, of the private
// stream. The streams of an origin are looked up once, because their lock is held most of the
// time while one is pulled.
func (h *holdings) recordsOf(origin, to spiffeid.TrustDomain) func(protocol.RecordName) (string, bool, error) {
	if origin == h.cfg.Domain {
		return func(n protocol.RecordName) (string, bool, error) { return h.ownRecord(to, n) }
	}

	auds := []directory.Audience{directory.Mesh}
	if to == h.cfg.Domain {
		auds = append(auds, directory.Only(to))
	}

	var shown []*replica.Stream
	if o := h.origins.Get(origin); o != nil {
		for _, aud := range auds {
			shown = append(shown, o.Streams.ShownStream(aud))
		}
	}

	return func(n protocol.RecordName) (string, bool, error) {
		for _, st := range shown {
			r, err := h.storedRecord(st, n)
			if err != nil {
				return "", false, err
			}

			if r != nil {
				return r.Signed().String(), true, nil
			}
		}

		return "", false, nil
	}
}

func (h *holdings) ownRecord(to spiffeid.TrustDomain, name protocol.RecordName) (string, bool, error) {
	if h.access.lists(h.cfg.Domain, to) {
		if text, ok, err := h.publisher.Record(directory.Mesh, name); ok || err != nil {
			return text, ok, err
		}
	}

	return h.publisher.Record(directory.Only(to), name)
}

// storedRecord returns a record that another origin's stream names; nil if the stream doesn't
// name it or doesn't exist.
func (h *holdings) storedRecord(st *replica.Stream, name protocol.RecordName) (r *store.Record, err error) {
	if st == nil {
		return nil, nil
	}

	return h.store.Find(st.Id, name)
}

// documentFor returns the newest key document of another domain that lists a key; "" if none.
func (h *holdings) documentFor(td spiffeid.TrustDomain, kid string) string {
	if o := h.origins.Get(td); o != nil {
		return o.Keys.IssuedFor(kid)
	}

	return ""
}
