package federation

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"go.etcd.io/bbolt"
)

// overfill adds entries of one owner to what beta has of alpha, for whose records there
// is no room in that owner's share.
func (b *bench) overfill(n int, owner store.OwnerKey) {
	b.Helper()
	o := b.beta.origins.Get(alpha)
	st := o.Mesh.Cur

	var (
		done store.Changes
		err  error
	)
	done.State, err = b.beta.store.Change(st.Id, func(t *store.Tx) error {
		for i := range n {
			var entropy [10]byte
			binary.BigEndian.PutUint64(entropy[:], uint64(i))
			h := &store.Entry{
				Revision: uint64(i), Deadline: time.Now().Unix() + 6000, Lifetime: 6000,
				Record: store.RecordOverQuota, Owner: owner, Size: 1000,
			}
			binary.BigEndian.PutUint64(h.H[:], uint64(i))

			if err := t.Put(directory.NewRID(1, entropy), nil, h); err != nil {
				return err
			}
		}

		done.Delta = t.Delta

		return nil
	})
	must(b.T, err)
	o.Apply(st, done, nil)
}

// written is the number of the last transaction that has written to beta's store.
func (b *bench) written() (last int) {
	b.Helper()
	must(b.T, b.beta.store.File().View(func(tx *bbolt.Tx) error {
		last = tx.ID()
		return nil
	}))

	return last
}

// An origin that has more entries than its quota has room for chooses how often something
// is freed. To look for what there is room for then takes bounded steps and keeps nobody
// else's pages waiting.
//
// Requirement: FORM-005
func TestToLookForRoomHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		smallShares(t)
		b, set := ruled(t)
		full := b.origin.registerAs("/agent/eve", "eve-0", 10)
		b.pull()
		set(directory.PeerRules{Records: 32, Bytes: 1 << 20, OwnerShare: 32}) // one for each owner
		o := b.beta.origins.Get(alpha)

		e, ok := o.Shown.Index.Get(full)
		if !ok {
			t.Fatal("nothing is shown")
		}

		b.overfill(replica.ReadmitLook+replica.ReadmitBatch, store.OwnerKeyOf(e))
		late := b.origin.registerAs("/agent/eve", "eve-late", 10) // its rid is behind all others
		b.pull()

		before := b.written()

		for range 3 {
			o.Room.Store(true)
			must(t, o.Readmit())
		}

		if after := b.written(); after != before {
			t.Errorf("%d transactions were written and there was room for nothing", after-before)
		}

		o.Mesh.Cur.Again = nil
		b.origin.remove(full)
		b.pull()
		set(directory.PeerRules{Records: 32, Bytes: 1 << 20, OwnerShare: 31})
		must(t, o.Readmit())

		if o.Mesh.Cur.Again == nil {
			t.Error("one step looks at all entries")
		}

		set(directory.PeerRules{Records: 1_000_000, OwnerShare: 1})

		for range 2 * replica.ReadmitLook / replica.ReadmitAtOnce {
			must(t, o.Readmit())
		}

		if missing := o.Mesh.Cur.Missing; !missing.Has(late) {
			t.Errorf("the last entry isn't asked for: %d are", missing.Len())
		}

		if n := o.Mesh.Cur.Missing.Len(); n != replica.ReadmitLook+replica.ReadmitBatch+1 {
			t.Errorf("%d records are asked for, want %d", n, replica.ReadmitLook+replica.ReadmitBatch+1)
		}
	})
}
