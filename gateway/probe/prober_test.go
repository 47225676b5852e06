package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/gatewaytest"
)

// A registration is renewed only by a finding of this round that agrees with it as it is: an old
// one says nothing about the agent of today.
//
// Requirement: AD-044
func TestAnOldFindingRenewsNothing(t *testing.T) {
	now := time.Unix(1_780_000_000, 0)

	for name, x := range map[string]struct {
		age       time.Duration
		state     directory.ProbeState
		statement uint64
		left      time.Duration // of a lifetime of ten minutes
		want      bool
	}{
		"now":                  {0, directory.ProbeVerified, 7, time.Minute, true},
		"in the round":         {roundTimeout - time.Millisecond, directory.ProbeVerified, 7, time.Minute, true},
		"of an earlier round":  {roundTimeout, directory.ProbeVerified, 7, time.Minute, false},
		"of another statement": {0, directory.ProbeVerified, 6, time.Minute, false},
		"that differs":         {0, directory.ProbeMismatch, 7, time.Minute, false},
		"before a quarter":     {0, directory.ProbeVerified, 7, 450 * time.Second, false},
		"after a quarter":      {0, directory.ProbeVerified, 7, 450*time.Second - time.Millisecond, true},
	} {
		entry := &directory.Entry{RID: rid(1), Statement: 7, Lifetime: 600, ExpiresAt: now.Add(x.left).UnixMilli()}
		p := &Prober{cfg: ProberConfig{Findings: NewFindings()}}
		p.cfg.Findings.put(entry.RID, pack(directory.Probe{State: x.state, At: now.Add(-x.age).UnixMilli()},
			x.statement))

		if p.isRenewable(entry, now) != x.want {
			t.Errorf("a finding %s renews: %t, want %t", name, !x.want, x.want)
		}
	}
}

// An agent is probed at the configured interval, and more often if its registration is to be renewed:
// twice within its lifetime.
//
// Requirement: AD-044
func TestTheIntervalFitsTheLifetime(t *testing.T) {
	for _, x := range []struct {
		renews   bool
		lifetime uint32
		want     time.Duration
	}{
		{false, 600, time.Hour}, {true, 600, 4 * time.Minute}, {true, 9000, time.Hour}, {true, 86400, time.Hour},
	} {
		p := &Prober{cfg: ProberConfig{Interval: time.Hour}}
		if x.renews {
			p.cfg.Renew = &Renewer{}
		}

		if got := p.interval(&directory.Entry{Lifetime: x.lifetime}); got != x.want {
			t.Errorf("a lifetime of %d s, renewed: %t: every %v, want %v", x.lifetime, x.renews, got, x.want)
		}
	}
}

// A domain is one member's consensus and index, and the agents of its registrations.
type domain struct {
	*testing.T

	index  *index.Index
	prober *Prober

	mu     sync.Mutex
	asked  []string // paths of requests, with the entity tag that they know
	states []directory.ProbeState
	leads  bool
	ask    func(question []byte) ([]byte, error)
	batch  []directory.RefreshBatch
	refuse error
	lines  bytes.Buffer
}

func (d *domain) IsLeader() bool { return d.leads }

func (d *domain) AskLeader(_ context.Context, question []byte) ([]byte, error) {
	return d.ask(question)
}

func (d *domain) RefreshMany(_ context.Context, batch directory.RefreshBatch) (directory.Outcome, error) {
	d.batch = append(d.batch, batch)
	return directory.Outcome{Each: make([]directory.RenewalResult, len(batch.Items))}, d.refuse
}

func (d *domain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()

	known := r.Header.Get("If-None-Match")
	d.asked = append(d.asked, strings.TrimSuffix(r.URL.Path, CardPath)+known)

	w.Header().Set("ETag", `"1"`)

	switch {
	case !strings.HasPrefix(r.URL.Path, "/a/"):
		http.NotFound(w, r)
	case known != "":
		w.WriteHeader(http.StatusNotModified)
	default:
		fmt.Fprintf(w, `{"name":"Hello","description":"D","version":"1","url":"https://%s/a","skills":[]}`, r.Host)
	}
}

func newDomain(t *testing.T, change func(*ProberConfig)) (*domain, string) {
	t.Helper()

	d := &domain{T: t, index: index.New()}
	s := gatewaytest.Serve(t, d)
	cfg := ProberConfig{
		Guard: gatewaytest.NewGuard(t, s), Findings: NewFindings(), Index: d.index, Consensus: d, Interval: time.Hour,
		Concurrent: 4, Contain: func(f func()) { f() }, Logger: slog.New(slog.NewTextHandler(&d.lines, nil)),
		Count: func(state directory.ProbeState) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.states = append(d.states, state)
		},
	}

	if change != nil {
		change(&cfg)
	}

	d.prober = NewProber(cfg)

	return d, s.URL
}

