package state

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// A scan returns what a naive reader of everything announced would.
func TestScansOfAStream(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, naive := newStream(), map[directory.RID]signed.Digest{}

		var revision uint64
		for range rapid.IntRange(1, 400).Draw(rt, "steps") {
			rid := directory.NewRID(1, [10]byte{byte(rapid.IntRange(0, 40).Draw(rt, "rid"))})
			if _, ok := naive[rid]; ok && rapid.IntRange(0, 5).Draw(rt, "free") == 0 {
				delete(naive, rid)
				s.entries.remove(rid)

				continue
			}

			revision += uint64(rapid.IntRange(1, 3).Draw(rt, "gap"))
			d := signed.Digest{RID: rid, Revision: revision, Op: rapid.SampledFrom([]signed.Op{
				signed.OpPut, signed.OpRenew, signed.OpEnd, signed.OpDrop}).Draw(rt, "op")}
			s.announce(d)
			naive[rid] = d

			if s.tip != revision {
				rt.Fatalf("the tip is %d, want %d", s.tip, revision)
			}

			at := revision + 1
			since := uint64(rapid.IntRange(0, int(at)).Draw(rt, "since"))
			limit := rapid.IntRange(1, 50).Draw(rt, "limit")

			var want []signed.Digest
			for _, d := range naive {
				if d.Revision > since {
					want = append(want, d)
				}
			}

			slices.SortFunc(want, func(a, b signed.Digest) int { return cmp.Compare(a.Revision, b.Revision) })

			wantTo := at
			if len(want) > limit {
				want = want[:limit]
				wantTo = want[limit-1].Revision
			}

			if got, to := s.scan(since, limit, at); to != wantTo || !slices.Equal(got, want) {
				rt.Fatalf("from %d at most %d: %v to %d, want %v to %d", since, limit, got, to, want, wantTo)
			}
		}

		places := 0
		for range s.order.above(0) {
			places++
		}

		if places > 2*s.entries.len()+2*runLength {
			rt.Errorf("%d places for %d entries", places, s.entries.len())
		}
	})
}

// A receiver applies pages as rule G3 says, and nothing else.
type receiver struct {
	watermark uint64
	entries   map[directory.RID]signed.Digest
}

type page struct {
	from, to uint64
	digests  []signed.Digest
}

func (r *receiver) take(p page) {
	if p.from > r.watermark || p.to <= r.watermark {
		return
	}

	for _, d := range p.digests {
		if d.Live() {
			r.entries[d.RID] = d
		} else {
			delete(r.entries, d.RID)
		}
	}

	r.watermark = p.to
}

// A random log: the commands that a leader might propose, good and bad, at times
// that mostly go forward.
type author struct {
	*drive
	rt   *rapid.T
	now  int64 // seconds after genesis
	rids []directory.RID
	log  [][]byte
}

