package store

import (
	"encoding/binary"
	"errors"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"go.etcd.io/bbolt"
)

func (t *Tx) Chain() *bbolt.Bucket { return t.Bucket.Bucket(bucketChains[t.State.Chain]) }

// ChainMost bounds what a chain lists beyond twice the live entries, where its
// origin doesn't let it be renewed: else it could fill the disk, quotas or not.
const ChainMost = 2 << 20

// AddPage appends a page that was just applied to the chain. One that is too long
// begins anew there, and is of use to those alone who are as far already.
func (t *Tx) AddPage(page *signed.Page, text string) error {
	if t.State.Listed > 2*t.State.Live+ChainMost {
		name := bucketChains[t.State.Chain]
		if err := t.Bucket.DeleteBucket(name); err != nil {
			return err
		}

		if _, err := t.Bucket.CreateBucket(name); err != nil {
			return err
		}

		t.State.Listed = 0
	}

	t.State.Listed += Weight(page)

	return putPage(t.Chain(), page, text)
}

// Weight is what a page adds to what a chain lists; one without digests is a link as well.
func Weight(p *signed.Page) uint64 { return uint64(max(1, len(p.Digests))) }

// AddFresh adds a page to the fresh chain.
func (t *Tx) AddFresh(p *signed.Page, text string) error {
	return putPage(t.spare(), p, text)
}

// Links returns how many pages the chain has.
func (t *Tx) Links() uint64 { return t.Chain().Sequence() }

// putPage adds a link to a chain; the bucket's sequence counts them.
func putPage(chain *bbolt.Bucket, page *signed.Page, text string) error {
	if _, err := chain.NextSequence(); err != nil {
		return err
	}

	return chain.Put(binary.BigEndian.AppendUint64(nil, page.To),
		Marshal(Page{From: page.From, Listed: Weight(page), JWS: text}))
}

// PageAfter returns the chain's page that brings a receiver on from since. The
// chain has no gap, and begins at 0 unless it grew too long: where it begins later
// than since there is none.
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

// PageOf returns the page of the chain that brought revision r, and how far it goes; nil
// for none.
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

// BeginRepull forgets how far a stream is, and its chain, and notes since when it is anew.
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

	return errors.Join(err, t.Bucket.Put(keyRepull, binary.BigEndian.AppendUint64(nil, anew)))
}

// EndRepull forgets since when a stream is anew.
func (t *Tx) EndRepull() error { return t.Bucket.Delete(keyRepull) }

// repullSince returns what rewind noted; 0 if that is over.
func (t *Tx) repullSince() uint64 {
	if b := t.Bucket.Get(keyRepull); len(b) == 8 {
		return binary.BigEndian.Uint64(b)
	}

	return 0
}

// DoubtBatch bounds the pages of a chain that are read at a time.
const DoubtBatch = 64

var errRests = errors.New("a stream depends on a revoked key")

// RestsOn reports whether a page of a stream's chain, or an entry, is by one of the keys.
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

// chainAfter looks at up to limit pages of a chain, from one that goes as far as after
// on, and returns where to go on; errRests where one is by one of the keys.
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

			if parts, err := protocol.SplitJWS(page.JWS); err != nil || revoked[protocol.KeyIDOf(parts.Header)] {
				return errRests
			}
		}

		return nil
	})

	return next, more, err
}