// register adds a registration that was changed a minute ago.
func (d *domain) register(n int, document string, change func(*directory.Entry)) *directory.Entry {
	d.Helper()

	name := fmt.Sprint("agent-", n)

	doc, err := directory.ParseDocument(directory.KindA2A, []byte(document))
	if err != nil {
		d.Fatal(err)
	}

	projection, err := kinds.Project(name, doc)
	if err != nil {
		d.Fatal(err)
	}

	alpha := spiffeid.RequireTrustDomainFromString("alpha.test")
	entry := &directory.Entry{
		Origin: alpha, RID: rid(n), Agent: name, Owner: directory.IdentityOf(spiffeid.RequireFromPath(alpha,
			"/agent/ada")),
		Document: doc, Packed: directory.Pack(doc, projection), Statement: 1, Lifetime: 600,
		UpdatedAt: time.Now().Add(-time.Minute).UnixMilli(), ExpiresAt: time.Now().Add(5 * time.Minute).UnixMilli(),
	}

	if change != nil {
		change(entry)
	}

	d.index.Put(entry)

	return entry
}

func (d *domain) round() (asked []string, states []directory.ProbeState) {
	d.prober.round(d.Context())

	asked, states = d.asked, d.states
	slices.Sort(asked)
	slices.Sort(states)
	d.asked, d.states = nil, nil

	return asked, states
}

// older makes the finding for a registration due again.
func (d *domain) older(entries ...*directory.Entry) {
	for _, entry := range entries {
		found := d.prober.cfg.Findings.byRID[entry.RID]
		found.At -= (2 * time.Hour).Milliseconds()
		d.prober.cfg.Findings.byRID[entry.RID] = found
	}
}

const helloCard = `{"name":"Hello","description":"D","version":"1","url":"URL/a","skills":[]}`

