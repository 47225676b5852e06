package mesh

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiwire "github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust"
)

// A Liar replaces all nodes of a domain. It has the first node's name, SVID and signing
// key, and announces to each peer whatever the story chooses.
type Liar struct {
	Doc  *signed.KeyDocument
	Last *signed.Page // the true announcements; the lies continue from there

	m      *Mesh
	node   *Node
	source *trust.Source // with the node's SVID of then
	ring   *trust.Keyring
	srv    *http.Server

	serving sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	changed chan struct{}
	pages   map[string][]signed.Digest // by peer or its node: one digest per revision after Last
	alone   map[string][]signed.Digest // by node of a peer: its private stream
	docs    map[string]*signed.KeyDocument
	files   map[string]map[string]string // by peer, and by path: of a ledger
	bundle  []byte                       // at the bundle endpoint; nil for none
}

// Corrupt replaces a domain's nodes.
func (m *Mesh) Corrupt(name string) *Liar {
	m.T.Helper()
	n := m.Domain(name).Nodes[0]
	liar := &Liar{
		m:       m,
		node:    n,
		source:  trust.NewSource(n.source.SVID()),
		changed: make(chan struct{}),
		pages:   map[string][]signed.Digest{},
		alone:   map[string][]signed.Digest{},
		docs:    map[string]*signed.KeyDocument{},
		files:   map[string]map[string]string{},
	}

	var err error
	_, payload := liar.truth("/federation/v1/keys?origin=" + name)
	liar.Doc, err = signed.ParseKeyDocument(payload)
	m.must(err)
	_, payload = liar.truth("/federation/v1/pages?aud=mesh&since=0&origin=" + name)
	liar.Last, err = signed.ParsePage(payload)
	m.must(err)

	m.Domain(name).Kill()
	n.ending.Wait()
	key, err := trust.OpenKey(n.cfg.Data)
	m.must(err)
	liar.ring = trust.NewKeyring(n.Domain.td, key, m.bundles)
	m.Net.Revive(n.host)
	ln, err := m.Net.Listen(net.JoinHostPort(n.host, "8400"))
	m.must(err)
	liar.srv = &http.Server{Handler: liar, TLSConfig: trust.ServerTLS(liar.source, m.bundles, func(string) {}),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}

	liar.serving.Go(func() { _ = liar.srv.ServeTLS(ln, "", "") })
	m.T.Cleanup(liar.Leave)

	return liar
}

// Leave ends the liar: the domain's nodes may be restarted.
func (l *Liar) Leave() {
	_ = l.srv.Close()
	l.serving.Wait()
}

// Steal makes the liar a thief's: it has an SVID of the stolen authority in the place of the node's.
func (l *Liar) Steal(thief *Thief) {
	l.m.T.Helper()
	l.source.Set(thief.source(trust.NodePath + "1").SVID())
}

// Publish answers requests of peers for the domain's bundle.
func (l *Liar) Publish(bundle []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bundle = bundle
}

// truth asks the node as another domain's node would.
func (l *Liar) truth(path string) (text string, payload []byte) {
	l.m.T.Helper()

	asker := l.m.Domains[0].Nodes[0]
	if asker.Domain == l.node.Domain {
		asker = l.m.Domains[1].Nodes[0]
	}

	res, err := asker.asNode(l.node).Get(l.node.URL() + path)
	l.m.must(err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	l.m.must(err)

	if res.StatusCode != http.StatusOK {
		l.m.T.Fatalf("%s: %s: %s", path, res.Status, data)
	}

	return string(data), payloadOf(l.m.environment, string(data))
}

func payloadOf(env *environment, jws string) []byte {
	first, last := 0, 0
	for i, c := range jws {
		if c == '.' && first == 0 {
			first = i + 1
		}

		if c == '.' {
			last = i
		}
	}

	payload, err := directory.B64.DecodeString(jws[first:last])
	env.must(err)

	return payload
}

// Say announces a digest to one peer, or to one node of it (beta.test/2), as the
// revision after that peer's last one.
func (l *Liar) Say(peer string, d signed.Digest) { l.say(l.pages, peer, d) }

// SayAlone announces a digest to one node of a peer (beta.test/2), as if it were for
// that peer alone.
func (l *Liar) SayAlone(node string, d signed.Digest) { l.say(l.alone, node, d) }

func (l *Liar) say(said map[string][]signed.Digest, to string, digest signed.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	said[to] = append(said[to], digest)
	close(l.changed)
	l.changed = make(chan struct{})
}

// Issue gives one peer a key document.
func (l *Liar) Issue(peer string, doc *signed.KeyDocument) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.docs[peer] = doc
}

