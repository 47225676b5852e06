package federation

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
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
	tip     uint64 // of the mesh's stream
	tips    map[directory.Audience]uint64
	last    int64 // committed time, Unix milliseconds
	regs    map[directory.RID]*registration
	named   map[protocol.RecordName]*registration
	history map[directory.RID][]signed.Digest // of the mesh's stream
	private map[directory.Audience]map[directory.RID][]signed.Digest
	meant   map[protocol.RecordName]map[directory.Audience]bool // which streams ever named a record
	written map[directory.Hash]uint64                           // the revision of each statement
	keys    []signed.SigningKey
	formats map[signed.Structure]uint // that are in force; absent is 1
	revoked []string
	mesh    []spiffeid.TrustDomain
	seq     uint64
	changed chan struct{}
	made    uint64

	// rewrite makes of statements what a later release writes; nil leaves them.
	forge   func(*signed.Change) // what a domain with modified software says
	rewrite func([]byte) []byte
}

type registration struct {
	agent    string
	owner    string // path of the identity; empty for /agent/ada
	document directory.Document
	since    int64
	lifetime uint32
	deadline int64 // the real one
	alive    bool
	change   *signed.Change
	payload  []byte
	told           // to the mesh
	late     int64 // when it was last refreshed with less than the margin left, or exported
	private  map[directory.Audience]*told
}

// told is what one stream was told of a registration.
type told struct {
	exported  bool
	granted   []string // members of the document that the stream discloses; none for all of everything
	texts     []string
	announced signed.Digest
	max       int64 // the highest deadline ever announced
}