// A round asks each source once for all registrations that name it and are due, by what it said
// last, and notes each result with its time. It renews those that agree.
//
// Requirement: AD-044
func TestARoundAsksEachSourceOnce(t *testing.T) {
	var d *domain

	caller := directory.Caller{Identity: directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/node/a"))}
	d, url := newDomain(t, func(cfg *ProberConfig) {
		cfg.Renew = &Renewer{
			Registry: refresher(func(ctx context.Context, batch directory.RefreshBatch) (directory.Outcome, error) {
				return d.RefreshMany(ctx, batch)
			}),
			Caller:  func() directory.Caller { return caller },
			Permits: func(e *directory.Entry) bool { return e.RID != rid(7) },
		}
	})
	card := strings.ReplaceAll(helloCard, "URL", url)

	agrees := d.register(1, card, nil)
	differs := d.register(2, strings.Replace(card, `"1"`, `"2"`, 1), nil)
	d.register(3, strings.ReplaceAll(helloCard, "URL/a", "http://agent.example/"), nil) // names no source
	d.register(4, card, func(e *directory.Entry) { e.ExpiresAt = time.Now().UnixMilli() })
	young := d.register(5, card,
		func(e *directory.Entry) { e.ExpiresAt = time.Now().Add(8 * time.Minute).UnixMilli() })
	forbidden := d.register(7, card, nil) // whose owner may no longer register it

	began := time.Now().UnixMilli()

	asked, states := d.round()
	if !slices.Equal(asked, []string{"/a"}) ||
		!slices.Equal(states, []directory.ProbeState{"mismatch", "verified", "verified", "verified"}) {
		t.Fatalf("asked %q, found %q", asked, states)
	}

	for entry, want := range map[*directory.Entry]directory.ProbeState{
		agrees: directory.ProbeVerified, differs: directory.ProbeMismatch, young: directory.ProbeVerified,
		forbidden: directory.ProbeVerified,
	} {
		if got, ok := d.prober.cfg.Findings.Of(entry); !ok || got.State != want || got.At < began {
			t.Errorf("%s is %+v, %t; want %s", entry.Agent, got, ok, want)
		}
	}

	if len(d.batch) != 1 || d.batch[0].Caller.Identity != caller.Identity ||
		!slices.Equal(d.batch[0].Items, []directory.Renewal{{RID: agrees.RID}}) {
		t.Errorf("refreshed are %+v", d.batch)
	}

	if asked, _ := d.round(); asked != nil || len(d.batch) != 1 {
		t.Errorf("what isn't due is asked: %q; refreshed are %+v", asked, d.batch)
	}

	d.older(agrees, differs, young, forbidden)

	if asked, states := d.round(); !slices.Equal(asked, []string{`/a"1"`}) || states != nil {
		t.Errorf("asked again: %q, %q", asked, states)
	}

	if got, ok := d.prober.cfg.Findings.Of(differs); !ok || got.State != directory.ProbeMismatch || got.At < began {
		t.Errorf("what is unchanged is %+v, %t", got, ok)
	}

	// A registration that has changed needs the whole description.
	changed := *agrees
	changed.Statement, changed.UpdatedAt = 2, time.Now().UnixMilli()
	d.index.Put(&changed)

	if asked, _ := d.round(); !slices.Equal(asked, []string{"/a"}) {
		t.Errorf("asked for a changed registration: %q", asked)
	}

	// What is refused, or fails, is told, and a source that has nothing is asked in each place.
	d.older(&changed)
	d.refuse = errors.New("no leader")
	gone := d.register(6, strings.ReplaceAll(strings.ReplaceAll(helloCard, "URL", url), "/a", "/gone"), nil)

	if _, states := d.round(); !slices.Equal(states, []directory.ProbeState{"unreachable"}) ||
		!strings.Contains(d.lines.String(), "refresh of verified registrations failed") {
		t.Errorf("found %q; the log has\n%s", states, &d.lines)
	}

	if got, ok := d.prober.cfg.Findings.Of(gone); !ok || got.Reason != "nothing" {
		t.Errorf("a source that has nothing: %+v, %t", got, ok)
	}
}

// A panic on a description is that source's finding: the source is due after the interval again, and
// the others at its host are probed.
//
// Requirement: AD-044
func TestAPanicIsAFinding(t *testing.T) {
	d, url := newDomain(t, func(cfg *ProberConfig) {
		count, panics := cfg.Count, 1

		// One call at a time, because all sources are at one host.
		cfg.Count = func(state directory.ProbeState) {
			if panics > 0 {
				panics--
				panic("a description")
			}

			count(state)
		}
		cfg.Contain = func(f func()) {
			defer func() { _ = recover() }()

			f()
		}
	})

	for n, path := range []string{"/a", "/a/b"} {
		d.register(n+1, strings.ReplaceAll(strings.ReplaceAll(helloCard, "URL", url), "/a", path), nil)
	}

	if asked, states := d.round(); len(asked) != 2 || len(states) != 2 ||
		!slices.Contains(states, directory.ProbeUnreachable) {
		t.Errorf("asked %q, found %q", asked, states)
	}

	if asked, _ := d.round(); asked != nil {
		t.Errorf("asked at once again: %q", asked)
	}
}

type refresher func(context.Context, directory.RefreshBatch) (directory.Outcome, error)

func (r refresher) RefreshMany(ctx context.Context, b directory.RefreshBatch) (directory.Outcome, error) {
	return r(ctx, b)
}

// A refusal of one renewal is told with its registration, and doesn't hinder the others.
//
// Requirement: AD-044
func TestARefusedRenewalIsTold(t *testing.T) {
	var lines bytes.Buffer

	batches := 0
	p := NewProber(ProberConfig{
		Findings: NewFindings(), Logger: slog.New(slog.NewTextHandler(&lines, nil)),
		Renew: &Renewer{
			Caller:  func() directory.Caller { return directory.Caller{} },
			Permits: func(*directory.Entry) bool { return true },
			Registry: refresher(func(_ context.Context, b directory.RefreshBatch) (directory.Outcome, error) {
				batches++
				out := directory.Outcome{Each: make([]directory.RenewalResult, len(b.Items))}
				out.Each[0].Err = errors.New("policy forbids it")

				return out, nil
			}),
		},
	})

	var entries []*directory.Entry
	for n := range directory.MaxRenewals + 1 {
		entry := &directory.Entry{RID: rid(n), Lifetime: 600, ExpiresAt: time.Now().Add(time.Minute).UnixMilli()}
		p.cfg.Findings.put(entry.RID, pack(directory.Probe{State: directory.ProbeVerified,
			At: time.Now().UnixMilli()}, 0))
		entries = append(entries, entry)
	}

	p.renew(t.Context(), map[string][]*task{"a": {{entries: entries}}})

	if text := lines.String(); batches != 2 || strings.Count(text, "policy forbids it") != 2 ||
		!strings.Contains(text, rid(0).String()) {
		t.Errorf("%d batches; the log has\n%s", batches, text)
	}
}

// One host is asked slowly, and for a bounded number of sources in a round. After one that can't be
// reached the others are unreachable without another request; an answer without a description says
// nothing about the others. The end of a round says nothing about an agent.
//
// Requirement: AD-044
func TestAHostIsAskedSlowly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var once sync.Once

	d, url := newDomain(t, func(cfg *ProberConfig) {
		count := cfg.Count
		cfg.Count = func(state directory.ProbeState) {
			count(state)
			once.Do(func() { time.AfterFunc(perHostInterval/2, cancel) })
		}
	})
	changed := time.Now().Add(-time.Minute).UnixMilli()

	var entries []*directory.Entry
	for n := range maxPerHost + 5 {
		entries = append(entries, d.register(n, strings.ReplaceAll(helloCard, "URL/a", fmt.Sprint(url, "/gone/", n)),
			func(e *directory.Entry) { e.UpdatedAt = changed - int64(n) }))
	}

	other := d.register(99, strings.ReplaceAll(helloCard, "URL", "https://127.0.0.1:443"), nil)
	hosts := d.prober.due(time.Now().UnixMilli())

	tasks := hosts[strings.ToLower(url)]
	if len(tasks) != maxPerHost || len(hosts) != 2 || tasks[0].entries[0].RID != entries[len(entries)-1].RID {
		t.Fatalf("%d sources of %d hosts in a round", len(tasks), len(hosts))
	}

	// The first of them is asked in two places or three, and the round ends in the second's turn.
	d.prober.probeHost(ctx, tasks)

	if len(d.states) != 1 || len(d.asked) != 3 {
		t.Errorf("%d agents were probed in half a second by %q", len(d.states), d.asked)
	}

	d.prober.probeHost(ctx, tasks[:1])

	if len(d.states) != 1 {
		t.Errorf("the end of a round is a finding: %q", d.states)
	}

	// Nothing listens at that port, or another certificate answers: none of the others is asked.
	host := hosts["https://127.0.0.1:443"]
	if len(host) != 1 || host[0].entries[0].RID != other.RID {
		t.Fatalf("the hosts are %v", slices.Collect(maps.Keys(hosts)))
	}

	for name, x := range map[string]struct {
		err  error
		asks bool
	}{
		"the network": {errors.New("connection refused"), false},
		"nothing":     {nil, true},
	} {
		d.asked, d.states = nil, nil

		err := d.prober.probe(t.Context(), tasks[1], x.err)
		if (len(d.asked) > 0) != x.asks || (err != nil) == x.asks || len(d.states) != 1 {
			t.Errorf("after %s %q is asked, %v is next, and found are %q", name, d.asked, err, d.states)
		}
	}
}

