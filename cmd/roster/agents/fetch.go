package agents

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
	"github.com/roster-mesh/roster/gateway/probe"
)

// Bounds of a registry's list.
const (
	maxPages     = 1000
	maxPageBytes = 256 << 20 // of all pages together
)

// crawl reads an origin's Web of Agents document.
func (im *importer) crawl(ctx context.Context, source string) ([]*item, error) {
	origin, err := crawl.ParseOrigin(source)
	if err != nil {
		return nil, cli.Usage("%v", err).
			WithHint("Give an origin, such as https://api.example.com, or the https URL of a document.")
	}

	guard, err := im.fetch.Guard(im.session.Console)
	if err != nil {
		return nil, err
	}
	defer guard.Close()

	result, err := crawl.Fetch(ctx, guard, origin, nil)
	if err != nil {
		return nil, fetchFailure(origin, err)
	}

	// Without --lt, the lease follows the origin's caching: agents that are no longer listed expire.
	im.options.Lifetime = cmp.Or(im.options.Lifetime, time.Duration(result.Lease())*time.Second)

	items := make([]*item, len(result.Agents))
	for n, agent := range result.Agents {
		items[n] = &item{
			Source:   fmt.Sprintf("%s#%d", origin, n+1),
			Agent:    agent.Name,
			Warnings: agent.Warnings,
			document: agent.Document.Bytes(),
		}
		if agent.Err != nil {
			// A refused agent stays an item, so that the report shows it.
			items[n].refuse(agent.Err)
		}
	}

	return items, nil
}

// fetchItems reads the documents at a URL: one, an array, or a registry's list with all its
// pages.
func (im *importer) fetchItems(ctx context.Context, source string) ([]*item, error) {
	start, err := url.Parse(source)
	if err != nil || start.Scheme != "https" || start.Host == "" {
		return nil, cli.Usage("invalid source %.200q: URLs must be https", source)
	}

	// The URL becomes the source that the registrations record and publish.
	if start.User != nil {
		return nil, cli.Usage("invalid source %q: leave out the user name and password", source)
	}

	if im.kind == directory.KindA2A && strings.Trim(start.Path, "/") == "" {
		start.Path = probe.CardPath
	}

	guard, err := im.fetch.Guard(im.session.Console)
	if err != nil {
		return nil, err
	}
	defer guard.Close()

	list := listReader{kind: im.kind, start: start, guard: guard, seen: map[string]bool{}}
	items, err := list.readAll(ctx)
	im.leftOut = list.leftOut

	return items, err
}

// A listReader reads the pages of a registry's list.
type listReader struct {
	kind  directory.Kind
	start *url.URL
	guard *gateway.Guard

	seen  map[string]bool // pages by URL
	size  int             // bytes of all pages
	items []*item

	leftOut int // documents that are not current
}

func (l *listReader) readAll(ctx context.Context) ([]*item, error) {
	for page := l.start; page != nil; {
		// A registry can list pages without end, so these bounds are for all pages together.
		if len(l.seen) == maxPages || len(l.items) > maxItems || l.size > maxPageBytes {
			return nil, cli.Failed(cli.ExitFailed,
				"the list at %s is too long: at most %d documents, %d pages and %d bytes",
				l.start, maxItems, maxPages, maxPageBytes)
		}

		// A cursor that leads back would meet a bound in the end, with a misleading reason.
		if l.seen[page.String()] {
			return nil, cli.Failed(cli.ExitFailed, "the list at %s never ends: it leads back to %s", l.start, page)
		}

		body, err := l.fetchPage(ctx, page)
		if err != nil {
			return nil, fetchFailure(page, err)
		}

		if err := l.addItems(body); err != nil {
			return nil, err
		}

		l.seen[page.String()] = true
		page = nextPage(l.start, body)
	}

	return l.items, nil
}

func (l *listReader) fetchPage(ctx context.Context, page *url.URL) ([]byte, error) {
	request, err := http.NewRequest(http.MethodGet, page.String(), nil)
	if err != nil {
		return nil, err
	}

	request.Header.Set("Accept", "application/json")

	response, err := l.guard.Fetch(ctx, request, gateway.Target{MaxBody: maxCatalogue})
	if err == nil && response.Status != http.StatusOK {
		err = fmt.Errorf("status %d", response.Status)
	}

	if err != nil {
		return nil, err
	}

	l.size += len(response.Body)

	return response.Body, nil
}

// addItems adds the current documents of one page.
func (l *listReader) addItems(body []byte) error {
	onPage, leftOut, err := itemsOf(l.kind, l.start.String(), body)
	if err != nil {
		return err
	}

	// A single document at a URL is no list, and its source has no number.
	isList := len(onPage)+leftOut > 1 || len(l.seen) > 0
	l.leftOut += leftOut

	for _, i := range onPage {
		if isList {
			i.Source = fmt.Sprintf("%s#%d", l.start, len(l.items)+1)
		}

		l.items = append(l.items, i)
	}

	return nil
}

func fetchFailure(at *url.URL, err error) error {
	failure := cli.Failed(cli.ExitFailed, "cannot fetch %s: %s", at, cli.NetworkCause(err))
	if gateway.RuleOf(err) == gateway.RuleAddress {
		failure = failure.WithHint(connect.HintPublicAddress)
	}

	return failure
}

// isLatest reports whether a registry lists an item as the current version, neither older
// nor withdrawn. An item without such data is current.
func isLatest(kind directory.Kind, i *item) bool {
	type version struct {
		Status       string `json:"status"`
		IsLatest     *bool  `json:"isLatest"`
		SeedIsLatest *bool  `json:"is_latest"` // the member's name in the first registries
	}

	var (
		meta     map[string]jsontext.Value
		document struct {
			Detail version                   `json:"version_detail"` // in the first registries
			Status string                    `json:"status"`         // before it moved to _meta
			Meta   map[string]jsontext.Value `json:"_meta"`
		}
	)

	// Metadata of another shape says nothing about versions, so these errors are ignored.
	_ = json.Unmarshal(i.meta, &meta)
	_ = json.Unmarshal(i.document, &document)

	// Only in a server.json do these members tell the version's state.
	if kind != directory.KindMCP {
		document.Status, document.Meta = "", nil
	}

	versions := []version{document.Detail, {Status: document.Status}}

	// Each registry has its own key in _meta, so all parts are read.
	for _, raw := range slices.AppendSeq(slices.Collect(maps.Values(meta)), maps.Values(document.Meta)) {
		var v version
		_ = json.Unmarshal(raw, &v)
		versions = append(versions, v)
	}

	for _, v := range versions {
		if v.IsLatest != nil && !*v.IsLatest || v.SeedIsLatest != nil && !*v.SeedIsLatest || v.Status == "deleted" {
			return false
		}
	}

	return true
}

// nextPage returns the page after one of an MCP registry's list; nil after the last one.
func nextPage(start *url.URL, body []byte) *url.URL {
	var list struct {
		Metadata struct {
			Next     string `json:"nextCursor"`
			SeedNext string `json:"next_cursor"` // the member's name in the first registries
		} `json:"metadata"`
	}

	// A single document and an array have no cursor: they are the last page.
	_ = json.Unmarshal(body, &list)

	cursor := cmp.Or(list.Metadata.Next, list.Metadata.SeedNext)
	if cursor == "" {
		return nil
	}

	// The cursor is added to the first URL, so that no list leads to another host.
	next := *start
	query := next.Query()
	query.Set("cursor", cursor)
	next.RawQuery = query.Encode()

	return &next
}
