package federation

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A model is an origin that follows rules G2, G4, G5, T1, T3 and X1 to X3, in as
// few words as possible: it stands for package consensus. What it announced at
// every revision is kept, to compare receivers with.
type model struct {
	domain spiffeid.TrustDomain
	epoch  uint64
	start  func() time.Time // its clock

	mu      sync.Mutex
	rev     uint64
	tip     uint64
	last    int64 // committed time, Unix milliseconds
	regs    map[directory.RID]*registration
	named   map[name]*registration
	history map[directory.RID][]directory.Digest
	keys    []directory.SigningKey
	revoked []string
	mesh    []spiffeid.TrustDomain
	seq     uint64
	changed chan struct{}
	made    uint64
}

type registration struct {
	agent     string
	document  directory.Document
	granted   []string // members of the document that the stream discloses; none for all of everything
	since     int64
	lifetime  uint32
	deadline  int64 // the real one
	alive     bool
	exported  bool
	change    *directory.Change
	payload   []byte
	texts     []string
	announced directory.Digest
	max       int64 // the highest deadline ever announced
	late      int64 // when it was last refreshed with less than the margin left, or exported
}

func newModel(td spiffeid.TrustDomain, mesh ...spiffeid.TrustDomain) *model {
	return &model{domain: td, epoch: uint64(time.Now().Unix()), start: time.Now, mesh: mesh, regs: map[directory.RID]*registration{},
		named: map[name]*registration{}, history: map[directory.RID][]directory.Digest{}, changed: make(chan struct{}), seq: 1}
}

// do runs f as one committed change at the committed time t, in seconds.
func (o *model) do(f func(t int64)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = max(o.last, o.start().UnixMilli())
	f(o.last / 1000)
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *model) announce(rid directory.RID, r *registration, d directory.Digest) {
	d.RID, d.Revision = rid, o.rev
	r.announced, o.tip = d, o.rev
	o.named[nameOf(d)] = r
	if d.Live() {
		r.max = max(r.max, d.Deadline)
	}
	o.history[rid] = append(o.history[rid], d)
}

func (o *model) put(rid directory.RID, r *registration, t int64) {
	o.made++
	salt := directory.Salt(sha256.Sum256(fmt.Append(nil, o.domain, o.made)))
	change := &directory.Change{Issuer: o.domain, RID: rid, Op: directory.OpPut, Epoch: o.epoch, Revision: o.rev, IssuedAt: t,
		Since: r.since, Leaf: o.rev, Agent: r.agent, Owner: directory.IdentityOf(spiffeid.RequireFromPath(o.domain, "/agent/ada")),
		Document: r.document, Salt: salt}
	ds := change.Disclosures()
	payload, err := directory.Statement(directory.StatementFormat, change, ds)
	if err != nil {
		panic(err)
	}
	var m directory.Hash
	r.change, r.payload = change, payload
	grant := directory.Grant{Audience: directory.Mesh, All: len(r.granted) == 0, Reg: []string{"agent", "kind"}, Doc: r.granted}
	r.texts, m = directory.Disclosed(ds, grant)
	r.deadline = t + int64(r.lifetime) // T1; X1: the announced deadline is the real one
	if r.exported {
		o.announce(rid, r, directory.Digest{Op: directory.OpPut, H: directory.HashOf(payload), M: m, Deadline: r.deadline, Lifetime: r.lifetime})
	}
}

// document returns an agent's document; every n is another one.
func document(n uint64) directory.Document {
	d, err := directory.ParseDocument(directory.KindAD, fmt.Appendf(nil, `{"base":"https://agent.test/%d","description":"agent %d","protocols":["https"],"capabilities":[{"name":"work","type":"tool"}]}`, n, n))
	if err != nil {
		panic(err)
	}
	return d
}

func (o *model) register(agent string, lifetime uint32) (rid directory.RID) {
	o.do(func(t int64) {
		o.rev++
		o.made++
		rid = ridOf(o.domain, o.made)
		r := &registration{agent: agent, document: document(o.made), since: t, late: t, lifetime: lifetime, alive: true, exported: true}
		o.regs[rid] = r
		o.put(rid, r, t)
	})
	return rid
}

func ridOf(td spiffeid.TrustDomain, n uint64) directory.RID {
	h := directory.HashOf(fmt.Append(nil, td, n))
	return directory.NewRID(int64(n), [10]byte(h[:10]))
}

func (o *model) replace(rid directory.RID, lifetime uint32) {
	o.with(rid, func(r *registration, t int64) {
		r.document, r.lifetime = document(o.made+1000), lifetime
		o.put(rid, r, t)
	})
}

// with changes what is alive at t (T3), as one revision.
func (o *model) with(rid directory.RID, f func(r *registration, t int64)) {
	o.do(func(t int64) {
		if r := o.regs[rid]; r != nil && r.alive && t < r.deadline {
			if d := r.announced; !d.Live() || d.Deadline-t <= directory.AnnounceBefore(r.lifetime) {
				r.late = t
			}
			o.rev++
			f(r, t)
		}
	})
}

// refresh announces nothing (X2) unless the deadline falls (X1).
func (o *model) refresh(rid directory.RID, lifetime uint32) {
	o.with(rid, func(r *registration, t int64) {
		r.lifetime, r.deadline = lifetime, t+int64(lifetime)
		if d := r.announced; r.exported && r.deadline < d.Deadline {
			d.Op, d.Deadline, d.Lifetime = directory.OpRenew, r.deadline, lifetime
			o.announce(rid, r, d)
		}
	})
}