func newModel(td spiffeid.TrustDomain, mesh ...spiffeid.TrustDomain) *model {
	return &model{domain: td, epoch: uint64(time.Now().Unix()), start: time.Now, mesh: mesh,
		regs:  map[directory.RID]*registration{},
		named: map[protocol.RecordName]*registration{}, history: map[directory.RID][]signed.Digest{},
		private: map[directory.Audience]map[directory.RID][]signed.Digest{}, tips: map[directory.Audience]uint64{},
		meant: map[protocol.RecordName]map[directory.Audience]bool{}, written: map[directory.Hash]uint64{},
		changed: make(chan struct{}), seq: 1}
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

func (o *model) announce(rid directory.RID, r *registration, d signed.Digest) {
	o.announceTo(directory.Mesh, rid, r, d)
}

func (o *model) announceTo(aud directory.Audience, rid directory.RID, r *registration, d signed.Digest) {
	d.RID, d.Revision = rid, o.rev
	t := r.to(aud)
	t.announced, o.tips[aud] = d, o.rev

	o.named[protocol.NameOf(d)] = r
	if d.Live() {
		t.max = max(t.max, d.Deadline)
	}

	if o.meant[protocol.NameOf(d)] == nil {
		o.meant[protocol.NameOf(d)] = map[directory.Audience]bool{}
	}

	o.meant[protocol.NameOf(d)][aud] = true
	if aud == directory.Mesh {
		o.tip = o.rev
	}

	h := o.historyOf(aud)
	h[rid] = append(h[rid], d)
}

// to returns what that stream was told of r.
func (r *registration) to(aud directory.Audience) *told {
	if aud == directory.Mesh {
		return &r.told
	}

	if r.private[aud] == nil {
		if r.private == nil {
			r.private = map[directory.Audience]*told{}
		}

		r.private[aud] = &told{}
	}

	return r.private[aud]
}

// streams returns the streams that were ever told of r, the mesh's first.
func (r *registration) streams() []directory.Audience {
	return append([]directory.Audience{directory.Mesh},
		slices.SortedFunc(maps.Keys(r.private), func(a, b directory.Audience) int {
			return strings.Compare(a.String(), b.String())
		})...)
}

func (o *model) historyOf(aud directory.Audience) map[directory.RID][]signed.Digest {
	if aud == directory.Mesh {
		return o.history
	}

	if o.private[aud] == nil {
		o.private[aud] = map[directory.RID][]signed.Digest{}
	}

	return o.private[aud]
}

func (o *model) put(rid directory.RID, r *registration, t int64) {
	o.made++
	salt := signed.Salt(sha256.Sum256(fmt.Append(nil, o.domain, o.made)))

	change := &signed.Change{Issuer: o.domain, RID: rid, Op: signed.OpPut, Epoch: o.epoch, Revision: o.rev, IssuedAt: t,
		Since: r.since, Leaf: o.rev, Agent: r.agent,
		Owner:    directory.IdentityOf(spiffeid.RequireFromPath(o.domain, cmp.Or(r.owner, "/agent/ada"))),
		Document: r.document, Salt: salt}
	if o.forge != nil {
		o.forge(change)
	}

	ds := change.Disclosures()

	payload, err := signed.Statement(signed.StatementFormat, change, ds)
	if err != nil {
		panic(err)
	}

	if o.rewrite != nil {
		payload = o.rewrite(payload)
	}

	r.change, r.payload = change, payload
	o.written[directory.HashOf(payload)] = o.rev

	r.deadline = t + int64(r.lifetime) // T1; X1: the announced deadline is the real one
	for _, aud := range r.streams() {
		o.tell(aud, rid, r)
	}
}

// tell announces to a stream what it may have of r.
func (o *model) tell(aud directory.Audience, rid directory.RID, r *registration) {
	to := r.to(aud)

	var m directory.Hash
	grant := directory.Grant{Audience: aud, All: len(to.granted) == 0, Reg: []string{"agent", "kind"}, Doc: to.granted}

	to.texts, m = signed.Disclosed(r.change.Disclosures(), grant)
	if to.exported {
		o.announceTo(aud, rid, r, signed.Digest{Op: signed.OpPut, H: directory.HashOf(r.payload), M: m,
			Deadline: r.deadline, Lifetime: r.lifetime})
	}
}

// document returns an agent's document; every n is another one.
func document(n uint64) directory.Document {
	d, err := directory.ParseDocument(directory.KindAD,
		fmt.Appendf(nil,
			`{"base":"https://agent.test/%d","description":"agent %d","protocols":["https"],`+
				`"capabilities":[{"name":"work","type":"tool"}],"note":"note %d"}`, n, n, n))
	if err != nil {
		panic(err)
	}

	return d
}

// registers registers that many agents.
func (o *model) registers(n int, lifetime uint32) (rids []directory.RID) {
	for i := range n {
		rids = append(rids, o.register(fmt.Sprint("agent-", i), lifetime))
	}

	return rids
}

func (o *model) register(agent string, lifetime uint32) (rid directory.RID) {
	return o.registerDocument(agent, lifetime, document)
}

// registerDocument registers the document that one returns for the number of the registration.
func (o *model) registerDocument(agent string, lifetime uint32,
	one func(n uint64) directory.Document) (rid directory.RID) {
	o.do(func(t int64) {
		o.rev++
		o.made++
		rid = ridOf(o.domain, o.made)
		r := &registration{agent: agent, document: one(o.made), since: t, late: t, lifetime: lifetime,
			alive: true, told: told{exported: true}}
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
		for _, aud := range r.streams() {
			if d := r.to(aud).announced; r.to(aud).exported && r.deadline < d.Deadline {
				d.Op = signed.OpRenew
				d.Deadline = r.deadline
				d.Lifetime = lifetime
				o.announceTo(aud, rid, r, d)
			}
		}
	})
}

func (o *model) remove(rid directory.RID) {
	o.with(rid, func(r *registration, _ int64) { o.end(rid, r) })
}

func (o *model) end(rid directory.RID, r *registration) {
	r.alive = false
	for _, aud := range r.streams() {
		if r.to(aud).announced.Live() {
			o.announceTo(aud, rid, r, signed.Digest{Op: signed.OpEnd, H: directory.HashOf(fmt.Append(nil, "end", rid))})
		}
	}
}

// export puts a registration into the mesh's stream or takes it out.
func (o *model) export(rid directory.RID, yes bool) {
	o.grant(rid, directory.Mesh, yes)
}

// grant lets a stream have these members of a registration's document, all where
// none is named, or nothing of it any more.
func (o *model) grant(rid directory.RID, aud directory.Audience, yes bool, members ...string) {
	o.with(rid, func(r *registration, _ int64) {
		to := r.to(aud)
		if to.exported == yes && (!yes || slices.Equal(to.granted, members)) {
			return
		}

		if to.exported, to.granted = yes, members; !yes {
			o.announceTo(aud, rid, r, signed.Digest{Op: signed.OpDrop})
			return
		}

		o.tell(aud, rid, r)
	})
}

// sweep ends what has expired (X3), announces later deadlines in time (X2) and
// frees what no receiver can hold any more (G4).
func (o *model) sweep() {
	o.do(func(t int64) {
		for _, rid := range slices.SortedFunc(maps.Keys(o.regs), directory.RID.Compare) {
			r := o.regs[rid]

			highest, due := r.max, false
			for _, aud := range r.streams() {
				to := r.to(aud)
				highest = max(highest, to.max)
				due = due || o.due(r, to, t)
			}

			switch {
			case r.alive && r.deadline <= t:
				o.rev++

				r.alive = false
				for _, aud := range r.streams() {
					if to := r.to(aud); to.max > r.deadline && to.announced.Live() {
						o.announceTo(aud, rid, r,
							signed.Digest{Op: signed.OpEnd, H: directory.HashOf(fmt.Append(nil, "end", rid))})
					}
				}
			case due:
				o.rev++
				for _, aud := range r.streams() {
					if to := r.to(aud); o.due(r, to, t) {
						d := to.announced
						d.Op = signed.OpRenew
						d.Deadline = r.deadline
						d.Lifetime = r.lifetime
						o.announceTo(aud, rid, r, d)
					}
				}
			case !r.alive && highest+int64(directory.Skew/time.Second) <= t:
				delete(o.regs, rid)
			}
		}
	})
}

// due reports whether a stream must be told of a later deadline at t (X2).
func (o *model) due(r *registration, to *told, t int64) bool {
	d := to.announced
	return r.alive && d.Live() && r.deadline > d.Deadline && d.Deadline-t <= directory.AnnounceBefore(r.lifetime)
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

func (o *model) Digests(aud directory.Audience, since uint64, limit int) (ds []signed.Digest, to, at uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()

	for _, r := range o.regs {
		if slices.Contains(r.streams(), aud) && r.to(aud).announced.Revision > since {
			ds = append(ds, r.to(aud).announced)
		}
	}

	slices.SortFunc(ds, func(a, b signed.Digest) int { return int(a.Revision) - int(b.Revision) })

	if len(ds) > limit {
		return ds[:limit], ds[limit-1].Revision, o.rev
	}

	return ds, o.rev, o.rev
}

func (o *model) Tip(aud directory.Audience) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.tips[aud]
}

func (o *model) Record(aud directory.Audience, h, m directory.Hash) ([]byte, []string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	r := o.named[protocol.RecordName{H: h, M: m}]
	if r == nil || !slices.Contains(r.streams(), aud) || !r.to(aud).announced.Live() ||
		protocol.NameOf(r.to(aud).announced) != (protocol.RecordName{H: h, M: m}) {
		return nil, nil, false
	}

	return r.payload, r.to(aud).texts, true
}

func (o *model) Current(rid directory.RID, aud directory.Audience) (signed.Digest, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	r := o.regs[rid]
	if r == nil || !slices.Contains(r.streams(), aud) {
		return signed.Digest{}, false
	}

	return r.to(aud).announced, true
}

func (o *model) KeyDocument() *signed.KeyDocument {
	o.mu.Lock()
	defer o.mu.Unlock()

	return &signed.KeyDocument{Issuer: o.domain, Epoch: o.epoch, Seq: o.seq, Expires: o.start().Unix()/3600*3600 + 7200,
		Mesh: o.mesh, Revoked: o.revoked, Keys: o.keys}
}

func (o *model) Ledger() (uint64, directory.Hash) {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.rev + 1, directory.HashOf([]byte(o.domain.Name()))
}

func (o *model) IsLeader() bool { return true }

func (o *model) Format(structure signed.Structure) uint {
	o.mu.Lock()
	defer o.mu.Unlock()

	return max(o.formats[structure], 1)
}

// narrow withholds all but the members that a document must have: the same
// statement with fewer disclosures.
func (o *model) narrow(rid directory.RID) { o.grant(rid, directory.Mesh, true, required...) }

// required are the members that every stream discloses.
var required = []string{"base", "description", "protocols", "capabilities"}

// restore begins a new epoch in which every registration is unconfirmed, and
// returns the old epoch and its last revision.
func (o *model) restore() (epoch, rev uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	epoch, rev = o.epoch, o.rev
	o.epoch += 10

	o.tip = 0
	for _, r := range o.regs {
		r.told, r.private = told{}, nil
	}

	clear(o.tips)

	return epoch, rev
}

// listKeys issues a key document with these keys and revoked ones.
func (o *model) listKeys(revoked []string, rings ...*keyring) {
	o.do(func(int64) {
		o.rev++
		o.seq = o.rev
		o.revoked = revoked

		o.keys = nil
		for i, k := range rings {
			o.keys = append(o.keys, signed.SigningKey{Public: k.public(), Node: nodeID(o.domain, i+1)})
		}
	})
}

// listTo has the mesh's stream go to other domains.
func (o *model) listTo(mesh ...spiffeid.TrustDomain) {
	o.do(func(int64) {
		o.rev++
		o.seq, o.mesh = o.rev, mesh
	})
}

// spoil announces a registration with a document that no registrant may write.
func (o *model) spoil(rid directory.RID, document string) {
	o.with(rid, func(r *registration, t int64) {
		r.document = directory.LoadDocument(directory.KindAD, []byte(document))
		o.put(rid, r, t)
	})
}