// Entity tags are kept for a bounded number of sources.
//
// Requirement: FORM-005
func TestTagsAreBounded(t *testing.T) {
	p := NewProber(ProberConfig{Findings: NewFindings()})
	for n := range 3 * maxTags {
		p.setTag(Source{URL: fmt.Sprint(n)}, "1")

		if len(p.tags) > maxTags {
			t.Fatalf("%d are kept", len(p.tags))
		}
	}

	last := Source{URL: fmt.Sprint(3*maxTags - 1)}
	if got := p.tag(&task{source: last}); got != "1" {
		t.Errorf("the last one is %q", got)
	}

	if p.setTag(last, ""); p.tag(&task{source: last}) != "" {
		t.Error("a source that has none any more has one")
	}
}

// A description is asked for by its entity tag only if each registration was compared with it: one whose agent
// was away, or that is new, is compared with the whole of it.
//
// Requirement: AD-044
func TestOnlyComparedRegistrationsNeedNoDescription(t *testing.T) {
	d, url := newDomain(t, nil)
	card := strings.ReplaceAll(helloCard, "URL", url)
	compared, away, fresh := d.register(1, card, nil), d.register(2, card, nil), d.register(3, card, nil)
	source := Source{URL: url}

	d.prober.setTag(source, "1")
	d.prober.cfg.Findings.put(compared.RID, pack(directory.Probe{State: directory.ProbeVerified}, compared.Statement))
	d.prober.cfg.Findings.put(away.RID, pack(directory.Probe{State: directory.ProbeUnreachable}, away.Statement))

	for name, x := range map[string]struct {
		entries []*directory.Entry
		want    string
	}{
		"a compared one":              {[]*directory.Entry{compared}, "1"},
		"one whose agent was away":    {[]*directory.Entry{compared, away}, ""},
		"one that was never compared": {[]*directory.Entry{compared, fresh}, ""},
	} {
		if got := d.prober.tag(&task{source: source, entries: x.entries}); got != x.want {
			t.Errorf("%s: the tag is %q, want %q", name, got, x.want)
		}
	}
}

