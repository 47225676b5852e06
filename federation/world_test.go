package federation

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

var (
	alpha = spiffeid.RequireTrustDomainFromString("alpha.test")
	beta  = spiffeid.RequireTrustDomainFromString("beta.test")
	gamma = spiffeid.RequireTrustDomainFromString("gamma.test")
	delta = spiffeid.RequireTrustDomainFromString("delta.test")
)

func nodeID(td spiffeid.TrustDomain, n int) spiffeid.ID {
	return spiffeid.RequireFromPathf(td, "/roster/node/%d", n)
}

// A keyring stands for package trust, which this package may not import: one
// Ed25519 key, JWS made by hand, and key documents without attestations.
type keyring struct {
	domain  spiffeid.TrustDomain
	private ed25519.PrivateKey
	scheme  scheme
	source  *model

	mu       sync.Mutex
	adopted  map[spiffeid.TrustDomain]adoptedKeys
	verified map[string]verified

	// asked is called before a key document is returned; nil does nothing.
	asked func()

	// rewrite makes of what is signed what a later release signs; nil leaves it.
	rewrite func(typ string, payload []byte) []byte
}

// A scheme signs and verifies.
type scheme struct {
	sign   func(ed25519.PrivateKey, []byte) []byte
	verify func(public ed25519.PublicKey, message, signature []byte) bool
}

// signatures is the real one. sums is for tests that make a million messages and
// forge none: whoever knows the public key could, and it costs a hundredth.
var (
	signatures = scheme{ed25519.Sign, ed25519.Verify}
	sums       = scheme{
		func(private ed25519.PrivateKey, message []byte) []byte {
			return sumOf(private.Public().(ed25519.PublicKey), message)
		},
		func(public ed25519.PublicKey, message, signature []byte) bool {
			return bytes.Equal(sumOf(public, message), signature)
		},
	}
)

func sumOf(public ed25519.PublicKey, message []byte) []byte {
	h := sha512.New()
	h.Write(public)
	h.Write(message)

	return h.Sum(nil)
}

type adoptedKeys struct {
	doc  *signed.KeyDocument
	text string
}

func newKeyring(domain spiffeid.TrustDomain, seed string, source *model) *keyring {
	s := sha256.Sum256([]byte(seed))

	return &keyring{domain: domain, private: ed25519.NewKeyFromSeed(s[:]), scheme: signatures, source: source,
		adopted: map[spiffeid.TrustDomain]adoptedKeys{}, verified: map[string]verified{}}
}

func (k *keyring) public() ed25519.PublicKey { return k.private.Public().(ed25519.PublicKey) }

func sign(private ed25519.PrivateKey, header string, payload []byte) string {
	return signatures.jws(private, header, payload)
}

func (s scheme) jws(private ed25519.PrivateKey, header string, payload []byte) string {
	text := directory.B64.EncodeToString([]byte(header)) + "." + directory.B64.EncodeToString(payload)
	return text + "." + directory.B64.EncodeToString(s.sign(private, []byte(text)))
}

func headerOf(typ, kid string) string {
	return `{"alg":"EdDSA","typ":"` + typ + `","kid":"` + kid + `"}`
}

func (k *keyring) Sign(typ string, payload []byte) (string, error) {
	if k.rewrite != nil {
		payload = k.rewrite(typ, payload)
	}

	return k.scheme.jws(k.private, headerOf(typ, signed.KeyID(k.public())), payload), nil
}

func (k *keyring) Verify(origin spiffeid.TrustDomain, typ, text string) ([]byte, string, error) {
	doc, _, ok := k.Keys(origin)
	if !ok {
		return nil, "", signed.ErrKeyUnknown
	}

	k.mu.Lock()
	v, ok := k.verified[text]
	k.mu.Unlock()

	if ok && v.issue == protocol.Issue(doc) && v.typ == typ { // a replay; only the arithmetic is saved
		return v.payload, v.kid, nil
	}

	payload, kid, err := k.scheme.verifyBy(doc, typ, text)
	if err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.verified[text] = verified{protocol.Issue(doc), typ, kid, payload}
	}

	return payload, kid, err
}

type verified struct {
	issue   directory.Position
	typ     string
	kid     string
	payload []byte
}

func verifyBy(doc *signed.KeyDocument, typ, text string) ([]byte, string, error) {
	return signatures.verifyBy(doc, typ, text)
}

func (s scheme) verifyBy(doc *signed.KeyDocument, typ, text string) ([]byte, string, error) {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return nil, "", signed.ErrSignature
	}

	kid, ok1 := bytes.CutPrefix(parts.Header, []byte(`{"alg":"EdDSA","typ":"`+typ+`","kid":"`))

	kid, ok2 := bytes.CutSuffix(kid, []byte(`"}`))
	if !ok1 || !ok2 {
		return nil, "", signed.ErrHeader
	}

	key, err := doc.Key(string(kid))
	if err != nil {
		return nil, "", err
	}

	dot := len(text) - directory.B64.EncodedLen(64)

	signature, _ := directory.B64.DecodeString(text[dot:])
	if !s.verify(key.Public, []byte(text[:dot-1]), signature) {
		return nil, "", signed.ErrSignature
	}

	return parts.Payload, string(kid), nil
}

