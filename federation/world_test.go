package federation

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var (
	alpha = spiffeid.RequireTrustDomainFromString("alpha.test")
	beta  = spiffeid.RequireTrustDomainFromString("beta.test")
	gamma = spiffeid.RequireTrustDomainFromString("gamma.test")
)

func nodeID(td spiffeid.TrustDomain, n int) spiffeid.ID {
	return spiffeid.RequireFromPathf(td, "/roster/node/%d", n)
}

// A keyring stands for package trust, which this package may not import: one
// Ed25519 key, JWS made by hand, and key documents without attestations.
type keyring struct {
	domain  spiffeid.TrustDomain
	private ed25519.PrivateKey
	source  *model

	mu       sync.Mutex
	adopted  map[spiffeid.TrustDomain]adoptedKeys
	verified map[string]verified
}

type adoptedKeys struct {
	doc  *directory.KeyDocument
	text string
}

func newKeyring(domain spiffeid.TrustDomain, seed string, source *model) *keyring {
	s := sha256.Sum256([]byte(seed))
	return &keyring{domain: domain, private: ed25519.NewKeyFromSeed(s[:]), source: source, adopted: map[spiffeid.TrustDomain]adoptedKeys{}, verified: map[string]verified{}}
}

func (k *keyring) public() ed25519.PublicKey { return k.private.Public().(ed25519.PublicKey) }

func sign(private ed25519.PrivateKey, header string, payload []byte) string {
	text := directory.B64.EncodeToString([]byte(header)) + "." + directory.B64.EncodeToString(payload)
	return text + "." + directory.B64.EncodeToString(ed25519.Sign(private, []byte(text)))
}

func headerOf(typ, kid string) string {
	return `{"alg":"EdDSA","typ":"` + typ + `","kid":"` + kid + `"}`
}

func (k *keyring) Sign(typ string, payload []byte) (string, error) {
	return sign(k.private, headerOf(typ, directory.KeyID(k.public())), payload), nil
}

func (k *keyring) Verify(origin spiffeid.TrustDomain, typ, text string) ([]byte, string, error) {
	doc, _, ok := k.Keys(origin)
	if !ok {
		return nil, "", directory.ErrKeyUnknown
	}
	k.mu.Lock()
	v, ok := k.verified[text]
	k.mu.Unlock()
	if ok && v.issue == issueOf(doc) && v.typ == typ { // a replay; only the arithmetic is saved
		return v.payload, v.kid, nil
	}
	payload, kid, err := verifyBy(doc, typ, text)
	if err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.verified[text] = verified{issueOf(doc), typ, kid, payload}
	}
	return payload, kid, err
}

type verified struct {
	issue   directory.Position
	typ     string
	kid     string
	payload []byte
}

func verifyBy(doc *directory.KeyDocument, typ, text string) ([]byte, string, error) {
	parts, err := splitJWS(text)
	if err != nil {
		return nil, "", directory.ErrSignature
	}
	kid, ok := bytes.CutPrefix(parts.header, []byte(`{"alg":"EdDSA","typ":"`+typ+`","kid":"`))
	if kid, ok = bytes.CutSuffix(kid, []byte(`"}`)); !ok {
		return nil, "", directory.ErrHeader
	}
	key, err := doc.Key(string(kid))
	if err != nil {
		return nil, "", err
	}
	dot := len(text) - directory.B64.EncodedLen(64)
	signature, _ := directory.B64.DecodeString(text[dot:])
	if !ed25519.Verify(key.Public, []byte(text[:dot-1]), signature) {
		return nil, "", directory.ErrSignature
	}
	return parts.payload, string(kid), nil
}

func (k *keyring) Adopt(origin spiffeid.TrustDomain, text string) (*directory.KeyDocument, error) {
	parts, err := splitJWS(text)
	if err != nil {
		return nil, err
	}
	doc, err := directory.ParseKeyDocument(parts.payload)
	if err != nil || doc.Issuer != origin {
		return nil, errors.New("not a key document of that origin")
	}
	if _, _, err := verifyBy(doc, directory.TypeKeys, text); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.adopted[origin].doc; old != nil && issueOf(doc).Before(issueOf(old)) {
		return nil, errors.New("an old key document")
	}
	k.adopted[origin] = adoptedKeys{doc, text}
	return doc, nil
}

func (k *keyring) Keys(origin spiffeid.TrustDomain) (*directory.KeyDocument, string, bool) {
	if origin == k.domain {
		doc := k.source.KeyDocument()
		text, _ := k.Sign(directory.TypeKeys, doc.Payload())
		return doc, text, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	a, ok := k.adopted[origin]
	return a.doc, a.text, ok
}

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
	since     int64
	lifetime  uint32
	deadline  int64 // the real one
	alive     bool
	exported  bool
	payload   []byte
	texts     []string
	announced directory.Digest
	max       int64 // the highest deadline ever announced
	late      int64 // when it was last refreshed with less than the margin left, or exported
}

