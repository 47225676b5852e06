package federation

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"pgregory.net/rapid"
)

// registerAs registers an agent of an owner, with a document of about that many bytes.
func (o *model) registerAs(owner, agent string, size int) directory.RID {
	rid := o.register(agent, 6000)
	o.with(rid, func(r *registration, t int64) {
		r.owner, r.document = owner, sizedDocument(o.made, size)
		o.put(rid, r, t)
	})

	return rid
}

func (o *model) resize(rid directory.RID, size int) {
	o.with(rid, func(r *registration, t int64) {
		r.document = sizedDocument(o.made, size)
		o.put(rid, r, t)
	})
}

func sizedDocument(n uint64, size int) directory.Document {
	d, err := directory.ParseDocument(directory.KindAD,
		fmt.Appendf(nil, `{"base":"https://agent.test/%d","note":"%s"}`, n, strings.Repeat("a", size)))
	if err != nil {
		panic(err)
	}

	return d
}

// smallShares lets no owner have more than its part of a small quota.
func smallShares(t *testing.T) {
	was := replica.LeastShare
	replica.LeastShare = store.Quota{Records: 1, Bytes: 1}
	t.Cleanup(func() { replica.LeastShare = was })
}

// held returns how many of each owner's agents beta shows, by the beginning of their names.
func (b *bench) shownOf() map[string]int {
	of := map[string]int{}
	for name := range b.agents() {
		owner, _, _ := strings.Cut(name, "-")
		of[owner]++
	}

	return of
}

// readmit asks again for what there is room for.
func (b *bench) readmit() {
	b.Helper()
	must(b.T, b.beta.origins.Get(alpha).Readmit())
	b.beta.follower.backlog(b.Context(), b.beta.origins.Get(alpha))
}

// One owner, and all together whose owner is withheld, have their share of a peer's
// quota. What exceeds it is left out, and the rest of its page stands.
//
// Requirement: FORM-005
func TestAnOwnerHasItsShareOfAPeersQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		smallShares(t)
		b, set := ruled(t)
		status := func() replica.PeerStatus { return b.beta.Peers()[0] }
		set(directory.PeerRules{Records: 32}) // two for each

		var eves []directory.RID
		for i := range 5 {
			eves = append(eves, b.origin.registerAs("/agent/eve", fmt.Sprint("eve-", i), 10))
		}

		b.origin.registerAs("/agent/bob", "bob-0", 10)

		for i := range 4 {
			b.origin.narrow(b.origin.registerAs(fmt.Sprint("/agent/hidden-", i), fmt.Sprint("hidden-", i), 10))
		}

		b.origin.registerAs("/agent/bob", "bob-1", 10)
		b.pull()

		want := map[string]int{"eve": 2, "bob": 2, "hidden": 2}
		if got := b.shownOf(); !maps.Equal(got, want) {
			t.Fatalf("there are %v, want %v", got, want)
		}

		if s := status(); s.Records != 6 || s.OverQuota != 5 || s.Pending != 0 || s.RecordsLimit != 32 ||
			s.BytesLimit != 0 {
			t.Errorf("%+v", s)
		}

		b.beta.reopen(t)
		b.readmit()

		if got := b.shownOf(); !maps.Equal(got, want) {
			t.Errorf("after a restart there are %v", got)
		}

		shown := slices.IndexFunc(eves, func(rid directory.RID) bool {
			_, ok := b.beta.origins.Get(alpha).Shown.Index.Get(rid)
			return ok
		})
		b.origin.remove(eves[shown])
		b.pull()
		b.readmit()

		if got := b.shownOf(); !maps.Equal(got, want) {
			t.Errorf("where one has gone there are %v", got)
		}

		set(directory.PeerRules{Records: 32, OwnerShare: 1})
		b.readmit()

		if s := status(); s.Records != 10 || s.OverQuota != 0 {
			t.Errorf("with all for one: %+v", s)
		}

		set(directory.PeerRules{Records: 3}) // below what is held
		b.readmit()
		b.origin.registerAs("/agent/new", "new-0", 10)
		b.origin.resize(eves[(shown+1)%5], 5)
		b.pull()

		if s := status(); s.Records != 10 || s.OverQuota != 1 || b.shownOf()["eve"] != 4 {
			t.Errorf("with a lowered quota: %+v, %v", s, b.shownOf())
		}
	})
}

// An owner has one share of a peer's quota, and so has the peer, in the stream for the mesh and
// in the one for this domain together.
//
// Requirement: FORM-005
func TestAShareIsOneForBothStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		smallShares(t)

		for other, rules := range map[string]directory.PeerRules{
			"/agent/eve": {Records: 32}, "/agent/bob": {Records: 2, OwnerShare: 1},
		} {
			b, set := ruled(t)
			set(rules)

			for i := range 4 {
				owner := "/agent/eve"
				if i >= 2 {
					owner = other
				}

				rid := b.origin.registerAs(owner, fmt.Sprint("agent-", i), 10)
				if i >= 2 {
					b.origin.grant(rid, directory.Only(beta), true)
					b.origin.export(rid, false)
				}
			}

			pair := b.beta.origins.Get(alpha)
			for _, feed := range []*replica.Feed{&pair.Mesh, &pair.Private} {
				must(t, b.beta.pulls(b.beta.origins.Get(alpha), feed, b.giver()))
			}

			b.readmit()

			s := b.beta.Peers()[0]
			if got := len(b.agents()); got != 2 || s.Records != 2 || s.OverQuota != 2 {
				t.Errorf("of %+v with %s: %d are shown, %d held, %d over the quota", rules, other, got, s.Records,
					s.OverQuota)
			}
		}
	})
}

