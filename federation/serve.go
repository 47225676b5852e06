package federation

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/problem"
	disk "github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// The routes (federation.md, "Pages").
const (
	pathHeads   = "/federation/v1/heads"
	pathKeys    = "/federation/v1/keys"
	pathPages   = "/federation/v1/pages"
	pathRecords = "/federation/v1/records"

	// PathFarewell is where a node tells a peer's that its domain has ended the
	// peering.
	PathFarewell = "/federation/v1/farewell"
)

const (
	maxWait    = 60 * time.Second
	maxWaiters = 1024 // long polls at a time, of all peers together
	maxOfOne   = 128  // and of one domain, so that none keeps the others out
	maxReplies = 512  // pages and lists of records on their way at a time, likewise
	maxToOne   = 64
	nodePath   = "/roster/node/"

	// headerKeys says of an answer to a subscription which issue of the origin's key
	// document this node has, as DOMAIN=EPOCH.SEQ, where it is later than the caller's.
	headerKeys = "Roster-Keys"

	typeJOSE   = "application/jose"
	typeNDJSON = "application/x-ndjson"
)

// Handler returns the routes of /federation/v1. caller tells who was
// verified to make a request. Only nodes of the own domain and of active peers
// are answered; others get 403.
func (m *Mesh) Handler(caller func(*http.Request) (spiffeid.ID, bool)) http.Handler {
	s := &server{Mesh: m, caller: caller, polls: newTurns(m.cfg.Domain, maxWaiters, maxOfOne), replies: newTurns(m.cfg.Domain, maxReplies, maxToOne), shows: map[spiffeid.TrustDomain]*rate.Limiter{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathHeads, s.admit(s.heads))
	mux.HandleFunc("GET "+pathKeys, s.admit(s.keys))
	mux.HandleFunc("GET "+pathPages, s.admit(s.pages))
	mux.HandleFunc("POST "+pathRecords, s.admit(s.records))
	if m.cfg.Court != nil {
		mux.HandleFunc("POST "+pathEvidence, s.admit(s.evidence))
		mux.HandleFunc("GET "+pathEvidence, s.admit(s.heldEvidence))
	}
	if m.cfg.Farewell != nil {
		mux.HandleFunc("POST "+PathFarewell, s.admit(s.farewell))
	}
	return problem.Routes(mux, m.cfg.PublicURL)
}

type server struct {
	*Mesh
	caller func(*http.Request) (spiffeid.ID, bool)

	polls   *turns // that wait, and are answered
	replies *turns // of those that don't wait

	mu    sync.Mutex
	shows map[spiffeid.TrustDomain]*rate.Limiter // of evidence
}

// turns bound what goes on at a time: of all domains together, and of each other than
// the own, whose nodes ask for all streams at once after a loss. Who asks much and reads
// the answers slowly could else fill the memory with them.
type turns struct {
	own       spiffeid.TrustDomain
	all, each int

	mu    sync.Mutex
	taken int
	of    map[spiffeid.TrustDomain]int
}

func newTurns(own spiffeid.TrustDomain, all, each int) *turns {
	return &turns{own: own, all: all, each: each, of: map[spiffeid.TrustDomain]int{}}
}

// take takes one, if there is one left for that domain.
func (t *turns) take(td spiffeid.TrustDomain) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken >= t.all || td != t.own && t.of[td] >= t.each {
		return false
	}
	t.taken++
	t.of[td]++
	return true
}

func (t *turns) leave(td spiffeid.TrustDomain) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken--
	if t.of[td]--; t.of[td] == 0 {
		delete(t.of, td)
	}
}

// admit lets in whom federation is for: nodes of this domain and of its peers.
func (s *server) admit(next func(http.ResponseWriter, *http.Request, spiffeid.TrustDomain) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, ok := s.caller(r)
		if !ok || !isNode(id) || !s.speaksTo(id.TrustDomain()) {
			s.refuse(w, directory.Refuse(directory.Forbidden, "these routes are for nodes of this domain and of its active peers"))
			return
		}
		out := &metered{w, &s.traffic, id.TrustDomain()}
		err := s.cfg.Panics.Run(contain.Request, func() error { return next(out, r, id.TrustDomain()) })
		if err != nil {
			s.refuse(out, err)
		}
	}
}

// refuse answers with err's problem, and logs what the answer doesn't tell.
func (s *server) refuse(w http.ResponseWriter, err error) {
	problem.Write(w, s.cfg.PublicURL, err)
	if directory.ProblemOf(err) == directory.Internal {
		s.cfg.Logger.Error("request failed", "request_id", w.Header().Get(problem.HeaderRequestID), "err", err)
	}
}

// isNode reports whether id is a node's (trust.md, "Identities").
func isNode(id spiffeid.ID) bool {
	return len(id.Path()) > len(nodePath) && strings.HasPrefix(id.Path(), nodePath)
}

