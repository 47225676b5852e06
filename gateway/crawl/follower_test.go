package crawl

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/gateway/gatewaytest"
)

// A following is one follower, an origin and the registrations of a domain.
type following struct {
	*Follower
	t     *testing.T
	lines bytes.Buffer

	// What the origin serves.
	agents []string
	known  []string // If-None-Match of its requests
	broken bool
	// instead answers in place of the origin, if it is not nil.
	instead func(w http.ResponseWriter, r *http.Request)

	// The registrations, and what was asked of them.
	entries  map[string]*directory.Entry
	asked    []string
	policy   permission
	refuses  error // all changes
	scanned  bool
	number   byte // of the last registration
	lifetime uint32
}

func newFollowing(t *testing.T) *following {
	t.Helper()

	f := &following{t: t, entries: map[string]*directory.Entry{}}
	server := gatewaytest.Serve(t, f)

	origin, err := ParseOrigin(server.URL)
	if err != nil {
		t.Fatal(err)
	}

	f.Follower = &Follower{
		Origin: origin, As: directorytest.Ada, Guard: gatewaytest.NewGuard(t, server),
		Registry: f, Policy: &f.policy, Index: f, IsLeader: func() bool { return true },
		Contain: func(read func()) { read() }, Logger: slog.New(slog.NewTextHandler(&f.lines, nil)),
	}

	return f
}

func (f *following) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if accepts := r.Header.Get("Accept"); !strings.HasPrefix(accepts, "application/woa+json") {
		f.t.Errorf("a request accepts %q", accepts)
	}

	f.known = append(f.known, r.Header.Get("If-None-Match"))
	document := gatewaytest.WoADocument(gatewaytest.WoARest, f.agents...)

	w.Header().Set("Content-Type", "application/woa+json")
	w.Header().Set("Cache-Control", "max-age=600")
	w.Header().Set("ETag", `"`+directory.HashOf([]byte(document)).String()+`"`)

	switch {
	case f.instead != nil:
		f.instead(w, r)
	case f.broken:
		w.WriteHeader(http.StatusInternalServerError)
	case r.Header.Get("If-None-Match") == w.Header().Get("ETag"):
		w.WriteHeader(http.StatusNotModified)
	default:
		_, _ = w.Write([]byte(document))
	}
}

func (f *following) name(id string) string {
	return id + "@" + strings.ToLower(f.Origin.Host)
}

// hold adds a registration that is there already.
func (f *following) hold(name string, change func(*directory.Entry)) {
	f.number++

	entry := &directory.Entry{
		Agent: name, Owner: f.As, RID: directorytest.RID(f.number),
		Document:  directory.LoadDocument(directory.KindWoA, []byte(`{}`)),
		ExpiresAt: time.Now().Add(time.Hour).UnixMilli(),
	}
	if change != nil {
		change(entry)
	}

	f.entries[name] = entry
}

// done returns what was asked since the last call, sorted.
func (f *following) done() string {
	slices.Sort(f.asked)
	asked := strings.ReplaceAll(strings.Join(f.asked, ", "), strings.ToLower(f.Origin.Host), "HOST")
	f.asked = nil

	return asked
}

func (f *following) nameOf(rid directory.RID) string {
	for name, entry := range f.entries {
		if entry.RID == rid {
			return name
		}
	}

	return "nobody"
}

func (f *following) ask(caller directory.Caller, change, name string) error {
	if caller.Identity != f.As || caller.RequestID != "crawl of "+f.Origin.Host {
		f.t.Errorf("%s of %s by %+v", change, name, caller)
	}

	f.asked = append(f.asked, change+" "+name)

	return f.refuses
}

func (f *following) Register(_ context.Context, req directory.RegisterRequest) (directory.Outcome, error) {
	err := f.ask(req.Caller, "register", req.Agent)
	if err == nil {
		f.lifetime = req.Lifetime
		f.hold(req.Agent, func(e *directory.Entry) { e.Document, e.Visibility = req.Document, req.Visibility })
	}

	return directory.Outcome{}, err
}

func (f *following) RefreshMany(_ context.Context, batch directory.RefreshBatch) (directory.Outcome, error) {
	var err error
	for _, item := range batch.Items {
		f.lifetime = item.Lifetime
		err = f.ask(batch.Caller, "refresh", f.nameOf(item.RID))
	}

	return directory.Outcome{}, err
}

func (f *following) Remove(_ context.Context, req directory.RemoveRequest) (directory.Outcome, error) {
	name := f.nameOf(req.RID)

	err := f.ask(req.Caller, "remove", name)
	if err == nil {
		delete(f.entries, name)
	}

	return directory.Outcome{}, err
}

