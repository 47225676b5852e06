package catalog

import (
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// WebOfAgentsPath is the path of the Web of Agents document.
const WebOfAgentsPath = "/.well-known/woa.json"

const (
	mediaWoA  = "application/woa+json"
	mediaJSON = "application/json"

	maxAgents   = 1000    // of one document
	maxDocument = 4 << 20 // bytes of one document
)

// webOfAgentsParams are the parameters of the document: a lookup's filters, and where a
// page begins.
var webOfAgentsParams = []string{
	"agent", "protocol", "cap_name", "cap_type", "tag", "origin", "scope", "status", "language", "after",
}

// WebOfAgentsConfig configures a WebOfAgents.
type WebOfAgentsConfig struct {
	Domain    spiffeid.TrustDomain
	PublicURL string
	Reader    *registration.Reader
	Limiter   *admission.Limiter
	// Read is policy's decision about reading, and Generation counts its changes.
	Read       func(directory.Identity, *directory.Entry) directory.Decision
	Generation func() uint64
	// Invocable tells whether this node's gateway calls an agent; nil without a gateway.
	Invocable func(*directory.Entry) bool
	// Current refuses if this node doesn't know the present state of its domain.
	Current func() error
	// Index is the Roster-Index of this node.
	Index func() string
}

// A WebOfAgents answers GET /.well-known/woa.json: the agents that this node's gateway
// invokes and that an anonymous caller may read, for any caller (draft-gaikwad-woa, 4;
// WOA-001, WOA-033, WOA-034).
type WebOfAgents struct {
	cfg   WebOfAgentsConfig
	pages *pageCache
}

// NewWebOfAgents returns a WebOfAgents.
func NewWebOfAgents(cfg WebOfAgentsConfig) *WebOfAgents {
	return &WebOfAgents{cfg: cfg, pages: newPageCache()}
}

// Get answers GET /.well-known/woa.json.
func (h *WebOfAgents) Get(w http.ResponseWriter, call *request.Call) error {
	values, err := call.Params.Decode(webOfAgentsParams)
	if err != nil {
		return err
	}

	query, err := index.ParseQuery(values)
	if err != nil {
		return err
	}

	// A filtered document is made for few callers, and a caller can make up any number of
	// filters. So it counts as a read.
	key, filtered := h.keyOf(call.Params)

	spent := func() error { return nil }
	if filtered {
		if err := h.cfg.Limiter.Pace(w.Header(), call.Caller(), admission.Reads); err != nil {
			return err
		}

		spent = h.cfg.Limiter.Spend(call.Context(), call.Caller(), admission.Reads, &query)
	}

	// A crawler would take agents that this node doesn't know for gone.
	if err := h.cfg.Current(); err != nil {
		return err
	}

	p, err := h.pages.page(call.Context(), key, h.state, func() (*page, error) {
		p := h.render(query)
		return p, spent()
	})
	if err != nil {
		return err
	}

	if p.more {
		w.Header().Set("Link", call.Params.NextLink(WebOfAgentsPath, webOfAgentsParams, "", p.next))
	}

	return send(w, call, p)
}

// keyOf is the key of a page: its parameters, and the policy by which it is made.
func (h *WebOfAgents) keyOf(params request.Params) (key string, filtered bool) {
	key = strconv.FormatUint(h.cfg.Generation(), 36) + "?"
	for _, param := range params {
		if slices.Contains(webOfAgentsParams, param.Name) {
			filtered = true
			key += param.Name + "=" + param.Raw + "&"
		}
	}

	return key, filtered
}

// send answers with a page from memory. Its media type is the draft's own, whatever
// Accept says, except for clients that accept nothing but JSON (WOA-037).
func send(w http.ResponseWriter, call *request.Call, page *page) error {
	header, media, etag, body := w.Header(), mediaWoA, page.etag, page.body
	if slices.Equal(call.Header.Values("Accept"), []string{mediaJSON}) {
		media = mediaJSON
		etag = strings.TrimSuffix(etag, `"`) + `-json"`
	}

	header.Set("Cache-Control", "public, max-age="+strconv.Itoa(page.maxAge()))
	header.Set("Vary", "Accept, Accept-Encoding")
	header.Set("Last-Modified", page.modified)

	compressed := response.Compresses(call.Request, media, body)
	if compressed {
		etag = response.CompressedTag(etag)
		body = page.compressed
	}

	header.Set("ETag", etag)

	if !request.IfMatch(call.Header, etag) {
		return response.Mismatch(etag)
	}

	// Another node gives the same state another date, so only the exact date matches.
	conditional := len(call.Header.Values("If-None-Match")) > 0
	if request.IfNoneMatch(call.Header, etag) || !conditional && call.Header.Get("If-Modified-Since") == page.modified {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}

	header.Set("Content-Type", media)

	if compressed {
		header.Set("Content-Encoding", "gzip")
	}

	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)

	if call.Method != http.MethodHead {
		_, _ = w.Write(body) // an error means that the client is gone
	}

	return nil
}