// open verifies a key document by its own keys.
func (k *keyring) open(origin spiffeid.TrustDomain, text string) (*signed.KeyDocument, error) {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return nil, err
	}

	doc, err := signed.ParseKeyDocument(parts.Payload)
	if err != nil || doc.Issuer != origin {
		return nil, errors.New("not a key document of that origin")
	}

	_, _, err = k.scheme.verifyBy(doc, signed.TypeKeys, text)

	return doc, err
}

// VerifyBy implements Keyring.
func (k *keyring) VerifyBy(origin spiffeid.TrustDomain, document, typ, text string) (*signed.KeyDocument, []byte,
	signed.SigningKey, error) {
	doc, err := k.open(origin, document)
	if err != nil {
		return nil, nil, signed.SigningKey{}, err
	}

	payload, kid, err := k.scheme.verifyBy(doc, typ, text)
	if err != nil {
		return nil, nil, signed.SigningKey{}, err
	}

	key, err := doc.Key(kid)

	return doc, payload, key, err
}

// Replace implements Keyring.
func (k *keyring) Replace(origin spiffeid.TrustDomain, text string) error {
	doc, err := k.open(origin, text)
	if err != nil {
		return err
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	k.adopted[origin] = adoptedKeys{doc, text}

	return nil
}

func (k *keyring) Adopt(origin spiffeid.TrustDomain, text string) (*signed.KeyDocument, error) {
	doc, err := k.open(origin, text)
	if err != nil {
		return nil, err
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	if old := k.adopted[origin]; old.doc != nil {
		switch {
		case protocol.Issue(doc).Before(protocol.Issue(old.doc)):
			return nil, errors.New("an old key document")
		// a model's expiry is always of now
		case protocol.Issue(doc) == protocol.Issue(old.doc) && !reflect.DeepEqual(doc.Keys, old.doc.Keys):
			return nil, fork{old.text, text}
		}
	}

	k.adopted[origin] = adoptedKeys{doc, text}

	return doc, nil
}

// A fork is two key documents of one issue.
type fork [2]string

func (f fork) Error() string         { return "two key documents of one epoch and seq" }
func (f fork) Forked() (_, _ string) { return f[0], f[1] }

// Certifies implements Keyring: the keys of these tests have no authority.
func (k *keyring) Certifies(spiffeid.TrustDomain, signed.SigningKey) bool { return true }

func (k *keyring) Keys(origin spiffeid.TrustDomain) (*signed.KeyDocument, string, bool) {
	if k.asked != nil {
		k.asked()
	}

	if origin == k.domain {
		doc := k.source.KeyDocument()
		text, _ := k.Sign(signed.TypeKeys, doc.Payload())

		return doc, text, true
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	a, ok := k.adopted[origin]

	return a.doc, a.text, ok
}

// A site is one node in a test: a Mesh with what stands around it.
type site struct {
	*Mesh
	cfg  Config
	view *index.View
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

	frozen func(to string) bool                    // the node neither answers nor pings
	hold   func(r *http.Request, ping func()) bool // answers instead of handlers, if it returns true
	mute   bool                                    // nodes send no interim responses

	scheme scheme // of the keyrings of nodes that are opened from now on
}

func newWorld() *world { return &world{sites: map[string]*site{}, scheme: signatures} }

const callerHeader = "X-Test-Caller"

// open opens a node of the origin self, whose peers are the others.
func (w *world) open(t testing.TB, dir string, n int, self *model, peers ...directory.Peering) *site {
	t.Helper()
	ring := newKeyring(self.domain, fmt.Sprint(self.domain, n), self)
	ring.scheme = w.scheme
	s := &site{self: self, keys: ring, base: fmt.Sprintf("https://%s-%d.test", self.domain, n)}
	s.cfg = Config{Domain: self.domain, Node: nodeID(self.domain, n), Dir: dir, Source: self, Keys: s.keys,
		Peerings: func() []directory.Peering { return peers }, noSync: true, Logger: slog.New(slog.DiscardHandler),
		Inside:  func(id directory.Identity) bool { return id.MemberOf(self.domain) },
		Doubted: func(spiffeid.TrustDomain, replica.Doubtful) {}, Cosigned: func(string) string { return "" },
		Siblings: func() []string { return nil }, Member: func(spiffeid.ID) bool { return true },
		Verifier:    &indifferent{},
		MemoryInUse: func() float64 { return 0 }}
	s.cfg.Client = func(spiffeid.TrustDomain) *http.Client {
		return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return w.roundTrip(s, r)
		})}
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
		must(t, s.Close())
	}

	s.view = index.NewView(s.self.domain)
	s.keys = &keyring{domain: s.keys.domain, private: s.keys.private, scheme: s.keys.scheme, source: s.keys.source,
		adopted: map[spiffeid.TrustDomain]adoptedKeys{}, verified: s.keys.verified}
	s.cfg.View, s.cfg.Keys = s.view, s.keys

	m, err := Open(s.cfg)
	must(t, err)

	s.Mesh = m
	s.http = m.Handler(func(r *http.Request) (spiffeid.ID, bool) {
		id, err := spiffeid.FromString(r.Header.Get(callerHeader))
		return id, err == nil
	})
}