// Show shows one peer other files, by their paths.
func (l *Liar) Show(peer string, files map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files[peer] = files
}

func (l *Liar) file(peer, path string) (text string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, ok = l.files[peer][path]

	return text, ok
}

func (l *Liar) docFor(peer string) *signed.KeyDocument {
	l.mu.Lock()
	defer l.mu.Unlock()

	if doc := l.docs[peer]; doc != nil {
		return doc
	}

	return l.Doc
}

// Rotate has the liar sign with a key of its own from now on, which its next key
// document lists in the place of all others, and revokes those keys.
func (l *Liar) Rotate(revoked ...string) {
	l.m.T.Helper()
	key, err := trust.OpenKey(l.m.T.TempDir())
	l.m.must(err)
	svid := l.source.SVID()
	attestation, err := key.Attest(svid, time.Now())
	l.m.must(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	doc := *l.Doc
	doc.Seq += 200
	doc.Revoked = revoked
	doc.Keys = []signed.SigningKey{{Public: key.Public(), Node: svid.ID, Attestations: []string{attestation}}}
	l.Doc = &doc
	clear(l.docs)
	l.ring.SetKey(key)
}

// ServeHTTP answers a peer's node.
func (l *Liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == apiwire.BundlePath {
		l.mu.Lock()
		defer l.mu.Unlock()

		_, _ = w.Write(l.bundle)

		return
	}

	id, ok := trust.PeerID(r.TLS)
	if !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}

	peer := asker{id.TrustDomain().Name(), id.TrustDomain().
		Name() + strings.TrimPrefix(id.Path(), strings.TrimSuffix(trust.NodePath, "/"))}
	switch values := r.URL.Query(); r.URL.Path {
	case "/federation/v1/keys":
		l.answer(w, signed.TypeKeys, l.docFor(peer.domain).Payload())
	case "/federation/v1/heads":
		tip := l.Last.To
		if p := l.page(peer, directory.Mesh.String(), 0); p != nil {
			tip = p.At
		}

		h := &signed.Head{Issuer: l.node.Domain.td, Epoch: l.Last.Epoch, Tip: tip, At: tip,
			Keys: directory.HashOf(l.docFor(peer.domain).Payload()), IssuedAt: time.Now().Unix()}
		l.answer(w, signed.TypeHead, h.Payload())
	case "/federation/v1/pages":
		since, _ := strconv.ParseUint(values.Get("since"), 10, 64)
		wait, _ := time.ParseDuration(values.Get("wait"))
		l.awaitPage(w, r, peer, values.Get("aud"), since, wait)
	default:
		text, ok := l.file(peer.domain, r.URL.Path)
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}

		_, _ = io.WriteString(w, text)
	}
}

func (l *Liar) awaitPage(w http.ResponseWriter, r *http.Request, peer asker, aud string, since uint64,
	wait time.Duration) {
	end := time.NewTimer(wait)
	defer end.Stop()

	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()

		if p := l.page(peer, aud, since); p != nil {
			l.answer(w, signed.TypePage, p.Payload())
			return
		}

		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-end.C:
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
}

// An asker is a node of a peer that asks.
type asker struct{ domain, node string }

// page returns the page for a peer after a revision; nil if there is nothing new.
func (l *Liar) page(peer asker, aud string, since uint64) *signed.Page {
	l.mu.Lock()
	defer l.mu.Unlock()
	signedPage := *l.Last
	signedPage.From, signedPage.IssuedAt, signedPage.Digests = since, time.Now().Unix(), nil

	all := slices.Concat(l.Last.Digests, l.pages[peer.domain], l.pages[peer.node])
	if aud != directory.Mesh.String() {
		signedPage.Audience = directory.Only(spiffeid.RequireTrustDomainFromString(peer.domain))
		all = l.alone[peer.node]
	}

	for _, digest := range all {
		if digest.Revision > since {
			signedPage.Digests = append(signedPage.Digests, digest)
		}

		signedPage.At = max(signedPage.At, digest.Revision)
	}

	if signedPage.To = signedPage.At; signedPage.To <= since || aud != directory.Mesh.String() &&
		len(signedPage.Digests) == 0 {
		return nil
	}

	return &signedPage
}

func (l *Liar) answer(w http.ResponseWriter, typ string, payload []byte) {
	jws, err := l.ring.Sign(typ, payload)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}

	w.Header().Set("Content-Type", "application/jose")
	_, _ = io.WriteString(w, jws)
}
