package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
	"github.com/roster-mesh/roster/gateway/probe"
)

// Bounds of a registry's list: pages, and bytes on all of them.
const (
	maxLists  = 1000
	maxListed = 256 << 20
)

// A fetching is from where a command may fetch what is not the directory's.
type fetching struct {
	*app
	loopback     bool   // from there too
	sourceBundle string // a file: who certifies what is fetched from; empty for the system's
}

func (f *fetching) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.sourceBundle, "source-bundle", "", "PEM file of the authorities that certify where it is fetched from (default: the system's)")
	c.Flags().BoolVar(&f.loopback, "insecure-loopback", false, "also fetch from this machine's loopback addresses, for tests")
}

// guard returns what foreign documents are fetched through: by https, from public
// addresses, without this caller's credentials.
func (f *fetching) guard() (*gateway.Guard, error) {
	var cfg gateway.GuardConfig
	if f.loopback {
		cfg.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	if f.sourceBundle != "" {
		pem, err := f.readFile(f.sourceBundle, directory.MaxDocument)
		if err != nil {
			return nil, err
		}
		if cfg.Roots = x509.NewCertPool(); !cfg.Roots.AppendCertsFromPEM(pem) {
			return nil, failed(exitFailed, "the bundle %s has no certificate in PEM", f.sourceBundle)
		}
	}
	return gateway.NewGuard(cfg), nil
}

// crawl reads an origin's Web of Agents document. Where last, which may be nil, still
// holds, there are no items.
func (im *importing) crawl(ctx context.Context, source string, last *crawl.Result) ([]*item, *crawl.Result, error) {
	at, err := crawl.ParseOrigin(source)
	if err != nil {
		return nil, nil, usage("%v", err).because("Give an origin, such as https://api.example.com, or the https URL of a document.")
	}
	g, err := im.guard()
	if err != nil {
		return nil, nil, err
	}
	defer g.Close()
	c, err := crawl.Fetch(ctx, g, at, last)
	if err != nil {
		return nil, nil, unfetched(at, err)
	}
	if c.Unchanged {
		return nil, c, nil
	}
	items := make([]*item, len(c.Agents))
	for n, a := range c.Agents {
		items[n] = &item{Source: fmt.Sprintf("%s#%d", at, n+1), Agent: a.Name, Warnings: a.Warnings, document: a.Document.Bytes()}
		if a.Err != nil {
			items[n].refuse(a.Err)
		}
	}
	return items, c, nil
}

// fetch reads documents at a URL: one, or a registry's list, page by page.
func (im *importing) fetch(ctx context.Context, source string) (items []*item, err error) {
	at, err := url.Parse(source)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		return nil, usage("%.200q is not an https URL", source)
	}
	if im.kind == directory.KindA2A && strings.Trim(at.Path, "/") == "" {
		at.Path = probe.CardPath
	}
	g, err := im.guard()
	if err != nil {
		return nil, err
	}
	defer g.Close()
	read, bytes := map[string]bool{}, 0
	for page, n := at, 0; page != nil; n++ {
		switch {
		case n == maxLists || len(items) > maxItems || bytes > maxListed:
			return nil, failed(exitFailed, "%s lists over %d documents, or on over %d pages, or in over %d bytes", at, maxItems, maxLists, maxListed)
		case read[page.String()]:
			return nil, failed(exitFailed, "the list at %s has no end: it leads back to %s", at, page)
		}
		read[page.String()] = true
		r, err := http.NewRequest(http.MethodGet, page.String(), nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Accept", "application/json")
		a, err := g.Fetch(ctx, r, gateway.Target{MaxBody: maxCatalogue})
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("it answers with status %d", a.Status)
		}
		if err != nil {
			return nil, unfetched(page, err)
		}
		bytes += len(a.Body)
		of, err := itemsOf(im.kind, at.String(), a.Body)
		if err != nil {
			return nil, err
		}
		for _, i := range of {
			if latest(i) {
				if len(of) > 1 || n > 0 {
					i.Source = fmt.Sprintf("%s#%d", at, len(items)+1)
				}
				items = append(items, i)
			}
		}
		page = nextList(at, a.Body)
	}
	return items, nil
}

func unfetched(at *url.URL, err error) error {
	f := failed(exitFailed, "%s can't be read: %w", at, err)
	if gateway.RuleOf(err) == gateway.RuleAddress {
		f = f.because("Only public addresses are asked; for a test on this machine there is --insecure-loopback.")
	}
	return f
}

// latest is whether a registry's list has this one as the version that counts: not
// an older one, nor one that was withdrawn. What says nothing of it counts.
func latest(i *item) bool {
	type version struct {
		Status   string `json:"status"`
		IsLatest *bool  `json:"isLatest"`
		Older    *bool  `json:"is_latest"` // as it was called at first
	}
	var meta map[string]jsontext.Value
	var seed struct {
		Detail version `json:"version_detail"`
	}
	_ = json.Unmarshal(i.meta, &meta) // what is no such object says nothing of it
	_ = json.Unmarshal(i.document, &seed)
	said := []version{seed.Detail}
	for _, raw := range meta {
		var v version
		_ = json.Unmarshal(raw, &v)
		said = append(said, v)
	}
	for _, v := range said {
		if v.IsLatest != nil && !*v.IsLatest || v.Older != nil && !*v.Older || v.Status == "deleted" {
			return false
		}
	}
	return true
}

// nextList is the page behind one of an MCP registry's list; nil where there is
// none.
func nextList(at *url.URL, body []byte) *url.URL {
	var list struct {
		Metadata struct {
			Next  string `json:"nextCursor"`
			Older string `json:"next_cursor"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(body, &list)
	cursor := cmp.Or(list.Metadata.Next, list.Metadata.Older)
	if cursor == "" {
		return nil
	}
	next := *at
	query := next.Query()
	query.Set("cursor", cursor)
	next.RawQuery = query.Encode()
	return &next
}
