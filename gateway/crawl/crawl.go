package crawl

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
)

const (
	// Path is the location of an origin's Web of Agents document (draft-gaikwad-woa, 4).
	Path = "/.well-known/woa.json"

	maxWoA      = 8 << 20 // bytes of a page
	maxWoAPages = 64
	maxWoAAll   = 64 << 20 // bytes of all pages, and of the documents that are made of them

	// Validity of a crawl's result (WOA-032).
	minFresh     = 60 * time.Second
	maxFresh     = 24 * time.Hour
	defaultFresh = time.Hour // if the origin names none
)

// ParseOrigin returns the URL of a Web of Agents document: at a URL, or at the
// well-known place of an origin, whose https:// may be left out (WOA-035).
func ParseOrigin(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}

	target, err := url.Parse(text)
	switch {
	case err != nil || target.Host == "" || target.User != nil || target.Fragment != "":
		return nil, fmt.Errorf("%.200q is neither an origin nor a URL", text)
	case target.Scheme != "https":
		return nil, fmt.Errorf("%.200q is not https: plain HTTP is not used for Web of Agents documents", text)
	}

	// One host is written in one way: its agents are named after it.
	target.Host = strings.Replace(strings.TrimSuffix(strings.ToLower(target.Host), ":443"), ".:", ":", 1)

	target.Host = strings.TrimSuffix(target.Host, ".")
	if target.Path == "" || target.Path == "/" {
		target.Path = Path
	}

	return target, nil
}

// A Result holds the agents of an origin's Web of Agents document, as of one crawl.
type Result struct {
	// Unchanged means that the document is the same as at the previous crawl; Agents are
	// those of that crawl.
	Unchanged bool
	Agents    []Agent
	// Fresh is for how long it may be believed.
	Fresh time.Duration

	etag, modified string
}

// Lease is for how long, in seconds, an agent of the document is registered: three
// crawls that fail let it lapse (WOA-032).
func (c *Result) Lease() uint32 {
	return min(3*uint32(c.Fresh/time.Second)+directory.MinLifetime, directory.MaxLifetime)
}

// Fetch fetches an origin's Web of Agents document, with all its pages, through the
// guard. If last is not nil, the request is conditional on it. Errors are the guard's,
// or describe a fault of the document; an agent that is not accepted has its own.
func Fetch(ctx context.Context, guard *gateway.Guard, at *url.URL, last *Result) (*Result, error) {
	first, err := fetchPage(ctx, guard, at, last)
	if err != nil {
		return nil, err
	}

	if first.Status == http.StatusNotModified {
		again := *last
		again.Unchanged, again.Fresh = true, freshness(first.Header)

		return &again, nil
	}

	result := &Result{Fresh: freshness(first.Header), etag: first.Header.Get("ETag"),
		modified: first.Header.Get("Last-Modified")}

	seen, bytes := map[string]bool{}, 0
	for page, n := first, 1; ; n++ {
		if err := result.take(at, page, seen); err != nil {
			return nil, err
		}

		if bytes += len(page.Body); bytes > maxWoAAll || heldBy(result.Agents) > maxWoAAll {
			return nil, fmt.Errorf("%s has over %d bytes on all its pages, or in its agents' own documents", at,
				maxWoAAll)
		}

		if len(result.Agents) > MaxAgents {
			return nil, fmt.Errorf("%s has over %d agents on all its pages", at, MaxAgents)
		}

		behind, err := next(page)
		switch {
		case err != nil:
			return nil, err
		case behind == nil:
			return result, nil
		case n == maxWoAPages:
			return nil, fmt.Errorf("%s has over %d pages", at, maxWoAPages)
		}

		if page, err = fetchPage(ctx, guard, behind, nil); err != nil {
			return nil, err
		}

		// The tags of the first page say nothing of the others, so a document of several pages is always fetched.
		result.etag, result.modified = "", ""
	}
}

// heldBy returns how long the documents of agents are.
func heldBy(agents []Agent) (n int) {
	for _, a := range agents {
		n += len(a.Document.Bytes())
	}

	return n
}

// take adds the agents of a page. seen are the names on the pages before.
func (c *Result) take(at *url.URL, page *gateway.Answer, seen map[string]bool) error {
	agents, err := Split(at, page.Body)
	if err != nil {
		return err
	}

	for i, a := range agents {
		if seen[a.Name] && a.Err == nil {
			agents[i] = Agent{Name: a.Name, Err: directory.Refuse(directory.BadDocument,
				"another page lists an agent with the same id")}
		}
	}

	for _, a := range agents {
		seen[a.Name] = true
	}

	c.Agents = append(c.Agents, agents...)

	return nil
}

// fetchPage fetches one page.
func fetchPage(ctx context.Context, guard *gateway.Guard, page *url.URL, last *Result) (*gateway.Answer, error) {
	r, err := http.NewRequest(http.MethodGet, page.String(), nil)
	if err != nil {
		return nil, err
	}

	r.Header.Set("Accept", "application/woa+json, application/json;q=0.9")

	switch {
	case last == nil:
	case last.etag != "":
		r.Header.Set("If-None-Match", last.etag)
	case last.modified != "":
		r.Header.Set("If-Modified-Since", last.modified)
	}

	answer, err := guard.Fetch(ctx, r, gateway.Target{MaxBody: maxWoA})
	if err != nil {
		return nil, err
	}

	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	switch {
	case answer.Status == http.StatusNotModified && last != nil:
	case answer.Status != http.StatusOK:
		return nil, fmt.Errorf("%s answers with status %d", page, answer.Status)
	case media != "application/woa+json" && media != "application/json":
		return nil, fmt.Errorf("%s is of type %.60q; it is application/woa+json, or application/json", page, media)
	}

	return answer, nil
}

// freshness returns the time for which an answer is valid, within bounds.
func freshness(h http.Header) time.Duration {
	fresh := defaultFresh
	for directive := range strings.SplitSeq(h.Get("Cache-Control"), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 32); {
		case name == "no-store" || name == "no-cache":
			return minFresh
		case name == "max-age" && err == nil:
			fresh = time.Duration(seconds) * time.Second
		}
	}

	return min(max(fresh, minFresh), maxFresh)
}

// next returns the URL of the following page; nil for the last one. It is at the same authority.
func next(answer *gateway.Answer) (*url.URL, error) {
	for _, link := range strings.Split(strings.Join(answer.Header.Values("Link"), ","), ",") {
		target, params, _ := strings.Cut(strings.TrimSpace(link), ">")
		if !strings.HasPrefix(target, "<") || !strings.Contains(strings.ReplaceAll(params, `"`, ""), "rel=next") {
			continue
		}

		u, err := answer.URL.Parse(target[1:])
		if err != nil || gateway.Authority(u) != gateway.Authority(answer.URL) {
			return nil, fmt.Errorf("the next page of %s is said to be at %.200q, which is elsewhere", answer.URL,
				target[1:])
		}

		return u, nil
	}

	return nil, nil
}