// The other sources of a host are not asked in a round in which it doesn't answer, or not in time. An answer that
// is no description is of its source alone.
//
// Requirement: AD-044
func TestErrorsOfAHost(t *testing.T) {
	for name, x := range map[string]struct {
		err  error
		want bool
	}{
		"none":                    {nil, false},
		"no connection":           {errors.New("connection refused"), true},
		"too late":                {&gateway.Refusal{Rule: gateway.RuleTime}, true},
		"too long":                {&gateway.Refusal{Rule: gateway.RuleSize}, false},
		"without its description": {&AbsentError{Place: "https://agent.example/"}, false},
	} {
		if got := isHostError(x.err); got != x.want {
			t.Errorf("%s: %t, want %t", name, got, x.want)
		}
	}
}

// A registration that names no source is not looked at again before its next turn.
//
// Requirement: AD-044
func TestARegistrationWithoutASourceHasItsTurn(t *testing.T) {
	d, _ := newDomain(t, nil)
	entry := d.register(1, strings.ReplaceAll(helloCard, "URL/a", "http://agent.example/"), nil)
	now := time.Now().UnixMilli()

	if tasks := d.prober.due(now); len(tasks) != 0 {
		t.Fatalf("%d hosts are asked", len(tasks))
	}

	if due := d.prober.cfg.Findings.due(entry, d.prober.interval(entry), d.prober.since); due <= now {
		t.Errorf("it is due again after %d ms", due-now)
	}
}

// The leader's prober asks agents by itself as long as it runs.
//
// Requirement: AD-044
func TestTheLeaderProbes(t *testing.T) {
	counted := make(chan directory.ProbeState, 1)
	d, url := newDomain(t, func(cfg *ProberConfig) {
		cfg.Count = func(state directory.ProbeState) { counted <- state }
	})
	d.leads = true
	d.register(1, strings.ReplaceAll(helloCard, "URL", url), func(entry *directory.Entry) {
		entry.UpdatedAt = time.Now().UnixMilli()
	})

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)

	var running sync.WaitGroup

	running.Go(func() { d.prober.Run(ctx) })
	defer running.Wait()
	defer cancel()

	select {
	case state := <-counted:
		if state != directory.ProbeVerified {
			t.Errorf("the agent is %s", state)
		}
	case <-ctx.Done():
		t.Error("no agent was asked within a minute")
	}
}

// A member that doesn't lead has the leader's findings, each once, from whoever leads. One that
// leads finds itself, and takes registrations as new from the minute before.
//
// Requirement: AD-044
func TestAMemberCopiesOrFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := NewFindings()
		d := &domain{T: t, index: index.New()}

		for n := range maxItems + 5 {
			leader.put(rid(n), pack(directory.Probe{State: directory.ProbeVerified, At: time.Now().UnixMilli()}, 1))
		}

		pages := 0
		d.ask = func(question []byte) ([]byte, error) { pages++; return leader.Answer(question), nil }
		findings := NewFindings()
		d.prober = NewProber(ProberConfig{Findings: findings, Index: d.index, Consensus: d, Interval: time.Hour})

		// The prober's own fields are looked at while it doesn't run.
		run := func(lasting time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), lasting)
			defer cancel()

			d.prober.Run(ctx)
		}

		run(time.Millisecond)

		if got := findings.Count()[directory.ProbeVerified]; got != maxItems+5 || pages != 2 || d.prober.since != 0 {
			t.Errorf("%d are copied in %d pages; since %d", got, pages, d.prober.since)
		}

		for _, x := range []struct {
			said []byte
			err  error
		}{{nil, errors.New("no leader")}, {[]byte("{"), nil}, {nil, nil}} {
			d.ask = func([]byte) ([]byte, error) { pages++; return x.said, x.err }
			pages = 0

			run(time.Millisecond)

			if d.prober.copied.Mark != maxItems+5 || pages != 1 {
				t.Errorf("after %q, %v: %+v, asked %d times", x.said, x.err, d.prober.copied, pages)
			}
		}

		d.leads = true
		run(time.Millisecond)

		since := d.prober.since
		if age := time.Now().UnixMilli() - since; age < recent.Milliseconds() ||
			age > (recent+2*pause).Milliseconds() {
			t.Errorf("registrations are new since %d ms before", age)
		}

		run(2 * recent)

		if got := findings.Count()[directory.ProbeVerified]; got != 0 || d.prober.since != since {
			t.Errorf("%d findings are kept of what isn't there; since %d, before %d", got, d.prober.since, since)
		}

		d.leads = false
		run(time.Millisecond)

		if d.prober.since != 0 {
			t.Error("a member that doesn't lead any more takes registrations as new since it did")
		}
	})
}