func (a *author) next() Command {
	rt := a.rt
	who := rapid.SampledFrom([]directory.Identity{ada, bob}).Draw(rt, "who")
	lifetime := uint32(rapid.SampledFrom([]int{60, 61, 100, 400}).Draw(rt, "lt"))
	some := func() directory.RID {
		if len(a.rids) == 0 {
			return directory.RID{}
		}

		return a.rids[rapid.IntRange(0, len(a.rids)-1).Draw(rt, "which")]
	}

	grants := func() Granted {
		g := Granted{Policy: a.state.policy.basis}
		for _, aud := range []directory.Audience{directory.Mesh, directory.Only(beta)} {
			switch rapid.IntRange(0, 3).Draw(rt, "grant") {
			case 0:
			case 1:
				g.Grants = append(g.Grants, grant{Audience: aud, Reg: []string{"agent", "kind"}, Doc: []string{"base"}})
			default:
				g.Grants = append(g.Grants, grant{Audience: aud, All: true})
			}
		}

		return g
	}
	switch rapid.IntRange(0, 11).Draw(rt, "command") {
	case 0, 1, 2:
		c := a.registering(who, fmt.Sprint("agent-", rapid.IntRange(0, 6).Draw(rt, "agent")), lifetime)
		c.Granted = grants()

		c.Granted.Owner = who
		if c.Made != nil {
			c.Made = must(c.prepared(a.t))
		}

		return Command{Register: c}
	case 3, 4:
		if rapid.Bool().Draw(rt, "keep") {
			lifetime = 0
		}

		return Command{Refresh: &Refresh{RID: some(), Caller: who, Lifetime: lifetime}}
	case 5:
		return Command{Remove: &Remove{Format: 1, RID: some(), Caller: who}}
	case 6:
		c := &Update{Format: 1, RID: some(), Caller: who, Lifetime: lifetime,
			Document: document(a.t, "updated").Bytes(), Granted: grants()}
		if reg := a.state.registrations.regs.get(c.RID); reg != nil {
			c.Statement = reg.entry.Statement
		}

		return Command{Update: c}
	case 7:
		item := RegrantItem{RID: some(), Granted: grants()}
		if reg := a.state.registrations.regs.get(item.RID); reg != nil {
			item.Statement = reg.entry.Statement
		}

		return Command{Regrant: &Regrant{[]RegrantItem{item}}}
	case 8:
		p := peerBeta
		p.Mesh = rapid.Bool().Draw(rt, "mesh")

		return Command{Peer: &p}
	case 9:
		p := Attest{Public: make([]byte, 32), Attestations: []string{fmt.Sprint(a.now)}}
		p.Public[0] = rapid.SampledFrom([]byte{0, 1, 2}).Draw(rt, "key")
		p.Node = must(alphaNode("n"))

		return Command{Attest: &p}
	case 10:
		hold := rapid.SampledFrom([]uint32{0, 5, 100}).Draw(rt, "hold")
		owned := rapid.SampledFrom([]uint32{0, 2, 20}).Draw(rt, "owned")

		r := &Rules{Hold: hold, PerOwner: owned}
		if rapid.Bool().Draw(rt, "excepted") {
			r.Owners = []OwnerRule{{must(directory.ParseIdentityPattern(ada.String())), uint64(owned) / 2}}
		}

		return Command{Rules: r}
	default:
		return Command{Expire: &Sweep{1, []directory.RID{some(), some()}}}
	}
}

// step applies an entry of one to three commands and what the sweep finds due.
func (a *author) step() {
	a.now += int64(rapid.SampledFrom([]int{-5, 0, 1, 1, 5, 20, 90}).Draw(a.rt, "seconds"))

	var cs []Command
	for range rapid.IntRange(1, 3).Draw(a.rt, "commands") {
		cs = append(cs, a.next())
	}

	a.enter(cs)

	expired, renewed := a.state.registrations.Due(max(genesis/1000+a.now, a.state.history.now/1000))
	if len(expired)+len(renewed) > 0 {
		a.enter([]Command{{Expire: &Sweep{1, expired}}, {Announce: &Sweep{1, renewed}}})
	}
}

func (a *author) enter(cs []Command) {
	b := &Batch{FirstVersion, genesis + a.now*1000, cs}
	data := must(Marshal(b))

	a.log = append(a.log, data)
	for _, r := range must(a.state.Apply(must(DecodeBatch(data)))) {
		if r.Err == nil && r.Outcome.Created {
			a.rids = append(a.rids, r.Outcome.RID)
		}
	}
}