func newModel(td spiffeid.TrustDomain, mesh ...spiffeid.TrustDomain) *model {
	return &model{domain: td, epoch: uint64(time.Now().Unix()), start: time.Now, mesh: mesh, regs: map[directory.RID]*registration{},
		history: map[directory.RID][]directory.Digest{}, changed: make(chan struct{}), seq: 1}
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
	r.payload = payload
	r.texts, m = directory.Disclosed(ds, directory.Grant{Audience: directory.Mesh, All: true})
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

func (o *model) Record(_ directory.Audience, h, m directory.Hash) ([]byte, []string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.regs {
		if d := r.announced; d.Live() && d.H == h && d.M == m {
			return r.payload, r.texts, true
		}
	}
	return nil, nil, false
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

// A site is one node in a test: a Mesh with what stands around it.
type site struct {
	*Mesh
	cfg  Config
	view *directory.View
	keys *keyring
	self *model
	base string
	http http.Handler
}

// A world has the nodes of a test and carries requests between them by calling
// their handlers, unless they are cut off from each other.
type world struct {
	mu    sync.Mutex
	sites map[string]*site // by base URL
	cut   func(from, to string) bool
	tap   func(to string, r *http.Request, body []byte) []byte // may change an answer
	carry http.RoundTripper                                    // nil calls handlers directly
}

func newWorld() *world { return &world{sites: map[string]*site{}} }

const callerHeader = "X-Test-Caller"

// open opens a node of the origin self, whose peers are the others.
func (w *world) open(t testing.TB, dir string, n int, self *model, peers ...directory.Peering) *site {
	t.Helper()
	s := &site{self: self, keys: newKeyring(self.domain, fmt.Sprint(self.domain, n), self), base: fmt.Sprintf("https://%s-%d.test", self.domain, n)}
	s.cfg = Config{Domain: self.domain, Node: nodeID(self.domain, n), Dir: dir, Source: self, Keys: s.keys,
		Peerings: func() []directory.Peering { return peers }, noSync: true, Logger: slog.New(slog.DiscardHandler)}
	s.cfg.Client = func(spiffeid.TrustDomain) *http.Client {
		return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) { return w.roundTrip(s, r) })}
	}
	s.reopen(t)
	t.Cleanup(func() { _ = s.Close() })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sites[s.base] = s
	return s
}

// reopen starts the node, or starts it again from its disk with empty memory.
func (s *site) reopen(t testing.TB) {
	t.Helper()
	if s.Mesh != nil {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.view = directory.NewView(s.self.domain)
	s.keys = &keyring{domain: s.keys.domain, private: s.keys.private, source: s.keys.source, adopted: map[spiffeid.TrustDomain]adoptedKeys{}, verified: map[string]verified{}}
	s.cfg.View, s.cfg.Keys = s.view, s.keys
	m, err := Open(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Mesh = m
	s.http = m.Handler(func(r *http.Request) (spiffeid.ID, bool) {
		id, err := spiffeid.FromString(r.Header.Get(callerHeader))
		return id, err == nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var errCut = errors.New("cut off")

func (w *world) roundTrip(from *site, r *http.Request) (*http.Response, error) {
	base := r.URL.Scheme + "://" + r.URL.Host
	w.mu.Lock()
	to, cut, tap := w.sites[base], w.cut, w.tap
	w.mu.Unlock()
	if to == nil || cut != nil && cut(from.base, to.base) {
		return nil, errCut
	}
	r = r.Clone(r.Context())
	r.Header.Set(callerHeader, from.cfg.Node.String())
	if w.carry != nil {
		return w.carry.RoundTrip(r)
	}
	rec := httptest.NewRecorder()
	to.http.ServeHTTP(rec, r)
	res := rec.Result()
	if tap != nil {
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return nil, err
		}
		res.Body = io.NopCloser(bytes.NewReader(tap(base, r, body)))
	}
	return res, nil
}

// active is the peering with a domain's nodes.
func active(td spiffeid.TrustDomain, nodes ...int) directory.Peering {
	p := directory.Peering{Domain: td, State: directory.PeeringActive, Mesh: true}
	for _, n := range nodes {
		p.Addresses = append(p.Addresses, fmt.Sprintf("https://%s-%d.test", td, n))
	}
	return p
}

// shown returns what a node answers of an origin, by rid.
func (s *site) shown(td spiffeid.TrustDomain) map[directory.RID]*directory.Entry {
	out := map[directory.RID]*directory.Entry{}
	for e := range s.view.Origin(td).All() {
		if alive, ok := s.view.Get(td, e.RID); ok {
			out[e.RID] = alive
		}
	}
	return out
}
