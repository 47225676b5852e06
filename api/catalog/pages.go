package catalog

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory/index"
)

// Times and sizes of the page cache.
const (
	minServed   = time.Second // for which a page is served without checking
	maxServed   = time.Minute // after which a page is rendered again
	cacheMemory = 32 << 20    // bytes of all pages
	// renderShare is how many times as long as it took to check and render a page it is
	// served at least. So rendering takes at most this share of a processor.
	renderShare = 10
)

// A page is a page of the Web of Agents document. It never changes.
type page struct {
	body, compressed []byte
	etag             string // of body
	modified         string // when it was last changed
	more             bool
	next             index.Cursor // of the next page, if there is more

	state uint64    // that it was made of
	made  time.Time // when
	ends  time.Time // the earliest deadline in it; zero if it lists nothing
}

// endBy notes the deadline of a registration in the page, in Unix milliseconds.
func (p *page) endBy(deadline int64) {
	if ends := time.UnixMilli(deadline); p.ends.IsZero() || ends.Before(p.ends) {
		p.ends = ends
	}
}

// maxAge is how many seconds a cache may keep the page: no longer than its registrations
// live.
func (p *page) maxAge() int {
	if p.ends.IsZero() {
		return int(maxServed.Seconds())
	}

	return int(max(min(time.Until(p.ends), maxServed), 0).Seconds())
}

// ended reports whether a registration in the page has ended. Such a page is not served, even while the next one is
// rendered (AD-024).
func (p *page) ended() bool { return !p.ends.IsZero() && !time.Now().Before(p.ends) }

func (p *page) size(key string) int { return len(p.body) + len(p.compressed) + len(key) + 512 }

// A cachedPage is a page in memory.
type cachedPage struct {
	*page

	until time.Time // served without checking
	used  time.Time
}

// A pageCache keeps the pages that were asked for recently. One is rendered at a time. It
// is safe for concurrent use.
type pageCache struct {
	rendering chan struct{} // holds a token while a page is rendered

	mu    sync.Mutex // guards the fields below
	pages map[string]*cachedPage
	bytes int
}

func newPageCache() *pageCache {
	return &pageCache{rendering: make(chan struct{}, 1), pages: map[string]*cachedPage{}}
}

// page returns the page of a key: from memory, or from render. While another call renders
// a page, the previous one of the key is served.
func (ps *pageCache) page(
	ctx context.Context, key string, state func() uint64, render func() (*page, error),
) (*page, error) {
	p, fresh := ps.cached(key)
	if fresh {
		return p, nil
	}

	select {
	case ps.rendering <- struct{}{}:
	default:
		// An old page is better than a wait, as long as no registration in it has ended.
		if p != nil && !p.ended() && time.Since(p.made) < 2*maxServed {
			return p, nil
		}

		select {
		case ps.rendering <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}

	defer func() { <-ps.rendering }()

	// Another call may have rendered the page while this one waited.
	if p, fresh = ps.cached(key); fresh {
		return p, nil
	}

	began := time.Now()

	// The state is read before the page is rendered, so a change meanwhile makes the page look old.
	now := state()
	if p == nil || p.ended() || p.state != now || time.Since(p.made) >= maxServed {
		rendered, err := render()
		if err != nil {
			return nil, err
		}

		p = dated(p, rendered, now)
	}

	ps.keep(key, p, max(minServed, renderShare*time.Since(began)))

	return p, nil
}

// dated returns a page that was just rendered with its date: the previous page's, if both
// are the same.
func dated(previous, page *page, state uint64) *page {
	page.state = state
	page.made = time.Now()

	page.modified = page.made.UTC().Format(http.TimeFormat)
	if previous != nil && previous.etag == page.etag {
		page.modified = previous.modified
	}

	return page
}

// cached returns the page of a key in memory; nil if there is none.
func (ps *pageCache) cached(key string) (p *page, fresh bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()

	cached, ok := ps.pages[key]
	if !ok {
		return nil, false
	}

	cached.used = time.Now()

	return cached.page, cached.used.Before(cached.until) && !cached.ended()
}

// keep stores a page, and drops the least recently used ones if there is no room.
func (ps *pageCache) keep(key string, page *page, served time.Duration) {
	ps.mu.Lock()
	defer ps.mu.Unlock()

	ps.drop(key)
	now := time.Now()
	ps.pages[key] = &cachedPage{page: page, until: now.Add(served), used: now}
	ps.bytes += page.size(key)

	for ps.bytes > cacheMemory {
		oldest := key
		for k, other := range ps.pages {
			if other.used.Before(ps.pages[oldest].used) {
				oldest = k
			}
		}

		ps.drop(oldest)
	}
}

func (ps *pageCache) drop(key string) {
	if cached, ok := ps.pages[key]; ok {
		ps.bytes -= cached.size(key)
		delete(ps.pages, key)
	}
}