func (m *Mesh) speaksTo(td spiffeid.TrustDomain) bool {
	if td == m.cfg.Domain {
		return true
	}
	o := m.origin(td)
	return o != nil && o.accepts()
}

// lists reports whether a domain may have the mesh stream of origin, which the
// origin's own key document says.
func (m *Mesh) lists(origin, td spiffeid.TrustDomain) bool {
	if td == m.cfg.Domain || td == origin {
		return true
	}
	var doc *directory.KeyDocument
	if origin == m.cfg.Domain {
		doc = m.cfg.Source.KeyDocument()
	} else {
		doc, _, _ = m.cfg.Keys.Keys(origin)
	}
	if doc == nil {
		return false
	}
	for _, listed := range doc.Mesh {
		if listed == td {
			return true
		}
	}
	return false
}

var errNotListed = directory.Refuse(directory.Forbidden, "the origin's key document doesn't list your domain for this stream")

var errTurns = directory.Refuse(directory.Unavailable, "your domain has too many answers of this node under way, or all domains together do")

func originOf(q url.Values) (spiffeid.TrustDomain, error) {
	td, err := spiffeid.TrustDomainFromString(q.Get("origin"))
	if err != nil || td.Name() != q.Get("origin") {
		return td, directory.Refuse(directory.BadQuery, "origin is %q; it is a domain's name", q.Get("origin"))
	}
	return td, nil
}

func (s *server) heads(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	origin, err := originOf(r.URL.Query())
	if err != nil {
		return err
	}
	if !s.lists(origin, from) {
		return errNotListed
	}
	if origin == s.cfg.Domain {
		text, err := s.publisher.head()
		return jose(w, text, err)
	}
	var text string
	if o := s.origin(origin); o != nil {
		text = o.newestHead()
	}
	return jose(w, text, nil)
}

// keys answers anyone who gets this far: a key document is what a peer needs
// before it can believe anything. With key it is the newest that this node has which
// lists that key, to show whose a page was that it was told.
func (s *server) keys(w http.ResponseWriter, r *http.Request, _ spiffeid.TrustDomain) error {
	origin, err := originOf(r.URL.Query())
	if err != nil {
		return err
	}
	_, text, ok := s.cfg.Keys.Keys(origin)
	if !ok && origin == s.cfg.Domain {
		return jose(w, "", errNotReady)
	}
	if kid := r.URL.Query().Get("key"); kid != "" && origin != s.cfg.Domain {
		text = s.documentFor(origin, kid)
	}
	return jose(w, text, nil)
}

// jose answers a JWS, 404 for none.
func jose(w http.ResponseWriter, text string, err error) error {
	switch {
	case errors.Is(err, errNotReady):
		return directory.Refuse(directory.Unavailable, "%w", err)
	case err != nil:
		return err
	case text == "":
		return directory.Refuse(directory.NotFound, "this node has nothing of that origin")
	}
	w.Header().Set("Content-Type", typeJOSE)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, text) // fails only when the caller is gone
	return nil
}

type pagesQuery struct {
	origin spiffeid.TrustDomain
	aud    directory.Audience
	since  uint64
	limit  int
	wait   time.Duration
	keys   *directory.Position // the issue of the key document that the caller has; nil where it doesn't say
}

func parsePagesQuery(q url.Values) (p pagesQuery, err error) {
	if p.origin, err = originOf(q); err != nil {
		return p, err
	}
	if p.aud, err = directory.ParseAudience(q.Get("aud")); err != nil {
		return p, directory.Refuse(directory.BadQuery, "aud is %q; it is mesh or a domain's name", q.Get("aud"))
	}
	if v := q.Get("since"); v != "" {
		if p.since, err = strconv.ParseUint(v, 10, 64); err != nil {
			return p, directory.Refuse(directory.BadQuery, "since is %q; it is a revision", v)
		}
	}
	p.limit = maxDigests
	if v := q.Get("limit"); v != "" {
		if p.limit, err = strconv.Atoi(v); err != nil || p.limit < 1 || p.limit > maxDigests {
			return p, directory.Refuse(directory.BadQuery, "limit is %q; it is 1 to %d", v, maxDigests)
		}
	}
	if v := q.Get("wait"); v != "" {
		if p.wait, err = parseWait(v); err != nil {
			return p, err
		}
	}
	if v := q.Get("keys"); v != "" {
		of, issue, err := directory.ParseIndex(v)
		if err != nil || of != p.origin {
			return p, directory.Refuse(directory.BadQuery, "keys is %q; it is the origin's name, =, and the EPOCH.SEQ of its key document", v)
		}
		p.keys = &issue
	}
	return p, nil
}

// parseWait reads whole seconds or a duration such as 30s.
func parseWait(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if n, err2 := strconv.ParseUint(v, 10, 16); err2 == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 || d > maxWait {
		return 0, directory.Refuse(directory.BadQuery, "wait is %q; it is 0 to %d seconds", v, maxWait/time.Second)
	}
	return d, nil
}

