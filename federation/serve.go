package federation

import (
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/federation/mirror"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/roster-mesh/roster/limit"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// refusalDelay is how long a request without a place waits for its refusal.
const refusalDelay = time.Second

// A server answers the routes of /federation/v1.
type server struct {
	cfg       *Config
	store     *store.Store
	mirrors   *mirror.Mirrors
	origins   *replica.Set
	publisher *publish.Publisher
	peers     peers
	holdings  holdings
	evidence  *prosecutor
	codecs    *protocol.Codecs
	traffic   *protocol.Traffic
	closing   <-chan struct{} // closed when long polls are to return
	refusals  *replica.RefusalLog
	caller    func(*http.Request) (spiffeid.ID, bool)

	newcomers newcomers // nodes of peers that no key document lists yet

	polls   *limit.Shares                      // of requests with a wait
	replies *limit.Shares                      // of requests without a wait
	workers *limit.Fair                        // of pages and records that are being read
	shows   *limit.Rates[spiffeid.TrustDomain] // of evidence
}

// Requests of nodes that are answered at once: those with a wait, and the others for pages or records.
const (
	maxPolls   = 1024
	maxReplies = 512
)

// newShares returns a pool of n requests. It is divided between domains like every pool of a
// node, but nodes of the own domain have all of it, because they request all streams at once
// after a data loss. Without the limit, a domain that sends many requests and reads the
// answers slowly could exhaust memory.
func newShares(n int) *limit.Shares {
	return limit.NewShares(sharesOf(n))
}

func sharesOf(n int) limit.SharesConfig {
	cfg := limit.Divide(int64(n), nil)
	cfg.OwnID = cfg.Places
	cfg.ForOperators = 0

	return cfg
}

// party is the party of a node's request in a pool.
func (s *server) party(node spiffeid.ID) limit.Caller {
	if node.TrustDomain() == s.cfg.Domain {
		return limit.Caller{Kind: limit.Own, ID: node.String()}
	}

	return limit.Caller{Kind: limit.Foreign, ID: node.String(), Group: node.TrustDomain().Name()}
}

// take takes a place in a pool for a request.
func (s *server) take(pool *limit.Shares, r *http.Request) (release func(), err error) {
	node, _ := s.caller(r) // it was admitted

	release, refused := pool.Take(s.party(node), 1)
	if refused == nil {
		return release, nil
	}

	// A caller that repeats refused requests at once would keep this node busy with refusals.
	delay := time.NewTimer(refusalDelay)
	defer delay.Stop()

	select {
	case <-delay.C:
	case <-r.Context().Done():
	case <-s.closing:
	}

	return nil, errTurns
}

// admit wraps a handler so that it serves only nodes of this domain and of its active peers.
func (s *server) admit(next func(http.ResponseWriter, *http.Request, spiffeid.TrustDomain) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, ok := s.caller(r)

		// A refused node gets the header too, which gives it the reason.
		if ok && isNode(id) {
			s.tellStanding(w, id.TrustDomain())
		}

		listed := ok && s.peers.admits(id)
		if !listed && !(ok && r.URL.Path == protocol.PathKeys && s.greets(id)) {
			s.refuse(w, directory.Refuse(directory.Forbidden,
				"these routes are for nodes of this domain and of its active peers"))

			return
		}

		if listed {
			s.noteAddress(id, r.Header)
		}

		out := &protocol.MeteredWriter{ResponseWriter: w, Traffic: s.traffic, To: id.TrustDomain()}

		err := s.cfg.Panics.Run(contain.Request, func() error { return next(out, r, id.TrustDomain()) })
		if err != nil {
			s.refuse(out, err)
		}
	}
}

// greets reports whether a node of an active peer may ask for key documents, although its domain's does
// not list it as far as this node knows: for greetTime after it was first seen.
func (s *server) greets(id spiffeid.ID) bool {
	return isNode(id) && id.TrustDomain() != s.cfg.Domain && s.peers.speaksTo(id.TrustDomain()) &&
		s.newcomers.isNew(id, time.Now())
}

// noteAddress notes where a peer's node says that it is reached.
func (s *server) noteAddress(id spiffeid.ID, header http.Header) {
	if id.TrustDomain() == s.cfg.Domain {
		return
	}

	base, ok := protocol.ParseAddress(header)
	if origin := s.origins.Get(id.TrustDomain()); ok && origin != nil {
		origin.Contacts.State(id, base)
	}
}