// cutOff cuts nodes off from each other, by their base URLs; nil joins all.
func (w *world) cutOff(cut func(from, to string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.cut = cut
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var errCut = errors.New("cut off")

func (w *world) roundTrip(from *site, r *http.Request) (*http.Response, error) {
	base := r.URL.Scheme + "://" + r.URL.Host
	w.mu.Lock()
	to := w.sites[base]
	cut := w.cut
	tap := w.tap
	w.mu.Unlock()

	if to == nil || cut != nil && cut(from.base, to.base) {
		return nil, errCut
	}

	r = r.Clone(r.Context())
	r.Header.Set(callerHeader, from.cfg.Node.String())

	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: secured{node: to.cfg.Node}})
	}

	if w.carry != nil {
		return w.carry.RoundTrip(r)
	}

	if tap != nil {
		r.Header.Del("Accept-Encoding") // it changes an answer as it reads
	}

	rec := httptest.NewRecorder()
	w.serve(to, &interim{rec, w, r}, r)

	res := rec.Result()
	if tap != nil {
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return nil, err
		}

		res.Body = io.NopCloser(bytes.NewReader(tap(base, r, body)))
	}

	if err := r.Context().Err(); err != nil {
		return nil, err
	}

	return res, nil
}

// secured is a connection on which a node has presented its certificate.
type secured struct {
	net.Conn
	node spiffeid.ID
}

func (s secured) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{PeerCertificates: []*x509.Certificate{{URIs: []*url.URL{s.node.URL()}}}}
}

// serve has a node answer, unless it is frozen or holds.
func (w *world) serve(to *site, rec *interim, r *http.Request) {
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()

	if hold != nil && hold(r, func() { rec.WriteHeader(http.StatusProcessing) }) {
		return
	}

	if !w.thaws(r) {
		return
	}

	to.http.ServeHTTP(rec, r)
	w.thaws(r)
}

// thaws waits until the node of a request is not frozen, and returns false if the request's
// context ends first.
func (w *world) thaws(r *http.Request) bool {
	for w.isFrozen(r) {
		if !wait(r.Context(), nil, 100*time.Millisecond) {
			return false
		}
	}

	return true
}

func (w *world) isFrozen(r *http.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.frozen != nil && w.frozen(r.URL.Scheme+"://"+r.URL.Host)
}

// An interim is a recorder that hands interim responses to the caller, as a connection does.
type interim struct {
	*httptest.ResponseRecorder
	world *world
	r     *http.Request
}

func (i *interim) WriteHeader(status int) {
	if status >= http.StatusOK {
		i.ResponseRecorder.WriteHeader(status)
		return
	}

	i.world.mu.Lock()
	mute := i.world.mute
	i.world.mu.Unlock()

	if mute || i.world.isFrozen(i.r) {
		return
	}

	if trace := httptrace.ContextClientTrace(i.r.Context()); trace != nil && trace.Got1xxResponse != nil {
		_ = trace.Got1xxResponse(status, textproto.MIMEHeader(i.Header()))
	}
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

// recordOf returns the text of a record that a node gives to the domain to; false if it gives no such
// record.
func (s *site) recordOf(origin, to spiffeid.TrustDomain, n protocol.RecordName) (string, bool, error) {
	for record, err := range s.holdings.recordsOf(origin, to, []protocol.RecordName{n}) {
		if err != nil || !record.found {
			return "", false, errors.Join(err, record.err)
		}

		return record.Text(), true, record.err
	}

	return "", false, errors.New("no result")
}

var must = directorytest.Must

// inBench runs a test in virtual time, with an origin and a domain that follows it.
func inBench(t *testing.T, test func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newBench(t, nil)) })
}

// eventually waits for a condition within a bubble's virtual time.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()

	for end := time.Now().Add(within); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}

		time.Sleep(10 * time.Millisecond)
	}
}

// run runs a node's loops until the test ends.
func (s *site) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	m := s.Mesh
	go func() { done <- m.Run(ctx) }()

	return func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
