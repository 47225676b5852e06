package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory/index"
)

// How long a page of our Web of Agents document is served before it is looked
// whether it still holds, how often it is made anew at least, and how many bytes of
// pages are kept.
const (
	woaPace   = time.Second
	woaAge    = time.Minute
	woaMemory = 32 << 20
	// woaShare is how many times as long as a page took to make it is served at
	// least: making them takes so much of a processor at most.
	woaShare = 10
)

// A woaPage is a page of our Web of Agents document. What is in it never changes.
type woaPage struct {
	body, coded []byte // plain, and compressed
	etag        string // of body
	modified    string // when it became what it is
	more        bool
	next        index.Cursor // where the next page begins, where more is set

	state uint64    // that it was made of
	made  time.Time // when
}

func (p *woaPage) size(key string) int { return len(p.body) + len(p.coded) + len(key) + 512 }

// A keptPage is a page in memory.
type keptPage struct {
	*woaPage
	until time.Time // it is served unseen
	used  time.Time
}

// woaPages are the pages that somebody asked for of late. One at a time is made.
type woaPages struct {
	making chan struct{} // holds a token while one is made

	mu    sync.Mutex // guards what follows
	pages map[string]*keptPage
	bytes int
}

func newWoAPages() *woaPages {
	return &woaPages{making: make(chan struct{}, 1), pages: map[string]*keptPage{}}
}

// page returns the page of a key: from memory, or as render makes it. While
// another call makes one, what was there a moment ago is served.
func (ps *woaPages) page(ctx context.Context, key string, state func() uint64, render func() (*woaPage, error)) (*woaPage, error) {
	p, fresh := ps.kept(key)
	if fresh {
		return p, nil
	}
	select {
	case ps.making <- struct{}{}:
	default:
		if p != nil && time.Since(p.made) < 2*woaAge {
			return p, nil
		}
		select {
		case ps.making <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-ps.making }()
	if p, fresh = ps.kept(key); fresh {
		return p, nil
	}
	began := time.Now()
	now := state()
	if p == nil || p.state != now || time.Since(p.made) >= woaAge {
		made, err := render()
		if err != nil {
			return nil, err
		}
		p = remade(p, made, now)
	}
	ps.keep(key, p, max(woaPace, woaShare*time.Since(began)))
	return p, nil
}

// remade returns a page that was just made; where it is what it was, it is dated as
// it was.
func remade(old, p *woaPage, state uint64) *woaPage {
	p.state, p.made = state, time.Now()
	p.modified = p.made.UTC().Format(http.TimeFormat)
	if old != nil && old.etag == p.etag {
		p.modified = old.modified
	}
	return p
}

// kept returns the page of a key in memory; nil where there is none.
func (ps *woaPages) kept(key string) (p *woaPage, fresh bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	k, ok := ps.pages[key]
	if !ok {
		return nil, false
	}
	k.used = time.Now()
	return k.woaPage, k.used.Before(k.until)
}

// keep keeps a page, and forgets those that were asked for longest ago where there
// is no room.
func (ps *woaPages) keep(key string, p *woaPage, unseen time.Duration) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.forget(key)
	now := time.Now()
	ps.pages[key] = &keptPage{p, now.Add(unseen), now}
	for ps.bytes += p.size(key); ps.bytes > woaMemory; {
		oldest := key
		for k, other := range ps.pages {
			if other.used.Before(ps.pages[oldest].used) {
				oldest = k
			}
		}
		ps.forget(oldest)
	}
}

func (ps *woaPages) forget(key string) {
	if k, ok := ps.pages[key]; ok {
		ps.bytes -= k.size(key)
		delete(ps.pages, key)
	}
}
