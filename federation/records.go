package federation

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/store"
)

// records answers named records, one a line. What doesn't fit into the answer is
// left out of it; the caller asks again.
func (s *server) records(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, protocol.MaxRecordsBody))
	var req protocol.RecordsRequest
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return directory.Refuse(directory.TooLarge, "the body has over %d bytes", protocol.MaxRecordsBody)
	case err != nil || json.Unmarshal(body, &req) != nil || len(req.Names) > protocol.MaxNames:
		return directory.Refuse(directory.BadRequest, `the body is {"origin": DOMAIN, "names": [[h, m], …]} with at most %d names`, protocol.MaxNames)
	}
	origin, err := protocol.ParseOrigin(url.Values{"origin": {req.Origin}})
	if err != nil {
		return err
	}
	if !s.access.lists(origin, from) && origin != s.cfg.Domain {
		return errNotListed
	}
	if !s.replies.take(from) {
		return errTurns
	}
	defer s.replies.leave(from)
	if origin != s.cfg.Domain && s.store.Disk.StalledFor() > 0 {
		return unavailable(store.ErrStalled)
	}

	w.Header().Set("Content-Type", protocol.TypeNDJSON)
	w.Header().Set("Cache-Control", "no-store")
	out, done := s.codecs.Compress(w, r)
	defer done()
	written, recordOf := 0, s.holdings.recordsOf(origin, from)
	for _, hm := range req.Names {
		n := protocol.RecordName{H: hm[0], M: hm[1]}
		line := protocol.RecordLine{H: n.H, M: n.M}
		text, ok, err := recordOf(n)
		switch {
		case errors.Is(err, store.ErrStalled):
			return nil // what is left out of an answer is asked for again
		case errors.Is(err, publish.ErrNotReady):
			line.Error = string(directory.Unavailable)
		case err != nil:
			s.cfg.Logger.Error("can't serve a record", "origin", origin.Name(), "error", err)
			line.Error = string(directory.Internal)
		case !ok:
			line.Error = string(directory.NotFound)
		default:
			line.Record = text
		}
		b := line.Bytes()
		if written += len(b); written > protocol.MaxAnswer {
			return nil
		}
		if _, err := out.Write(b); err != nil {
			return nil // the caller is gone
		}
	}
	return nil
}

// recordsOf returns what finds the records that a domain may have: of the own domain what
// one of its streams names, of another what its mesh stream does; and what was announced
// to this domain alone, where it is a node of this domain that asks. The streams of
// another are looked up once: while one is pulled, its lock is held most of the time.
func (h *holdings) recordsOf(origin, to spiffeid.TrustDomain) func(protocol.RecordName) (string, bool, error) {
	if origin == h.cfg.Domain {
		return func(n protocol.RecordName) (string, bool, error) { return h.ownRecord(to, n) }
	}
	auds := []directory.Audience{directory.Mesh}
	if to == h.cfg.Domain {
		auds = append(auds, directory.Only(to))
	}
	var shown []*stream
	if o := h.origins.get(origin); o != nil {
		for _, aud := range auds {
			shown = append(shown, o.streams.shownStream(aud))
		}
	}
	return func(n protocol.RecordName) (string, bool, error) {
		for _, st := range shown {
			r, err := h.storedRecord(st, n)
			if err != nil {
				return "", false, err
			}
			if r != nil {
				return r.Signed().String(), true, nil
			}
		}
		return "", false, nil
	}
}

func (h *holdings) ownRecord(to spiffeid.TrustDomain, n protocol.RecordName) (string, bool, error) {
	if h.access.lists(h.cfg.Domain, to) {
		if text, ok, err := h.publisher.Record(directory.Mesh, n); ok || err != nil {
			return text, ok, err
		}
	}
	return h.publisher.Record(directory.Only(to), n)
}

// storedRecord returns a record that another domain's stream names; nil where it names
// none, or there is no such stream.
func (h *holdings) storedRecord(st *stream, n protocol.RecordName) (r *store.Record, err error) {
	if st == nil {
		return nil, nil
	}
	return h.store.Find(st.id, n)
}

// maxAnswers bounds what is fetched at a time, each answer being at most maxAnswer:
// a peer whose documents are large is asked again later for the rest.
const maxAnswers = 4

// fetch asks holders in turn for records until none is missing. What a holder
// gives is what its name says, or it is not taken and the next one is asked; what
// else is wrong with it is for the record gate to find.
func (rc *receiver) fetch(ctx context.Context, origin spiffeid.TrustDomain, names []protocol.RecordName, holders []protocol.Node) map[protocol.RecordName]fetched {
	got := make(map[protocol.RecordName]fetched, len(names))
	answers := 0
	for _, h := range holders {
		for ctx.Err() == nil && answers < maxAnswers {
			missing := without(names, got)
			if len(missing) == 0 {
				return got
			}
			before := len(got)
			if err := rc.askRecords(ctx, origin, missing, h, got); err != nil {
				rc.cfg.Logger.Debug("can't get records", "origin", origin.Name(), "from", h.Base, "error", err)
				break
			}
			if len(got) == before {
				break
			}
			answers++
		}
	}
	return got
}

// without returns up to maxNames of those that aren't got yet.
func without(names []protocol.RecordName, got map[protocol.RecordName]fetched) []protocol.RecordName {
	var missing []protocol.RecordName
	for _, n := range names {
		if _, ok := got[n]; !ok && len(missing) < protocol.MaxNames {
			missing = append(missing, n)
		}
	}
	return missing
}

// askRecords asks one holder and adds to got what it gives.
func (rc *receiver) askRecords(ctx context.Context, origin spiffeid.TrustDomain, names []protocol.RecordName, n protocol.Node, got map[protocol.RecordName]fetched) error {
	var header string // of the record before: as a rule it is the same

	return rc.client.Records(ctx, n, origin, names, func(line protocol.RecordLine) {
		named := protocol.RecordName{H: line.H, M: line.M}

		var r *store.Record
		err := rc.cfg.Panics.Run(contain.Record, func() (err error) {
			r, err = readRecord(named, line.Record, header)
			return err
		})
		if err != nil {
			rc.refusals.byOrigin.add(origin, protocol.CodeRecord)
			rc.refusals.bySender.add(n.Domain, protocol.CodeRecord)
			if rc.refusals.lines.allow(protocol.CodeRecord, n.Domain) {
				rc.cfg.Logger.Warn("refused a record", "origin", origin.Name(), "from", n.Base, "h", line.H.String(), "err", err)
			}
			return
		}

		header = r.Header
		got[named] = fetched{r, n.Domain, time.Now()}
	})
}

var errNotNamed = errors.New("the bytes are not those of that name")

// readRecord takes a record apart and compares it with its name. A JWS header that
// is the one given was looked at before; "" is none.
func readRecord(n protocol.RecordName, text, header string) (*store.Record, error) {
	rec, err := signed.ParseRecord(text)
	if err != nil {
		return nil, err
	}
	parts, err := protocol.SplitJWS(rec.JWS)
	if err != nil {
		return nil, err
	}
	if written, _, _ := strings.Cut(rec.JWS, "."); written == "" || written != header {
		if err := protocol.CheckHeader(parts.Header, signed.TypeRecord); err != nil {
			return nil, err
		}
		header = written
	}
	r := &store.Record{
		Header: header, Payload: parts.Payload,
		Signature: rec.JWS[len(rec.JWS)-directory.B64.EncodedLen(64):], Disclosures: rec.Disclosures,
	}
	if !r.Is(n) {
		return nil, errNotNamed
	}
	return r, nil
}