// pages answers one page. With wait it is a subscription: it answers as soon as
// there is one, or a later key document than the caller has. The private stream of a
// domain goes from its origin to that domain and through nobody.
func (s *server) pages(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	q, err := parsePagesQuery(r.URL.Query())
	if err != nil {
		return err
	}
	if !s.mayHave(from, q) {
		return errNotListed
	}
	turns := s.replies
	if q.wait > 0 {
		turns = s.polls
	}
	if !turns.take(from) {
		return errTurns
	}
	defer turns.leave(from)
	text, err := s.nextPage(r, from, q)
	if q.keys != nil {
		if issue := s.keysIssue(q.origin); q.keys.Before(issue) {
			w.Header().Set(headerKeys, directory.FormatIndex(q.origin, issue))
		}
	}
	if text != "" && !s.mayHave(from, q) { // it waited, and the key document may be another
		return errNotListed
	}
	if err != nil || text != "" {
		return jose(w, text, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// mayHave reports whether a domain may have pages of that stream from this node,
// now.
func (s *server) mayHave(from spiffeid.TrustDomain, q pagesQuery) bool {
	switch {
	case !s.speaksTo(from):
		return false
	case q.aud == directory.Mesh:
		return s.lists(q.origin, from)
	default: // a node of the own domain may have what is for that
		return q.aud == directory.Only(from) && (q.origin == s.cfg.Domain || from == s.cfg.Domain)
	}
}

// farewell ends a peering that the peer has ended: it may do so by itself, and
// what it told is to be gone (MESH-025).
func (s *server) farewell(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	if from == s.cfg.Domain {
		return directory.Refuse(directory.Forbidden, "a domain is no peer of itself")
	}
	if err := s.cfg.Farewell(r.Context(), from); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) nextPage(r *http.Request, from spiffeid.TrustDomain, q pagesQuery) (string, error) {
	end := time.NewTimer(q.wait)
	defer end.Stop()
	for {
		// Before looking, so that nothing is missed.
		changed, unsigned := s.changedOf(q.origin), s.unsigned(q.origin)
		if !s.mayHave(from, q) { // who waits is to learn that at once (MESH-025)
			return "", errNotListed
		}
		text, err := s.pageOf(from, q)
		if err != nil || text != "" || q.wait == 0 || q.keys != nil && q.keys.Before(s.keysIssue(q.origin)) {
			return text, err
		}
		select {
		case <-changed:
		case <-unsigned:
		case <-end.C:
			return "", nil
		case <-r.Context().Done():
			return "", nil
		case <-s.closing:
			return "", directory.Refuse(directory.Unavailable, "this node is shutting down")
		}
	}
}

// keysIssue returns which issue of a domain's key document this node can give; zero for none.
func (m *Mesh) keysIssue(origin spiffeid.TrustDomain) directory.Position {
	doc, _, ok := m.cfg.Keys.Keys(origin)
	if !ok {
		return directory.Position{}
	}
	return issueOf(doc)
}

// unsigned fires in a moment where the own domain has agreed on a key document that this
// node doesn't sign yet, of which nothing else tells.
func (m *Mesh) unsigned(origin spiffeid.TrustDomain) <-chan time.Time {
	if origin != m.cfg.Domain {
		return nil
	}
	if doc := m.cfg.Source.KeyDocument(); doc == nil || issueOf(doc) == m.keysIssue(origin) {
		return nil
	}
	return time.After(keysEvery)
}

func (m *Mesh) changedOf(origin spiffeid.TrustDomain) <-chan struct{} {
	if origin == m.cfg.Domain {
		return m.cfg.Source.Changed()
	}
	return m.Changed()
}

// pageOf returns a page of the own domain, or the link of another's chain that
// goes on from since; it is passed on as it was received.
func (m *Mesh) pageOf(from spiffeid.TrustDomain, q pagesQuery) (string, error) {
	if q.origin == m.cfg.Domain {
		made, err := m.publisher.page(q.aud, q.since, q.limit, q.wait == 0 && m.lists(m.cfg.Domain, from))
		if made == nil || err != nil {
			return "", err
		}
		return made.text, nil
	}
	o := m.origin(q.origin)
	if o == nil {
		return "", directory.Refuse(directory.NotFound, "this node has nothing of that origin")
	}
	st := o.shownStream(q.aud)
	if st == nil {
		return "", nil
	}

	page, err := readFor(m.store, st.id, func(t *streamTx) (*storedPage, error) { return t.pageAfter(q.since) })
	if page == nil || err != nil {
		return "", unavailable(err)
	}

	return page.JWS, nil
}

// unavailable is the refusal for a disk that does not answer, else the error itself.
func unavailable(err error) error {
	if errors.Is(err, disk.ErrStalled) {
		return directory.Refuse(directory.Unavailable, "%w", err)
	}

	return err
}