// tellStanding sets the header that tells a node of another domain how this node sees its domain.
func (s *server) tellStanding(w http.ResponseWriter, td spiffeid.TrustDomain) {
	if td == s.cfg.Domain {
		return
	}

	standing := protocol.Standing{State: protocol.StandingNone}

	if origin := s.origins.Get(td); origin != nil && !origin.HasEnded() {
		status := origin.Status()
		refused := s.refusals.ByOrigin.Last(td)
		standing = protocol.Standing{
			State:    status.State,
			Position: directory.Position{Epoch: status.Position.Epoch, Revision: status.Watermark},
			Page:     status.LastPage,
			Code:     refused.Code,
			Refused:  refused.At,
		}

		switch status.State {
		case string(directory.PeeringFrozen):
			if files := s.evidence.cases.Files(td); len(files) > 0 {
				standing.Evidence = files[len(files)-1].ID
			}
		case "unreachable", "failing":
			standing.Error = status.LastError
		}
	}

	w.Header().Set(protocol.HeaderStanding, standing.String())
}

// refuse answers with err's problem, and logs an internal error, whose text the answer omits.
func (s *server) refuse(w http.ResponseWriter, err error) {
	problem.Write(w, s.cfg.PublicURL, err)

	if directory.ProblemOf(err) == directory.Internal {
		s.cfg.Logger.Error("request failed", "request_id", w.Header().Get(problem.HeaderRequestID), "err", err)
	}
}

// isNode reports whether id is a node's (trust.md, "Identities").
func isNode(id spiffeid.ID) bool {
	return len(id.Path()) > len(directory.NodePath) && strings.HasPrefix(id.Path(), directory.NodePath)
}

var errNotListed = directory.Refuse(directory.Forbidden,
	"the origin's key document doesn't list your domain for this stream")

var errRecordsBody = directory.Refuse(directory.BadRequest,
	`the body is {"origin": DOMAIN, "names": [[h, m], …]} with at most %d names`, protocol.MaxNames)

var errTurns = directory.Refuse(directory.Unavailable, "too many concurrent requests to this node; retry later")

func (s *server) heads(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	origin, err := protocol.ParseOrigin(r.URL.Query())
	if err != nil {
		return err
	}

	if !s.peers.lists(origin, from) {
		return errNotListed
	}

	if origin == s.cfg.Domain {
		text, err := s.publisher.Head()
		return jose(w, text, err)
	}

	var text string
	if o := s.origins.Get(origin); o != nil {
		text = o.NewestHead()
	}

	return jose(w, text, nil)
}

// keys answers every admitted caller, because a peer needs the key document to verify all
// other data. If the query names a key of another origin, the answer is this node's newest
// key document that lists that key. It shows who signed an old page.
func (s *server) keys(w http.ResponseWriter, r *http.Request, _ spiffeid.TrustDomain) error {
	origin, err := protocol.ParseOrigin(r.URL.Query())
	if err != nil {
		return err
	}

	_, text, ok := s.cfg.Keys.Keys(origin)
	if !ok && origin == s.cfg.Domain {
		return jose(w, "", publish.ErrNotReady)
	}

	if kid := r.URL.Query().Get("key"); kid != "" && origin != s.cfg.Domain {
		text = s.holdings.documentFor(origin, kid)
	}

	return jose(w, text, nil)
}

// checkpoint answers with the last checkpoint of another domain's ledger that this node has followed, or its domain has
// cosigned: the larger one, because this node compares the two itself.
func (s *server) checkpoint(w http.ResponseWriter, r *http.Request, _ spiffeid.TrustDomain) error {
	origin, err := protocol.ParseOrigin(r.URL.Query())
	if err != nil {
		return err
	}

	o := s.origins.Get(origin)
	if o == nil {
		return errHoldsNothing
	}

	at, _ := o.Position()
	note := s.mirrors.Note(origin)

	if cosigned, err := checkpoint.Parse(s.cfg.Cosigned(directory.LogName(origin, at.Epoch))); err == nil &&
		(note == nil || note.Size < cosigned.Size) {
		note = cosigned
	}

	if note == nil {
		return errHoldsNothing
	}

	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, note.String()) // fails only when the caller is gone

	return nil
}

var errHoldsNothing = directory.Refuse(directory.NotFound, "this node holds nothing of that origin")