// The rules G1 to G5, T3 and X1 to X3 as a receiver sees them, with pages of any
// length, from any other time, again and again.
//
// Requirement: MESH-007, MESH-013
func TestReceiversAreRight(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := &author{drive: newDrive(t), rt: rt}
		receivers := []*receiver{{entries: map[directory.RID]signed.Digest{}},
			{entries: map[directory.RID]signed.Digest{}}}

		var pages []page

		pull := func(r *receiver, limit int) {
			ds, to := a.state.streams.byAudience[directory.Mesh].scan(r.watermark, limit, a.state.history.revision)
			p := page{r.watermark, to, ds}
			pages = append(pages, p)
			r.take(p)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			a.step()

			for _, r := range receivers {
				switch rapid.IntRange(0, 5).Draw(rt, "receive") {
				case 0, 1:
					pull(r, rapid.IntRange(1, 5).Draw(rt, "limit"))
				case 2:
					if len(pages) > 0 {
						r.take(pages[rapid.IntRange(0, len(pages)-1).Draw(rt, "replay")])
					}
				case 3:
					for r.watermark < a.state.history.revision {
						pull(r, rapid.IntRange(1, 5).Draw(rt, "limit"))
					}

					compare(rt, a.state, r)
				}
			}
		}
	})
}

// compare holds a receiver that has all pages against the registrations
// themselves.
func compare(rt *rapid.T, s *State, r *receiver) {
	now := s.history.now / 1000
	for rid, d := range r.entries {
		if d.Deadline <= now {
			continue
		}

		reg := s.registrations.regs.get(rid)
		if reg == nil || reg.h != d.H || d.Deadline > reg.entry.ExpiresAt/1000 {
			rt.Fatalf("a receiver serves %+v, which is %+v", d, reg)
		}
	}

	for reg := range s.registrations.regs.each() {
		rid := reg.entry.RID
		i := slices.IndexFunc(reg.grants, func(g directory.Grant) bool { return g.Audience == directory.Mesh })

		d, has := r.entries[rid]
		switch {
		case i < 0:
			if has && d.Deadline > now {
				rt.Fatalf("a receiver has %+v, which it may not", d)
			}
		case s.registrations.ended(reg):
		default:
			_, m := signed.Disclosed(reg.change(s.history.domain).Disclosures(), reg.grants[i])
			if !has || d.M != m || d.H != reg.h || d.Deadline <= now {
				rt.Fatalf("a receiver lacks %s or has it otherwise at %d: %+v", rid, now, d)
			}
		}
	}
}

// Equal logs make equal states, also when a part of the log is replaced by a
// snapshot of it: every payload, every stream, the ledger, the index.
//
// Requirement: MESH-002, MESH-020
func TestEqualLogsMakeEqualStates(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := &author{drive: newDrive(t), rt: rt}
		other := newDrive(t).state
		cut := rapid.IntRange(0, 50).Draw(rt, "cut")

		for range 50 {
			a.step()
		}

		for i, data := range a.log {
			if i == cut {
				other = restore(t, other)
			}

			must(other.Apply(must(DecodeBatch(data))))
		}

		if !bytes.Equal(freeze(t, a.state), freeze(t, other)) ||
			a.state.history.ledger.Root() != other.history.ledger.Root() {
			rt.Fatal("equal logs made different states")
		}

		if a.state.registrations.index.Len() != other.registrations.index.Len() ||
			other.registrations.index.Len() != other.registrations.regs.len() {
			rt.Fatal("the indexes differ")
		}

		for reg := range a.state.registrations.regs.each() {
			rid := reg.entry.RID

			payload := must(signed.Statement(reg.format, other.registrations.regs.get(rid).change(alpha),
				other.registrations.regs.get(rid).change(alpha).Disclosures()))
			if directory.HashOf(payload) != reg.h {
				rt.Fatalf("the statement of %s differs", rid)
			}
		}

		for _, aud := range slices.Collect(maps.Keys(a.state.streams.byAudience)) {
			x, _ := a.state.streams.byAudience[aud].scan(0, 1<<20, a.state.history.revision)

			y, _ := other.streams.byAudience[aud].scan(0, 1<<20, other.history.revision)
			if !slices.Equal(x, y) {
				rt.Fatalf("the streams to %s differ", aud)
			}
		}
	})
}