// A small quota may be one owner's alone: what an identity may have at home by the shipped
// limits fits.
//
// Requirement: FORM-005
func TestASmallQuotaMayBeOneOwners(t *testing.T) {
	for rules, want := range map[[3]uint64]store.Quota{
		{}:                         {Records: 1_000_000 / 16, Bytes: 4 << 30 / 16},
		{100, 1 << 20}:             {Records: 100, Bytes: 1 << 20},
		{100_000, 1 << 30}:         {Records: 10_000, Bytes: 64 << 20},
		{1_000_000, 1 << 30, 1}:    {Records: 1_000_000, Bytes: 1 << 30},
		{1_000_000, 1 << 30, 2}:    {Records: 500_000, Bytes: 512 << 20},
		{1_000_000, 1 << 30, 1000}: {Records: 10_000, Bytes: 32 << 20},
	} {
		o := replica.New(alpha, index.New(),
			replica.Deps{Cfg: &replica.Config{Domain: beta, Records: 1_000_000, Bytes: 4 << 30}})
		o.Peering.Store(&directory.Peering{Import: directory.PeerRules{Records: rules[0], Bytes: rules[1],
			OwnerShare: uint32(rules[2])}})

		if got := o.OwnerQuota(); got != want {
			t.Errorf("by %v an owner has %+v, want %+v", rules, got, want)
		}
	}
}

// What is over an owner's share isn't fetched again and again while others come and go.
//
// Requirement: FORM-005
func TestWhatExceedsAShareIsNotFetchedAgainInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		smallShares(t)
		b, set := ruled(t)
		set(directory.PeerRules{Records: 32, Bytes: 160_000}) // two records, 10,000 bytes

		for i := range 3 {
			b.origin.registerAs("/agent/eve", fmt.Sprint("eve-", i), 10)
		}

		b.origin.registerAs("/agent/large", "large-0", 20_000)
		b.pull()

		if got := b.shownOf(); !maps.Equal(got, map[string]int{"eve": 2}) {
			t.Fatalf("there are %v", got)
		}

		asked := 0

		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathRecords {
				asked++
			}

			return body
		}
		for i := range 5 {
			rid := b.origin.registerAs("/agent/bob", fmt.Sprint("bob-", i), 10)
			b.pull()
			b.origin.remove(rid)
			b.pull()
			before := asked
			b.readmit()

			if asked != before {
				t.Fatalf("it asks for records that have no room")
			}
		}
	})
}

// Whatever a peer announces, takes back and changes in size, what is counted is what is
// held, by owner and together, and is within the quotas.
//
// Requirement: FORM-005
func TestAPeersQuotasAreCountedExactly(t *testing.T) {
	smallShares(t)
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			b, set := ruled(t)
			rules := directory.PeerRules{Records: 16, Bytes: 100_000, OwnerShare: 4}
			set(rules)

			var rids []directory.RID

			some := func() directory.RID { return rapid.SampledFrom(rids).Draw(rt, "rid") }
			for i := range rapid.IntRange(1, 25).Draw(rt, "steps") {
				size := rapid.SampledFrom([]int{1, 100, 5000, 30_000}).Draw(rt, "size")
				switch step := rapid.IntRange(0, 9).Draw(rt, "step"); {
				case step < 4 || len(rids) == 0:
					owner := rapid.SampledFrom([]string{"/agent/eve", "/agent/bob"}).Draw(rt, "owner")
					rids = append(rids, b.origin.registerAs(owner, fmt.Sprint("agent-", i), size))
				case step < 6:
					b.origin.resize(some(), size)
				case step == 6:
					b.origin.remove(some())
				case step == 7:
					b.origin.narrow(some())
				case step == 8:
					b.beta.reopen(t)
				default:
					b.readmit()
				}

				b.pull()
				b.countedExactly(rt)
			}
		})
	})
}

// countedExactly compares what is counted with the contents of the disk.
func (b *bench) countedExactly(rt *rapid.T) {
	b.Helper()
	o := b.beta.origins.Get(alpha)

	st := o.Mesh.Cur
	if st == nil {
		return
	}

	sum, byOwner := store.Usage{}, store.Owners{}
	must(b.T, b.beta.store.Scan(st.Id, func(_ *store.Tx, _ directory.RID, h *store.Entry) bool {
		if h.Record == store.RecordOverQuota {
			sum.OverQuota++
		}

		return true
	}, func(batch []store.StoredEntry) {
		for _, kept := range batch {
			entry, err := b.beta.records.OpenEntry(contain.Record, alpha, st.Id.Epoch, kept.Entry.Digest(kept.RID),
				kept.Record, kinds.Project)
			must(b.T, err)
			size := int64(len(store.Marshal(kept.Record)))
			sum = sum.Plus(store.Usage{Records: 1, Bytes: size})
			byOwner.Add(store.OwnerKeyOf(entry), store.Share{Records: 1, Bytes: size})
		}
	}))

	if st.Used != sum || !maps.Equal(st.Owners, byOwner) {
		rt.Fatalf("counted are %+v of %v; held are %+v of %v", st.Used, st.Owners, sum, byOwner)
	}

	if !o.Quota().Fits(store.Usage{}, sum) {
		rt.Fatalf("%+v are held, over the quota", sum)
	}

	for key, has := range byOwner {
		if !o.OwnerQuota().Fits(store.Usage{}, has.Usage()) {
			rt.Fatalf("%v has %+v, over its share", key, has)
		}
	}
}