// jose answers with a JWS, or 404 if text is empty.
func jose(w http.ResponseWriter, text string, err error) error {
	switch {
	case errors.Is(err, publish.ErrNotReady):
		return directory.Refuse(directory.Unavailable, "%w", err)
	case err != nil:
		return err
	case text == "":
		return errHoldsNothing
	}

	w.Header().Set("Content-Type", protocol.TypeJOSE)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, text) // fails only when the caller is gone

	return nil
}

// pages answers with one page. With wait the request is a subscription: it is answered as
// soon as there is a page, or a later key document than the caller's. With ping it gets
// interim responses until then, the first at once. A private stream goes from its origin
// directly to its domain, and no relay passes it on.
func (s *server) pages(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	query, err := protocol.ParsePageQuery(r.URL.Query())
	if err != nil {
		return err
	}

	if !s.mayHave(r, from, query) {
		return errNotListed
	}

	pool := s.replies
	if query.Wait > 0 {
		pool = s.polls
	}

	leave, err := s.take(pool, r)
	if err != nil {
		return err
	}

	defer leave()

	text, err := s.nextPage(w, r, from, query)
	if r.Context().Err() != nil {
		// The caller has gone. Of a connection that ended, the library may still be writing the header of
		// the last interim response.
		return nil //nolint:nilerr // the caller has gone
	}

	s.tellStanding(w, from)

	if query.Keys != nil {
		if issue := s.peers.keysIssue(query.Origin); query.Keys.Before(issue) {
			w.Header().Set(protocol.HeaderKeys, directory.FormatIndex(query.Origin, issue))
		}
	}

	if !s.mayHave(r, from, query) { // the key document or the members may have changed during the wait
		return errNotListed
	}

	if err != nil || text != "" {
		return jose(w, text, err)
	}

	w.WriteHeader(http.StatusNoContent)

	return nil
}

// mayHave reports whether the caller, of the domain from, may have pages of that stream from
// this node at present.
func (s *server) mayHave(r *http.Request, from spiffeid.TrustDomain, query protocol.PageQuery) bool {
	id, ok := s.caller(r)

	switch {
	case !ok || !s.peers.admits(id):
		return false
	case query.Aud == directory.Mesh:
		return s.peers.lists(query.Origin, from)
	default: // nodes of the own domain may have the private streams to that domain
		return query.Aud == directory.Only(from) && (query.Origin == s.cfg.Domain || from == s.cfg.Domain)
	}
}

// farewell ends a peering that the peer has ended, as the request of the peer's operator shows. The peer may
// do so on its own, and its records are removed (MESH-025).
func (s *server) farewell(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	if from == s.cfg.Domain {
		return directory.Refuse(directory.Forbidden, "a domain can't be its own peer")
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, protocol.MaxFarewell))
	if err != nil {
		return directory.Refuse(directory.BadRequest, "a farewell can't be read: %w", err)
	}

	request, err := protocol.ParseFarewell(body)
	if err != nil {
		return err
	}

	if err := s.cfg.Farewell(r.Context(), from, request); err != nil {
		return err
	}

	w.WriteHeader(http.StatusNoContent)

	return nil
}

func (s *server) nextPage(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain,
	query protocol.PageQuery) (string, error) {
	end := time.NewTimer(query.Wait)
	defer end.Stop()

	pings := &pinger{w: w, every: query.Ping, before: func() {
		if r.Context().Err() == nil {
			s.tellStanding(w, from)
		}
	}}
	defer pings.stop()

	for {
		// Both channels are taken before the read, so that no change is missed.
		changed := s.peers.changedOf(query.Origin)

		unsigned := s.peers.unsigned(query.Origin)
		if !s.mayHave(r, from, query) { // a waiting caller is refused at once (MESH-025)
			return "", errNotListed
		}

		text, err := s.readPage(r, from, query)
		if err != nil || text != "" || query.Wait == 0 || query.Keys != nil &&
			query.Keys.Before(s.peers.keysIssue(query.Origin)) {
			return text, err
		}

		pings.begin()

		for quiet := true; quiet; {
			quiet = false
			select {
			case <-changed:
			case <-unsigned:
			case <-pings.due():
				pings.send()
				quiet = true
			case <-end.C:
				return "", nil
			case <-r.Context().Done():
				return "", nil
			case <-s.closing:
				return "", directory.Refuse(directory.Unavailable, "this node is shutting down")
			}
		}
	}
}

// readPage is pageOf with a worker's place.
func (s *server) readPage(r *http.Request, from spiffeid.TrustDomain, query protocol.PageQuery) (string, error) {
	work := s.work(nil, r)
	if err := work.begin(); err != nil {
		return "", err
	}

	defer work.end()

	return s.holdings.pageOf(from, query)
}

