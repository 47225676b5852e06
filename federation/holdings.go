package federation

import (
	"cmp"
	"iter"

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
	peers     peers
}

// pageOf returns a page of the own domain, or the link of another origin's chain that
// continues from since, unchanged.
func (h holdings) pageOf(from spiffeid.TrustDomain, query protocol.PageQuery) (string, error) {
	if query.Origin == h.cfg.Domain {
		made, err := h.publisher.Page(query.Aud, query.Since, query.Limit, query.Wait == 0 &&
			h.peers.lists(h.cfg.Domain, from))
		if made == nil || err != nil {
			return "", err
		}

		return made.Text, nil
	}

	origin := h.origins.Get(query.Origin)
	if origin == nil {
		return "", directory.Refuse(directory.NotFound, "this node holds nothing of that origin")
	}

	st := origin.ShownStream(query.Aud)
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

// A foundRecord is the result of a search for one record: the record, or err if it can't be signed.
// found is false if the caller may have no record of that name.
type foundRecord struct {
	protocol.RecordParts
	name  protocol.RecordName
	found bool
	err   error
}

// recordsOf finds the records that the domain to may have, one for each name. For the own domain
// these are the records that one of its streams to that domain names. For another origin they are
// the records of its mesh stream and, if to is this domain, of the private stream. The error is
// store.ErrStalled or another one of the store, and ends the sequence.
func (h holdings) recordsOf(origin, to spiffeid.TrustDomain,
	names []protocol.RecordName) iter.Seq2[foundRecord, error] {
	if origin == h.cfg.Domain {
		return h.ownRecords(to, names)
	}

	return h.storedRecords(h.streamsOf(origin, to), names)
}

func (h holdings) ownRecords(to spiffeid.TrustDomain, names []protocol.RecordName) iter.Seq2[foundRecord, error] {
	auds := []directory.Audience{directory.Only(to)}
	if h.peers.lists(h.cfg.Domain, to) {
		auds = []directory.Audience{directory.Mesh, directory.Only(to)}
	}

	return func(yield func(foundRecord, error) bool) {
		for _, name := range names {
			record := foundRecord{name: name}
			for _, aud := range auds {
				record.RecordParts, record.found, record.err = h.publisher.Record(aud, name)
				if record.found || record.err != nil {
					break
				}
			}

			if !yield(record, nil) {
				return
			}
		}
	}
}

// streamsOf returns another origin's streams whose records the domain to may have. They are looked up
// once for a request, because their lock is held most of the time while one is pulled.
func (h holdings) streamsOf(origin, to spiffeid.TrustDomain) (shown []store.StreamID) {
	o := h.origins.Get(origin)
	if o == nil {
		return nil
	}

	auds := []directory.Audience{directory.Mesh}
	if to == h.cfg.Domain {
		auds = append(auds, directory.Only(to))
	}

	for _, aud := range auds {
		if st := o.ShownStream(aud); st != nil {
			shown = append(shown, st.Id)
		}
	}

	return shown
}

// storedRecords reads several records in one transaction, and bounds how many bytes of them an
// answer has in memory.
func (h holdings) storedRecords(streams []store.StreamID,
	names []protocol.RecordName) iter.Seq2[foundRecord, error] {
	const together, most = 16, 256 << 10

	return func(yield func(foundRecord, error) bool) {
		for rest := names; len(rest) > 0; {
			batch := rest[:min(together, len(rest))]
			found := make([]*store.Record, len(batch))

			for _, id := range streams {
				records, err := h.store.Find(id, batch, most)
				if err != nil {
					yield(foundRecord{}, err)
					return
				}

				// Find stops at its bound. The names behind it come with the next batch.
				batch = batch[:len(records)]
				for i, record := range records {
					found[i] = cmp.Or(found[i], record)
				}
			}

			for i, name := range batch {
				record := foundRecord{name: name, found: found[i] != nil}
				if record.found {
					record.RecordParts = found[i].Parts()
				}

				if !yield(record, nil) {
					return
				}
			}

			rest = rest[len(batch):]
		}
	}
}

// documentFor returns the newest key document of another domain that lists a key; "" if none.
func (h holdings) documentFor(td spiffeid.TrustDomain, kid string) string {
	if o := h.origins.Get(td); o != nil {
		return o.Keys.IssuedFor(kid)
	}

	return ""
}
