package store

import (
	"encoding/binary"
	"errors"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"go.etcd.io/bbolt"
)

// AddFresh adds a page to the fresh chain.
func (t *Tx) AddFresh(p *signed.Page, text string) error {
	return putPage(t.spare(), p, text)
}

// Links returns how many pages the chain has.
func (t *Tx) Links() uint64 { return t.Chain().Sequence() }

// PageAfter returns the chain's page that continues from revision since, or nil. The chain
// has no gap. It begins at 0 unless it grew too long; if it begins after since, there is no
// such page.
func (t *Tx) PageAfter(since uint64) (*Page, error) {
	k, data := t.Chain().Cursor().Seek(binary.BigEndian.AppendUint64(nil, since+1))
	if k == nil {
		return nil, nil
	}

	page := new(Page)
	if err := Unmarshal(data, page); err != nil || page.From > since {
		return nil, err
	}

	return page, nil
}

// PageOf returns the page of the chain that contains revision r, and the last revision of
// that page. It returns nil if there is no such page.
func (t *Tx) PageOf(r uint64) (page *Page, to uint64, err error) {
	k, data := t.Chain().Cursor().Seek(binary.BigEndian.AppendUint64(nil, r))
	if k == nil {
		return nil, 0, nil
	}

	page = new(Page)

	return page, binary.BigEndian.Uint64(k), Unmarshal(data, page)
}

func (t *Tx) spare() *bbolt.Bucket { return t.Bucket.Bucket(bucketChains[1-t.State.Chain]) }

// BeginFreshChain empties the bucket in which a fresh chain is gathered.
func (t *Tx) BeginFreshChain() error {
	name := bucketChains[1-t.State.Chain]
	if t.Bucket.Bucket(name) != nil {
		if err := t.Bucket.DeleteBucket(name); err != nil {
			return err
		}
	}

	_, err := t.Bucket.CreateBucket(name)

	return err
}

// SwitchChain makes the fresh chain the one that is passed on.
func (t *Tx) SwitchChain() error {
	fresh := t.spare()
	listed := uint64(0)

	err := fresh.ForEach(func(_, v []byte) error {
		var p Page
		err := Unmarshal(v, &p)
		listed += p.Listed

		return err
	})
	if err != nil {
		return err
	}

	name := bucketChains[t.State.Chain]
	t.State.Chain, t.State.Listed = 1-t.State.Chain, listed

	return t.Bucket.DeleteBucket(name)
}

// BeginRepull resets the watermark and the chain of a stream, and stores anew as RepullSince.
func (t *Tx) BeginRepull(anew uint64) error {
	for _, name := range bucketChains {
		if t.Bucket.Bucket(name) == nil {
			continue
		}

		if err := t.Bucket.DeleteBucket(name); err != nil {
			return err
		}
	}

	t.State.Watermark = 0
	t.State.Listed = 0
	t.State.Chain = 0
	_, err := t.Bucket.CreateBucket(bucketChains[0])

	return errors.Join(err, t.Confirm(0), t.Bucket.Put(keyRepull, binary.BigEndian.AppendUint64(nil, anew)))
}

// Confirmed returns the revision up to which another node of the origin has confirmed the stream.
func (t *Tx) Confirmed() uint64 { return revisionIn(t.Bucket.Get(keyConfirmed)) }

// Confirm stores the revision that Confirmed returns.
func (t *Tx) Confirm(revision uint64) error {
	return t.Bucket.Put(keyConfirmed, binary.BigEndian.AppendUint64(nil, revision))
}

// revisionIn returns a stored revision, 0 for none.
func revisionIn(data []byte) uint64 {
	if len(data) != 8 {
		return 0
	}

	return binary.BigEndian.Uint64(data)
}

// PagesAfter calls see with each page of the chain that ends after a revision, and with that end, in
// their order.
func (t *Tx) PagesAfter(since uint64, see func(page *Page, to uint64) error) error {
	cursor := t.Chain().Cursor()
	for k, data := cursor.Seek(binary.BigEndian.AppendUint64(nil, since+1)); k != nil; k, data = cursor.Next() {
		page := new(Page)
		if err := Unmarshal(data, page); err != nil {
			return err
		}

		if err := see(page, binary.BigEndian.Uint64(k)); err != nil {
			return err
		}
	}

	return nil
}

// EndRepull removes the RepullSince of a stream.
func (t *Tx) EndRepull() error { return t.Bucket.Delete(keyRepull) }

// repullSince returns the revision that BeginRepull stored, or 0 after EndRepull.
func (t *Tx) repullSince() uint64 { return revisionIn(t.Bucket.Get(keyRepull)) }

// DoubtBatch bounds the pages of a chain that are read at a time.
const DoubtBatch = 64

var errRests = errors.New("a stream depends on a revoked key")

// RestsOn reports whether one of the keys signed a page of a stream's chain or of an entry.
func (s *Store) RestsOn(id StreamID, revoked map[string]bool) (bool, error) {
	var err error
	for after, more := uint64(0), true; more && err == nil; {
		after, more, err = s.chainAfter(id, after, DoubtBatch, revoked)
	}

	for after, more := []byte(nil), true; more && err == nil; {
		after, more, err = s.EntriesAfter(id, after, FillBatch, func(_ *Tx, _ directory.RID, h *Entry) error {
			if revoked[h.Key.String()] {
				return errRests
			}

			return nil
		})
	}

	if errors.Is(err, errRests) {
		return true, nil
	}

	return false, err
}

// chainAfter checks up to limit pages of a chain, from the first that ends at after or
// later. It returns the position to continue from, and errRests if one of the revoked keys
// signed a page.
func (s *Store) chainAfter(id StreamID, after uint64, limit int, revoked map[string]bool) (next uint64, more bool,
	err error) {
	err = s.Read(id, func(t *Tx) error {
		c := t.Chain().Cursor()
		for k, data := c.Seek(binary.BigEndian.AppendUint64(nil, after)); k != nil; k, data = c.Next() {
			next = binary.BigEndian.Uint64(k)

			if limit--; limit < 0 {
				more = true
				return nil
			}

			var page Page
			if err := Unmarshal(data, &page); err != nil {
				return err
			}

			// An unreadable page counts as signed by a revoked key, so that it is pulled again.
			if parts, err := protocol.SplitJWS(page.JWS); err != nil || revoked[protocol.KeyIDOf(parts.Header)] {
				return errRests
			}
		}

		return nil
	})

	return next, more, err
}