// state tells the states that the document is made of apart: the positions of all
// domains' histories at this node.
func (h *WebOfAgents) state() uint64 {
	digest := xxhash.New()
	writeLine(digest, h.cfg.Index())

	for _, td := range h.cfg.Reader.View.Origins() {
		at, _ := h.cfg.Reader.Position(td)
		writeLine(digest, directory.FormatIndex(td, at))
	}

	return digest.Sum64()
}

func writeLine(h hash.Hash64, text string) { _, _ = io.WriteString(h, text+"\n") } // never fails

// render writes the document of a query: as many agents as one document may have.
func (h *WebOfAgents) render(query index.Query) *page {
	p := &page{}
	data := []byte(`{"woa_version":"1","agents":[`)

	tail := []byte(`],"transports":{}}` + "\n")
	if h.cfg.Invocable != nil {
		tail = h.appendTransports([]byte(`],"transports":`))
		data = h.appendAgents(data, p, query, maxDocument-len(tail))
	}

	data = append(data, tail...)

	p.body = slices.Clip(data)
	p.compressed = slices.Clip(response.Compress(data))
	p.etag = fmt.Sprintf(`"%016x"`, xxhash.Sum64(data))

	return p
}

// appendTransports appends the one transport of all agents, this directory's gateway
// (gaikwad 4.3.1), and closes the document.
func (h *WebOfAgents) appendTransports(b []byte) []byte {
	b = strictjson.AppendText(append(b, `{"rest":{`...), "base", h.cfg.PublicURL)
	return append(strictjson.AppendText(b, "invoke_path", "/agents/{agent_id}/invoke"), "}}}\n"...)
}

// appendAgents appends agents until there are no more, or the document is full; p then
// says where the next one begins.
func (h *WebOfAgents) appendAgents(data []byte, page *page, query index.Query, limit int) []byte {
	query.Count = index.MaxCount
	for n := 0; ; {
		found := h.cfg.Reader.View.Lookup(query, h.hosted)
		for _, entry := range found.Entries {
			before := len(data)
			if n > 0 {
				data = append(data, ',')
			}

			data = h.cfg.Reader.Render.AppendHosted(data, entry)
			if n == maxAgents || len(data) > limit {
				// The agent that doesn't fit begins the next document.
				page.more = true
				page.next = query.After

				return data[:before]
			}

			page.endBy(entry.ExpiresAt)

			n++
			query.After = h.cfg.Reader.View.CursorOf(entry)
		}

		if !found.More {
			return data
		}
	}
}

// hosted is a registration as the document lists it; nil if it doesn't. Its rid must be
// unique here: two domains may have registrations of one rid, and then it would not say
// which is meant (gaikwad 4.1).
func (h *WebOfAgents) hosted(entry *directory.Entry) *directory.Entry {
	if !h.cfg.Invocable(entry) {
		return nil
	}

	decision := h.cfg.Read(directory.Identity{}, entry)
	if !decision.Allow {
		return nil
	}

	if entry.Origin != h.cfg.Domain {
		found := h.cfg.Reader.View.Find(entry.RID.String())
		if len(found) != 1 || found[0].Origin != entry.Origin {
			return nil
		}
	}

	return h.cfg.Reader.Guard.MarkFor(kinds.Redact(entry, decision.Redaction), func(e *directory.Entry) bool {
		return h.cfg.Read(directory.Identity{}, e).Allow
	})
}