// A permission permits all names but one.
type permission struct{ forbidden string }

func (p *permission) DefaultVisibility() directory.Visibility {
	return directory.Visibility{Mesh: true}
}

func (p *permission) Register(_ directory.Identity, agent string, _ *directory.Projection,
	_ directory.Visibility) directory.Decision {
	return directory.Decision{Allow: agent != p.forbidden}
}

func (p *permission) Renew(e *directory.Entry) directory.Decision {
	return directory.Decision{Allow: e.Agent != p.forbidden}
}

func (f *following) All() iter.Seq[*directory.Entry] {
	return func(yield func(*directory.Entry) bool) {
		f.scanned = true

		maps.Values(maps.Clone(f.entries))(yield)
	}
}

func (f *following) Named(agent string) []*directory.Entry {
	if entry := f.entries[agent]; entry != nil {
		return []*directory.Entry{entry}
	}

	return nil
}

// The directory follows the origin's list: new and changed agents are registered, others refreshed, and
// those that are no longer listed removed. Nothing that isn't the crawler's own is touched.
//
// Requirement: WOA-013, WOA-032
func TestADirectoryFollowsAnOrigin(t *testing.T) {
	f := newFollowing(t)
	bob := directorytest.Bob

	f.agents = []string{gatewaytest.WoAAgent("a", ``), gatewaytest.WoAAgent("b", ``)}
	f.hold(f.name("gone"), nil)
	f.hold(f.name("another-owner"), func(e *directory.Entry) { e.Owner = bob })
	f.hold(f.name("expired"), func(e *directory.Entry) { e.ExpiresAt = time.Now().UnixMilli() })
	f.hold("x@elsewhere.example", nil)
	f.hold(f.name("card"), func(e *directory.Entry) {
		e.Document = directory.LoadDocument(directory.KindA2A, []byte(`{}`))
	})

	again := f.crawl(t.Context())
	if got := f.done(); got != "register a@HOST, register b@HOST, remove gone@HOST" || again != 10*time.Minute {
		t.Errorf("at first: %s; again after %v", got, again)
	}

	if entry := f.entries[f.name("a")]; !entry.Visibility.Mesh || f.lifetime != 3*600+directory.MinLifetime {
		t.Errorf("registered with visibility %v for %d s", entry.Visibility, f.lifetime)
	}

	// The same list is not sent again, and its agents are found by their names.
	f.scanned = false

	f.crawl(t.Context())

	if got := f.done(); got != "refresh a@HOST, refresh b@HOST" || f.scanned || f.known[0] != "" || f.known[1] == "" {
		t.Errorf("the same list: %s; all registrations were scanned: %t; requests knew %q", got, f.scanned, f.known)
	}

	f.agents = []string{gatewaytest.WoAAgent("a", `,"version":"2"`), gatewaytest.WoAAgent("c", ``)}

	f.crawl(t.Context())

	if got := f.done(); got != "register a@HOST, register c@HOST, remove b@HOST" {
		t.Errorf("another list: %s", got)
	}
}

// An agent that is refused, by its entry or by policy, excludes no other, and what is registered of it
// is left to expire.
//
// Requirement: WOA-031
func TestARefusedAgentExcludesNoOther(t *testing.T) {
	f := newFollowing(t)
	f.agents = []string{
		gatewaytest.WoAAgent("faulty", `,"authz":{"access_token":"s3cret"}`), gatewaytest.WoAAgent("forbidden", ``),
		gatewaytest.WoAAgent("good", ``),
	}
	f.policy.forbidden = f.name("forbidden")
	f.hold(f.name("faulty"), nil)
	f.hold(f.name("forbidden"), nil)

	f.crawl(t.Context())

	if got := f.done(); got != "register good@HOST" {
		t.Errorf("asked: %s", got)
	}

	for _, line := range []string{"agent=faulty@", "agent=forbidden@", "policy does not permit"} {
		if !strings.Contains(f.lines.String(), line) {
			t.Errorf("the log lacks %q:\n%s", line, &f.lines)
		}
	}

	f.policy.forbidden = f.name("good")
	if f.crawl(t.Context()); strings.Contains(f.done(), "good@") || f.entries[f.name("good")] == nil {
		t.Error("an agent that policy no longer permits is renewed, or removed before its deadline")
	}

	f.refuses = directory.Refuse(directory.Conflict, "the name is another's")
	f.agents = []string{gatewaytest.WoAAgent("taken", ``), gatewaytest.WoAAgent("too", ``)}

	if f.crawl(t.Context()); f.done() != "register taken@HOST, register too@HOST, remove faulty@HOST, "+
		"remove forbidden@HOST, remove good@HOST" || f.last == nil {
		t.Error("a refusal by the directory ended the crawl")
	}
}