func (o *model) remove(rid directory.RID) {
	o.with(rid, func(r *registration, _ int64) { o.end(rid, r) })
}

func (o *model) end(rid directory.RID, r *registration) {
	r.alive = false
	if r.announced.Live() {
		o.announce(rid, r, directory.Digest{Op: directory.OpEnd, H: directory.HashOf(fmt.Append(nil, "end", rid))})
	}
}

// export puts a registration into the stream or takes it out.
func (o *model) export(rid directory.RID, yes bool) {
	o.with(rid, func(r *registration, _ int64) {
		if r.exported == yes {
			return
		}
		if r.exported = yes; !yes {
			o.announce(rid, r, directory.Digest{Op: directory.OpDrop})
			return
		}
		o.announce(rid, r, directory.Digest{Op: directory.OpPut, H: directory.HashOf(r.payload), M: directory.HashDisclosures(r.texts), Deadline: r.deadline, Lifetime: r.lifetime})
	})
}

// sweep ends what has expired (X3), announces later deadlines in time (X2) and
// frees what no receiver can hold any more (G4).
func (o *model) sweep() {
	o.do(func(t int64) {
		for _, rid := range slices.SortedFunc(maps.Keys(o.regs), directory.RID.Compare) {
			r := o.regs[rid]
			d := r.announced
			switch {
			case r.alive && r.deadline <= t:
				o.rev++
				if r.alive = false; r.max > r.deadline && d.Live() {
					o.end(rid, r)
				}
			case r.alive && d.Live() && r.deadline > d.Deadline && d.Deadline-t <= directory.AnnounceBefore(r.lifetime):
				o.rev++
				d.Op, d.Deadline, d.Lifetime = directory.OpRenew, r.deadline, r.lifetime
				o.announce(rid, r, d)
			case !r.alive && r.max+int64(directory.Skew/time.Second) <= t:
				delete(o.regs, rid)
			}
		}
	})
}

func (o *model) Position() directory.Position {
	o.mu.Lock()
	defer o.mu.Unlock()
	return directory.Position{Epoch: o.epoch, Revision: o.rev}
}

func (o *model) Changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

func (o *model) Digests(aud directory.Audience, since uint64, limit int) (ds []directory.Digest, to, at uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if aud == directory.Mesh {
		for _, r := range o.regs {
			if r.announced.Revision > since {
				ds = append(ds, r.announced)
			}
		}
	}
	slices.SortFunc(ds, func(a, b directory.Digest) int { return int(a.Revision) - int(b.Revision) })
	if len(ds) > limit {
		return ds[:limit], ds[limit-1].Revision, o.rev
	}
	return ds, o.rev, o.rev
}

func (o *model) Tip(aud directory.Audience) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if aud != directory.Mesh {
		return 0
	}
	return o.tip
}

func (o *model) Record(aud directory.Audience, h, m directory.Hash) ([]byte, []string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.named[name{h, m}]
	if aud != directory.Mesh || r == nil || !r.announced.Live() || nameOf(r.announced) != (name{h, m}) {
		return nil, nil, false
	}
	return r.payload, r.texts, true
}

func (o *model) Current(rid directory.RID, aud directory.Audience) (directory.Digest, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.regs[rid]
	if r == nil || aud != directory.Mesh {
		return directory.Digest{}, false
	}
	return r.announced, true
}

func (o *model) KeyDocument() *directory.KeyDocument {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &directory.KeyDocument{Issuer: o.domain, Epoch: o.epoch, Seq: o.seq, Expires: o.start().Unix()/3600*3600 + 7200,
		Mesh: o.mesh, Revoked: o.revoked, Keys: o.keys}
}

func (o *model) Ledger() (uint64, directory.Hash) { return 0, directory.Hash{} }
func (o *model) IsLeader() bool                   { return true }

// narrow withholds all but the members that a document must have: the same
// statement with fewer disclosures.
func (o *model) narrow(rid directory.RID) {
	o.with(rid, func(r *registration, _ int64) {
		g := directory.Grant{Audience: directory.Mesh, Reg: []string{"agent", "kind"}, Doc: []string{"base", "description", "protocols", "capabilities"}}
		var m directory.Hash
		r.texts, m = directory.Disclosed(r.change.Disclosures(), g)
		o.announce(rid, r, directory.Digest{Op: directory.OpPut, H: directory.HashOf(r.payload), M: m, Deadline: r.deadline, Lifetime: r.lifetime})
	})
}

// restore begins a new epoch in which every registration is unconfirmed, and
// returns the old epoch and its last revision.
func (o *model) restore() (epoch, rev uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	epoch, rev = o.epoch, o.rev
	o.epoch += 10
	o.tip = 0
	for _, r := range o.regs {
		r.announced = directory.Digest{}
		r.exported = false
	}
	return epoch, rev
}

// listKeys issues a key document with these keys and revoked ones.
func (o *model) listKeys(revoked []string, rings ...*keyring) {
	o.do(func(int64) {
		o.rev++
		o.seq, o.revoked, o.keys = o.rev, revoked, nil
		for i, k := range rings {
			o.keys = append(o.keys, directory.SigningKey{Public: k.public(), Node: nodeID(o.domain, i+1)})
		}
	})
}