// A pinger sends interim responses to a caller whose pull is held, so that the caller knows
// that this node is there.
type pinger struct {
	w      http.ResponseWriter
	every  time.Duration // 0 for none
	before func()        // sets headers of the next response
	ticker *time.Ticker  // nil before the first response
}

// begin sends the first response, once.
func (p *pinger) begin() {
	if p.every == 0 || p.ticker != nil {
		return
	}

	p.ticker = time.NewTicker(p.every)
	p.send()
}

func (p *pinger) send() {
	p.before()
	p.w.WriteHeader(http.StatusProcessing)
}

// due returns the channel of the ticks, nil if nothing is to be sent.
func (p *pinger) due() <-chan time.Time {
	if p.ticker == nil {
		return nil
	}

	return p.ticker.C
}

func (p *pinger) stop() {
	if p.ticker != nil {
		p.ticker.Stop()
	}
}

// unavailable returns directory.Unavailable for a stalled disk, and other errors unchanged.
func unavailable(err error) error {
	if errors.Is(err, store.ErrStalled) {
		return directory.Refuse(directory.Unavailable, "%w", err)
	}

	return err
}

// records answers with the requested records, one per line. It omits records that don't fit
// into the answer; the caller requests them again.
func (s *server) records(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	// The place comes before the body, so that a refused request is neither read nor parsed.
	leave, err := s.take(s.replies, r)
	if err != nil {
		return err
	}

	defer leave()

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, protocol.MaxRecordsBody))

	var tooLarge *http.MaxBytesError

	switch {
	case errors.As(err, &tooLarge):
		return directory.Refuse(directory.TooLarge, "the body has over %d bytes", protocol.MaxRecordsBody)
	case err != nil:
		return errRecordsBody
	}

	work := s.work(w, r)
	if err := work.begin(); err != nil {
		return err
	}

	defer work.end()

	req, err := protocol.ParseRecordsRequest(body)
	if err != nil || len(req.Names) > protocol.MaxNames {
		return errRecordsBody
	}

	origin, err := protocol.ParseOrigin(url.Values{"origin": {req.Origin}})
	if err != nil {
		return err
	}

	// A domain that isn't listed may have records of the own private stream to it; recordsOf chooses by stream.
	if !s.peers.lists(origin, from) && origin != s.cfg.Domain {
		return errNotListed
	}

	// The read of a stalled disk would hold the worker's place.
	if origin != s.cfg.Domain && s.store.Disk.StalledFor() > 0 {
		return unavailable(store.ErrStalled)
	}

	w.Header().Set("Content-Type", protocol.TypeNDJSON)
	w.Header().Set("Cache-Control", "no-store")
	out, done := s.codecs.Compress(work, r)
	defer done()

	names := make([]protocol.RecordName, len(req.Names))
	for i, hm := range req.Names {
		names[i] = protocol.RecordName{H: hm[0], M: hm[1]}
	}

	s.writeRecords(out, origin, s.holdings.recordsOf(origin, from, names))

	return nil
}

// writeRecords writes the lines of records, until the answer is full, the store fails or the
// caller is gone.
func (s *server) writeRecords(out io.Writer, origin spiffeid.TrustDomain, records iter.Seq2[foundRecord, error]) {
	written := 0

	var line []byte

	for record, err := range records {
		if err != nil {
			if !errors.Is(err, store.ErrStalled) {
				s.cfg.Logger.Error("reading records failed", "origin", origin.Name(), "err", err)
			}

			return // the caller requests the omitted records again
		}

		line = s.appendLine(line[:0], origin, record)
		if written += len(line); written > protocol.MaxAnswer {
			return
		}

		if _, err := out.Write(line); err != nil {
			return
		}
	}
}

// appendLine appends the line of a record, or the reason for its absence.
func (s *server) appendLine(data []byte, origin spiffeid.TrustDomain, record foundRecord) []byte {
	line := protocol.RecordLine{H: record.name.H, M: record.name.M}

	switch {
	case errors.Is(record.err, publish.ErrNotReady):
		line.Error = string(directory.Unavailable)
	case record.err != nil:
		s.cfg.Logger.Error("serving a record failed", "origin", origin.Name(), "err", record.err)
		line.Error = string(directory.Internal)
	case !record.found:
		line.Error = string(directory.NotFound)
	default:
		return protocol.AppendRecordLine(data, record.name, record.RecordParts)
	}

	return line.Append(data)
}
