package api

import (
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

const (
	woaPath   = "/.well-known/woa.json"
	mediaWoA  = "application/woa+json"
	mediaJSON = "application/json"

	maxFronted = 1000    // agents of one document
	maxWoA     = 4 << 20 // bytes of one document
)

// woaParams are the parameters that our Web of Agents document knows: a lookup's
// filters, and where a page begins.
var woaParams = []string{"agent", "protocol", "cap_name", "cap_type", "tag", "origin", "scope", "status", "language", "after"}

// woa answers GET /.well-known/woa.json: the agents that this node's gateway fronts
// and that an anonymous caller may read, whoever asks (draft-gaikwad-woa, 4;
// WOA-001, WOA-033, WOA-034).
func (s *Server) woa(w http.ResponseWriter, c *call) error {
	key, part := strconv.FormatUint(s.cfg.Policy.Generation(), 36)+"?", false // what another policy let be seen is not shown
	for _, p := range c.params {
		if slices.Contains(woaParams, p.name) {
			part = true
			key += p.name + "=" + p.raw + "&"
		}
	}
	values, err := c.params.decode(woaParams)
	if err != nil {
		return err
	}
	q, err := index.ParseQuery(values)
	if err != nil {
		return err
	}
	spent := func() error { return nil }
	if part { // it has to be made for few, and whoever asks can name any number: that counts as lookups
		if err := s.pace(w, c, Reads); err != nil {
			return err
		}
		spent = s.spend(c, Reads, &q)
	}
	if heard := s.cfg.Registry.Heard(); heard > s.cfg.MaxStale || !s.cfg.Settled() {
		// Whoever crawls would take agents for gone that are not.
		return directory.Refuse(directory.Unavailable, "This node does not know at the moment what its domain has; it last heard its leader %d s ago.", int(heard.Seconds()))
	}
	p, err := s.fronted.page(c.Context(), key, s.frontedState, func() (*woaPage, error) {
		p := s.renderWoA(q)
		return p, spent()
	})
	if err != nil {
		return err
	}
	if p.more {
		w.Header().Set("Link", "<"+queryOf(woaPath, woaParams, c.params)+"after="+p.next.String()+`>; rel="next"`)
	}
	return sendWoA(w, c, p)
}

// sendWoA answers with a page as it is in memory. Its media type is the draft's
// own, whatever Accept says, but for who takes nothing but JSON (WOA-037).
func sendWoA(w http.ResponseWriter, c *call, p *woaPage) error {
	h, media, etag, body := w.Header(), mediaWoA, p.etag, p.body
	if slices.Equal(c.Header.Values("Accept"), []string{mediaJSON}) {
		media, etag = mediaJSON, strings.TrimSuffix(etag, `"`)+`-json"`
	}
	h.Set("Cache-Control", "public, max-age=60")
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("Last-Modified", p.modified)
	coded := compresses(c.Request, media, body)
	if coded {
		etag, body = codedTag(etag), p.coded
	}
	h.Set("ETag", etag)
	if values := c.Header.Values("If-Match"); len(values) > 0 && !strongMatch(values, etag) {
		return directory.Refuse(directory.PreconditionFailed, "If-Match names other states than the current one, %s.", etag)
	}
	known := c.Header.Values("If-None-Match")
	// Another node dates the same state otherwise: only the very date is a match.
	if noneMatch(known, etag) || len(known) == 0 && c.Header.Get("If-Modified-Since") == p.modified {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", media)
	if coded {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if c.Method != http.MethodHead {
		_, _ = w.Write(body) // the client is gone if it fails
	}
	return nil
}

// frontedState tells the states of what the document is made of from each other:
// how far the histories of all domains have come here.
func (s *Server) frontedState() uint64 {
	h := xxhash.New()
	writePosition(h, s.index(nil))
	for _, td := range s.cfg.View.Origins() {
		at, _ := s.cfg.Reached(td)
		writePosition(h, directory.FormatIndex(td, at))
	}
	return h.Sum64()
}

func writePosition(h hash.Hash64, text string) { _, _ = io.WriteString(h, text+"\n") } // it never fails

// renderWoA writes the document of what q asks for: as much of it as one may hold.
func (s *Server) renderWoA(q index.Query) *woaPage {
	p := &woaPage{}
	b := []byte(`{"woa_version":"1","agents":[`)
	behind := []byte(`],"transports":{}}` + "\n")
	if s.cfg.Fronts != nil {
		behind = s.appendTransports([]byte(`],"transports":`))
		b = s.appendAllFronted(b, p, q, maxWoA-len(behind))
	}
	b = append(b, behind...)
	p.body, p.coded = slices.Clip(b), slices.Clip(compress(b))
	p.etag = fmt.Sprintf(`"%016x"`, xxhash.Sum64(b))
	return p
}

// appendTransports appends the one transport that all agents have: this
// directory's gateway (gaikwad 4.3.1).
func (s *Server) appendTransports(b []byte) []byte {
	b = strictjson.AppendText(append(b, `{"rest":{`...), "base", s.cfg.PublicURL)
	return append(strictjson.AppendText(b, "invoke_path", "/agents/{agent_id}/invoke"), "}}}\n"...)
}

// appendAllFronted appends agents until there are no more, or the document has
// enough, and says in p where the next one begins.
func (s *Server) appendAllFronted(b []byte, p *woaPage, q index.Query, most int) []byte {
	q.Count = index.MaxCount
	for n := 0; ; {
		found := s.cfg.View.Lookup(q, s.fronts)
		for _, e := range found.Entries {
			before := len(b)
			if n > 0 {
				b = append(b, ',')
			}
			b = s.appendFronted(b, e)
			if n == maxFronted || len(b) > most {
				p.more, p.next = true, q.After
				return b[:before]
			}
			n++
			q.After = s.cfg.View.CursorOf(e)
		}
		if !found.More {
			return b
		}
	}
}

// fronts is e as the document lists it, if it does. Its rid must lead to it: two
// domains may have registrations of one, and then nobody could say which is meant
// (gaikwad 4.1).
func (s *Server) fronts(e *directory.Entry) *directory.Entry {
	if !s.cfg.Fronts(e) {
		return nil
	}
	d := s.cfg.Policy.Read(directory.Identity{}, e)
	if !d.Allow {
		return nil
	}
	if !s.isOwn(e) {
		if found := s.cfg.View.Find(e.RID.String()); len(found) != 1 || found[0].Origin != e.Origin {
			return nil
		}
	}
	return kinds.Redact(e, d.Redaction)
}