// A crawl that fails, at the origin or because the directory has no leader, is repeated after a minute
// and from the whole list, because nobody knows what was done.
//
// Requirement: WOA-032
func TestAFailedCrawlBeginsAnew(t *testing.T) {
	for name, fail := range map[string]func(f *following){
		"origin":       func(f *following) { f.broken = true },
		"no leader":    func(f *following) { f.refuses = directory.Refuse(directory.Unavailable, "no leader") },
		"unknown":      func(f *following) { f.refuses = directory.Refuse(directory.OutcomeUnknown, "cut off") },
		"other errors": func(f *following) { f.refuses = errors.New("disk") },
	} {
		one, none := []string{gatewaytest.WoAAgent("a", ``)}, []string{}

		for what, lists := range map[string][2][]string{
			"new": {none, one}, "same": {one, one}, "gone": {one, none},
		} {
			f := newFollowing(t)
			f.agents = lists[0]
			f.crawl(t.Context())
			f.done()

			f.agents = lists[1]
			fail(f)

			again := f.crawl(t.Context())
			if again != time.Minute || f.last != nil ||
				!strings.Contains(f.lines.String(), "crawl of an origin failed") {
				t.Errorf("%s, %s: again after %v, the last list kept: %t\n%s", name, what, again, f.last != nil,
					&f.lines)
			}

			f.broken, f.refuses = false, nil
			f.crawl(t.Context())

			if known := f.known[len(f.known)-1]; known != "" {
				t.Errorf("%s, %s: the next request knows %s", name, what, known)
			}
		}
	}
}

// An origin that answers differently at each crawl, or page, is taken whole or not at all: nothing of what it
// listed before is changed, refreshed or removed by a part of a list.
//
// Requirement: WOA-032, SEC-010
func TestAPartOfAListChangesNothing(t *testing.T) {
	list := gatewaytest.WoADocument(gatewaytest.WoARest, gatewaytest.WoAAgent("a", `,"version":"2"`),
		gatewaytest.WoAAgent("c", ``))

	// paged answers with a first page, and with that of the argument behind it.
	paged := func(second http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "page=2" {
				second(w, r)

				return
			}

			w.Header().Set("Link", `<?page=2>; rel="next"`)
			_, _ = w.Write([]byte(list))
		}
	}

	for name, instead := range map[string]http.HandlerFunc{
		"a page that fails": paged(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}),
		"a page that has not changed": paged(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotModified)
		}),
		"a page of another type": paged(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(list))
		}),
		"a page elsewhere": paged(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://169.254.169.254/", http.StatusFound)
		}),
		"a page that is cut off": paged(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte(list))
		}),
		"a page that is too large": paged(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte(" "), maxWoA))
			_, _ = w.Write([]byte(list))
		}),
		"half a list": paged(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(list[:len(list)/2]))
		}),
		"pages without end": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", `<?page=2>; rel="next"`)
			_, _ = w.Write([]byte(list))
		},
		"redirects without end": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		},
	} {
		f := newFollowing(t)
		f.agents = []string{gatewaytest.WoAAgent("a", ``), gatewaytest.WoAAgent("b", ``)}
		f.crawl(t.Context())
		f.done()

		f.instead = instead
		if again, asked := f.crawl(t.Context()), f.done(); asked != "" || again != retryAfter {
			t.Errorf("%s: again after %v, asked for %q", name, again, asked)
		}

		f.instead = nil
		f.crawl(t.Context())

		if asked := f.done(); asked != "refresh a@HOST, refresh b@HOST" {
			t.Errorf("%s: once the origin answers again, asked for %q", name, asked)
		}
	}
}

// Only the leader's node crawls. A node that led before asks for the whole list when it leads again. A
// panic on foreign bytes is contained, and the crawl is repeated after a minute.
func TestTheLeadersNodeCrawls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			leads  atomic.Bool
			crawls atomic.Int32
		)

		f := &Follower{
			IsLeader: leads.Load,
			Contain:  func(func()) { crawls.Add(1) }, // as after a panic
			last:     &Result{},
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})

		go func() { defer close(done); f.Run(ctx) }()

		for _, step := range []struct {
			leads bool
			after time.Duration
			want  int32
		}{{false, time.Minute, 0}, {true, leaderInterval + time.Second, 1}, {true, 2 * time.Minute, 3}} {
			leads.Store(step.leads)
			time.Sleep(step.after)
			synctest.Wait()

			if got := crawls.Load(); got != step.want {
				t.Errorf("%d crawls, want %d", got, step.want)
			}
		}

		cancel()

		if <-done; f.last != nil {
			t.Error("a node that doesn't lead keeps the last list")
		}
	})
}
