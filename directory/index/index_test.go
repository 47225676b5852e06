package index_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
)

// model is what a view must answer, found the slow way.
type model struct {
	entries map[spiffeid.TrustDomain]map[directory.RID]*directory.Entry
	now     map[spiffeid.TrustDomain]int64 // Unix milliseconds
}

// all returns what is alive, in order.
func (m *model) all() []*directory.Entry {
	var es []*directory.Entry
	for td, entries := range m.entries {
		for _, e := range entries {
			if m.now[td] < e.ExpiresAt {
				es = append(es, e)
			}
		}
	}

	slices.SortFunc(es, func(a, b *directory.Entry) int {
		if (a.Origin == alpha) != (b.Origin == alpha) {
			return map[bool]int{true: -1, false: 1}[a.Origin == alpha]
		}

		if a.Origin == alpha {
			return cmp.Compare(a.Created, b.Created)
		}

		return cmp.Or(strings.Compare(a.Origin.Name(), b.Origin.Name()), a.RID.Compare(b.RID))
	})

	return es
}

// asks is the meaning of a query, said once more (jimenez 5.1).
func asks(q index.Query, e *directory.Entry) bool {
	p := e.Projection()
	name := func(want index.Pattern, have string) bool {
		have = norm.NFC.String(have)
		if want.Prefix {
			return strings.HasPrefix(have, want.Text)
		}

		return want.Text != "" && have == want.Text
	}
	one := func(want string, have ...string) bool {
		for _, h := range have {
			if want != "" && norm.NFC.String(h) == want {
				return true
			}
		}

		return false
	}

	for _, w := range q.Agent {
		if !name(w, e.Agent) {
			return false
		}
	}

	for _, w := range q.Protocol {
		if !one(w, p.Protocols...) {
			return false
		}
	}

	for _, w := range q.Language {
		if !one(w, p.Languages...) {
			return false
		}
	}

	for _, w := range q.Status {
		if !one(w, p.Status) {
			return false
		}
	}

	if q.OwnOnly && e.Origin != alpha || !q.Origin.IsZero() && q.Origin != e.Origin {
		return false
	}

	capabilities := p.Capabilities
	if len(q.CapName)+len(q.CapType) == 0 && len(capabilities) == 0 {
		capabilities = []directory.Capability{{}} // an agent's own tags stand for themselves
	}

	if len(q.CapName)+len(q.CapType)+len(q.Tag) == 0 {
		return true
	}

	for _, c := range capabilities {
		ok := true
		for _, w := range q.CapName {
			ok = ok && name(w, c.Name)
		}

		for _, w := range q.CapType {
			ok = ok && one(w, c.Type)
		}

		for _, w := range q.Tag {
			ok = ok && one(w, append(slices.Clone(c.Tags), p.Tags...)...)
		}

		if ok {
			return true
		}
	}

	return false
}

var (
	someNames = []string{"a", "ab", "abc", "b", "ba", "\u00e9", "e\u0301a", "z"}
	someTags  = []string{"x", "y", "\u00e9", "e\u0301", ""}
)

// modelStart is one moment for all tries: the same draws make the same entries, or a failure
// could not be made smaller. It is ahead of the wall clock, which never ends an entry then, however
// long the process runs or the machine is stopped.
var modelStart = time.Now().Add(24 * time.Hour)

func drawEntry(t *rapid.T, td spiffeid.TrustDomain, n byte, created uint64) *directory.Entry {
	tags := rapid.SliceOfN(rapid.SampledFrom(someTags), 0, 2)

	p := &directory.Projection{
		Protocols: rapid.SliceOfN(rapid.SampledFrom([]string{"a2a", "mcp", "mcp/1.0"}), 0, 2).Draw(t, "protocols"),
		Languages: rapid.SliceOfN(rapid.SampledFrom([]string{"en", "de"}), 0, 2).Draw(t, "languages"),
		Status:    rapid.SampledFrom([]string{"active", "active", "inactive"}).Draw(t, "status"),
		Tags:      tags.Draw(t, "tags"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "capabilities") {
		p.Capabilities = append(p.Capabilities, directory.Capability{
			Name: rapid.SampledFrom(someNames).Draw(t, "name"), Type: rapid.SampledFrom([]string{"tool", "skill"}).
				Draw(t, "type"), Tags: tags.Draw(t, "tags"),
		})
	}

	agent := norm.NFC.String(rapid.SampledFrom(someNames).Draw(t, "agent"))

	return &directory.Entry{
		Origin: td, RID: rid(n), Agent: agent, Packed: directory.Pack(directory.Document{}, p), Created: created,
		ExpiresAt: modelStart.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "hours"))*time.Hour - 30*time.Minute).
			UnixMilli(),
	}
}

func drawQuery(t *rapid.T) index.Query {
	few := func(name string, of ...string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(of), 0, 1).Draw(t, name)
	}
	patterns := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) index.Pattern {
		return index.Pattern{Text: rapid.SampledFrom([]string{"", "a", "ab", "b", "\u00e9", "z", "q"}).Draw(t, "text"),
			Prefix: rapid.Bool().Draw(t, "prefix")}
	}), 0, 2)

	return index.Query{
		Agent: patterns.Draw(t, "agent"), CapName: patterns.Draw(t, "cap_name"),
		CapType:  few("cap_type", "tool", "skill", "", "TOOL"),
		Tag:      append(few("tag", "x", "y", "\u00e9", ""), few("tag", "x")...),
		Protocol: few("protocol", "a2a", "mcp", ""), Status: few("status", "active", "inactive", ""),
		Language: few("language", "en"),
		Origin:   rapid.SampledFrom([]spiffeid.TrustDomain{{}, {}, {}, alpha, beta}).Draw(t, "origin"),
		OwnOnly:  rapid.Float64Range(0, 1).Draw(t, "own") < 0.2,
	}
}

// Requirement: AD-025, AD-026, AD-029, AD-032, AD-060, AD-061
func TestLookupAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := index.NewView(alpha)
		m := &model{map[spiffeid.TrustDomain]map[directory.RID]*directory.Entry{alpha: {}, beta: {}, gamma: {}},
			map[spiffeid.TrustDomain]int64{}}

		start := modelStart
		for td := range m.entries {
			m.now[td] = start.UnixMilli()
		}

		created := uint64(0)
		draw := func() spiffeid.TrustDomain {
			return rapid.SampledFrom([]spiffeid.TrustDomain{alpha, beta, gamma}).Draw(t, "origin")
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "times") {
					td, n := draw(), rapid.Byte().Draw(t, "n")

					e := drawEntry(t, td, n, 0)
					if created++; td == alpha {
						e.Created = created
						if old := m.entries[td][e.RID]; old != nil {
							e.Created = old.Created
						}
					}

					m.entries[td][e.RID] = e
					v.Origin(td).Put(e)
				}
			},
			"refresh": func(t *rapid.T) {
				td := draw()

				e := m.entries[td][rid(rapid.Byte().Draw(t, "n"))]
				if e == nil {
					return
				}

				refreshed := *e
				refreshed.ExpiresAt = start.Add(5 * time.Hour).UnixMilli()
				m.entries[td][e.RID] = &refreshed
				v.Origin(td).Put(&refreshed)
			},
			"delete": func(t *rapid.T) {
				td, n := draw(), rapid.Byte().Draw(t, "n")
				delete(m.entries[td], rid(n))
				v.Origin(td).Delete(rid(n))
			},
			"load": func(t *rapid.T) {
				td := draw()
				for n := range byte(80) {
					switch created++; rapid.IntRange(0, 3).Draw(t, "becomes") {
					case 0:
						delete(m.entries[td], rid(n))
					case 1:
						e := drawEntry(t, td, n, 0)
						if td == alpha {
							e.Created = created
						}

						m.entries[td][e.RID] = e
					}
				}

				v.Origin(td).Build(slices.Collect(maps.Values(m.entries[td])))()
			},
			"time": func(t *rapid.T) {
				td, hours := draw(), rapid.IntRange(0, 4).Draw(t, "hours")
				at := start.Add(time.Duration(hours) * time.Hour)
				v.Origin(td).Clock.Advance(at)
				m.now[td] = max(m.now[td], at.UnixMilli())
			},
			"drop": func(t *rapid.T) {
				if rapid.Float64Range(0, 1).Draw(t, "drop") < 0.1 {
					m.entries[gamma] = map[directory.RID]*directory.Entry{}
					m.now[gamma] = start.UnixMilli()
					v.Drop(gamma)
				}
			},
			"": func(t *rapid.T) { checkLookup(t, v, m) },
		})
	})
}

// checkLookup walks a random query by cursor and by offset, and asks for single
// entries.
func checkLookup(t *rapid.T, v *index.View, m *model) {
	q := drawQuery(t)

	hidden := directory.RID{}
	if rapid.Bool().Draw(t, "hide") {
		hidden = rid(rapid.Byte().Draw(t, "hidden"))
	}

	visible := func(e *directory.Entry) bool { return e.RID != hidden }

	var want []*directory.Entry
	for _, e := range m.all() {
		if asks(q, e) && visible(e) {
			want = append(want, e)
		}
	}

	q.Count = rapid.IntRange(1, 9).Draw(t, "count")

	var got []*directory.Entry
	for n := 0; ; n++ {
		p := v.Lookup(q, only(visible))

		got = append(got, p.Entries...)
		if !p.More {
			break
		}

		if len(p.Entries) != q.Count {
			t.Fatalf("a page of %d has %d and there is more", q.Count, len(p.Entries))
		}

		offset := q
		offset.After, offset.Skip = index.Cursor{}, (n+1)*q.Count

		text, _ := p.Next.MarshalText()
		if err := q.After.UnmarshalText(text); err != nil {
			t.Fatal(err)
		}

		if a, b := v.Lookup(q, only(visible)), v.Lookup(offset, only(visible)); !slices.Equal(a.Entries, b.Entries) ||
			a.More != b.More {
			t.Fatalf("behind the cursor and at the offset are different entries")
		}
	}

	if !slices.Equal(got, want) {
		t.Fatalf("%+v: got %d entries, want %d", q, len(got), len(want))
	}

	checkSingle(t, v, m)
}

func checkSingle(t *rapid.T, v *index.View, m *model) {
	r := rid(rapid.Byte().Draw(t, "rid"))

	var holders []*directory.Entry
	for _, e := range m.all() {
		if e.RID == r {
			holders = append(holders, e)
		}
	}

	for td := range m.entries {
		e, ok := v.Get(td, r)
		if want := slices.ContainsFunc(holders, func(h *directory.Entry) bool { return h == e }); ok != want &&
			(ok || slices.ContainsFunc(holders, func(h *directory.Entry) bool { return h.Origin == td })) {
			t.Fatalf("get %s %s: %v", td, r, ok)
		}

		if n := v.Origin(td).Len(); n != len(m.entries[td]) {
			t.Fatalf("%s has %d entries, want %d", td, n, len(m.entries[td]))
		}

		n := 0
		for e := range v.Origin(td).All() {
			if n++; m.entries[td][e.RID] != e {
				t.Fatalf("%s yields an entry that it doesn't have", td)
			}
		}

		if n != len(m.entries[td]) {
			t.Fatalf("%s yields %d entries, want %d", td, n, len(m.entries[td]))
		}
	}

	if len(holders) > 0 && holders[0].Origin == alpha {
		holders = holders[:1]
	}

	if found := v.Find(r.String()); !slices.Equal(found, holders) {
		t.Fatalf("find %s: got %d, want %d", r, len(found), len(holders))
	}

	name := rapid.SampledFrom(someNames).Draw(t, "find")

	var named []*directory.Entry
	for _, e := range m.all() {
		if e.Agent == norm.NFC.String(name) {
			named = append(named, e)
		}
	}

	if len(named) > 0 && named[0].Origin == alpha {
		named = slices.DeleteFunc(named, func(e *directory.Entry) bool { return e.Origin != alpha })
	}

	if found := v.Find(name); !slices.Equal(found, named) {
		t.Fatalf("find %s: got %d, want %d", name, len(found), len(named))
	}
}

// entry returns an entry that lives long.
func entry(td spiffeid.TrustDomain, n int, agent string, p *directory.Projection) *directory.Entry {
	return &directory.Entry{
		Origin: td, RID: directory.NewRID(int64(n), [10]byte{}), Agent: agent,
		Packed: directory.Pack(directory.Document{}, p), Created: uint64(n) + 1,
		ExpiresAt: time.Now().Add(24 * time.Hour).UnixMilli(),
	}
}

// Walks by prefix, exact name and everything, in an index large enough for every
// way of answering, agree with each other while others write; whoever was there
// throughout is met exactly once.
//
// Requirement: AD-032
func TestWalkWhileOthersWrite(t *testing.T) {
	v := index.NewView(alpha)

	const n = 12_000

	const rare = n / 20 * 9 // more than one hold of the lock looks at

	p := &directory.Projection{Protocols: []string{"a2a"}}
	for i := range n {
		name := fmt.Sprintf("stay-%d", i)
		if i%20 < 9 {
			name = fmt.Sprintf("rare-%d", i)
		}

		v.Own().Put(entry(alpha, 2*i, name, p))
	}

	var (
		stop    atomic.Bool
		writers sync.WaitGroup
	)
	for w := range 2 {
		writers.Go(func() {
			for i := w; !stop.Load(); i = (i + 7) % n {
				come := entry(alpha, 2*i+1, fmt.Sprintf("rare-guest-%d", i), p)
				v.Own().Put(come)

				if e, ok := v.Get(alpha, directory.NewRID(int64(2*i), [10]byte{})); ok {
					refreshed := *e
					refreshed.ExpiresAt++
					v.Own().Put(&refreshed)
				}

				v.Own().Delete(come.RID)
			}
		})
	}

	for name, c := range map[string]struct {
		q    index.Query
		want int
	}{
		"everything":  {index.Query{}, n},
		"a prefix":    {index.Query{Agent: []index.Pattern{{Text: "rare-", Prefix: true}}}, rare},
		"a protocol":  {index.Query{Protocol: []string{"a2a"}}, n},
		"most of all": {index.Query{Agent: []index.Pattern{{Text: "stay", Prefix: true}}}, n - rare},
	} {
		seen := map[directory.RID]int{}
		for c.q.Count = 97; ; {
			page := v.Lookup(c.q, func(e *directory.Entry) *directory.Entry { return e })
			for _, e := range page.Entries {
				if !strings.Contains(e.Agent, "guest") {
					seen[e.RID]++
				}
			}

			if !page.More {
				break
			}

			c.q.After = page.Next
		}

		if len(seen) != c.want {
			t.Errorf("%s: met %d of %d", name, len(seen), c.want)
		}

		for r, times := range seen {
			if times != 1 {
				t.Errorf("%s: met %s %d times", name, r, times)
			}
		}
	}

	stop.Store(true)
	writers.Wait()
}

// Policy may take its time, and may itself write.
func TestVisibleRunsWithoutALock(t *testing.T) {
	v := index.NewView(alpha)

	p := &directory.Projection{}
	for i := range 300 {
		v.Own().Put(entry(alpha, i, fmt.Sprint(i), p))
		v.Origin(beta).Put(entry(beta, i, fmt.Sprint(i), p))
	}

	n := 0

	page := v.Lookup(index.Query{Agent: []index.Pattern{{Prefix: true}}}, only(func(e *directory.Entry) bool {
		n++
		v.Own().Put(entry(alpha, 1000+n, "new", p))
		v.Origin(gamma).Put(entry(gamma, n, "new", p))
		v.Own().Delete(e.RID)

		return e.Origin == beta
	}))
	if len(page.Entries) != index.MaxCount || !page.More {
		t.Errorf("got %d entries", len(page.Entries))
	}
}

// An expired registration and the next one of its name live side by side for a
// while.
func TestNameOfAnExpiredRegistration(t *testing.T) {
	v := index.NewView(alpha)
	dead := entry(alpha, 1, "x", &directory.Projection{})
	alive := entry(alpha, 2, "x", &directory.Projection{})
	dead.ExpiresAt = time.Now().UnixMilli()
	v.Own().Put(dead)
	v.Own().Put(alive)

	if got := v.Own().Named("x"); !slices.Equal(got, []*directory.Entry{dead, alive}) {
		t.Errorf("named: %v", got)
	}

	if got := v.Find("x"); !slices.Equal(got, []*directory.Entry{alive}) {
		t.Errorf("found: %v", got)
	}

	v.Own().Delete(dead.RID)

	if got := v.Own().Named("x"); !slices.Equal(got, []*directory.Entry{alive}) {
		t.Errorf("named after the sweep: %v", got)
	}
}

// A changed projection is found by what it says now and by nothing that it said.
func TestPutReplacesWhatIsFound(t *testing.T) {
	v := index.NewView(alpha)
	find := func(q index.Query) int { return len(v.Lookup(q, nil).Entries) }
	before := entry(alpha, 1, "x",
		mustProject(t, "x", mustDocument(t, directory.KindAD,
			`{"base":"https://a.test","protocols":["old","both"],"status":"testing"}`)))
	after := entry(alpha, 1, "x",
		mustProject(t, "x", mustDocument(t, directory.KindAD, `{"base":"https://a.test","protocols":["new","both"]}`)))
	v.Own().Put(before)
	v.Own().Put(after)

	for text, want := range map[string]int{"old": 0, "new": 1, "both": 1} {
		if got := find(index.Query{Protocol: []string{text}}); got != want {
			t.Errorf("protocol %s: found %d, want %d", text, got, want)
		}
	}

	for text, want := range map[string]int{"testing": 0, "active": 1} {
		if got := find(index.Query{Status: []string{text}}); got != want {
			t.Errorf("status %s: found %d, want %d", text, got, want)
		}
	}
}

// All lists an index that changes meanwhile: each that stays exactly once, and as it is.
func TestAllWhileItChanges(t *testing.T) {
	x := index.NewView(alpha).Own()

	const many = 10_000 // more than one hold of the lock looks at
	for n := range many {
		x.Put(entry(alpha, n, fmt.Sprint("agent-", n), nil))
	}

	seen, changed := map[directory.RID]int{}, false
	for e := range x.All() {
		seen[e.RID]++

		if changed {
			continue
		}

		changed = true

		for n := 1; n < many; n += 2 {
			x.Delete(entry(alpha, n, "", nil).RID)
			x.Put(entry(alpha, many+n, fmt.Sprint("new-", n), nil))
		}
	}

	for n := 0; n < many; n += 2 {
		if e := entry(alpha, n, "", nil); seen[e.RID] != 1 {
			t.Fatalf("%d, which stays, is listed %d times", n, seen[e.RID])
		}
	}

	for rid, times := range seen {
		if times > 1 {
			t.Fatalf("%s is listed %d times", rid, times)
		}
	}
}

// A node whose clock is slow serves nothing past a deadline that it could have
// known.
//
// Requirement: AD-024
func TestTheClockDecidesWhatIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := index.NewView(alpha)
		e := &directory.Entry{Origin: beta, RID: rid(1), Agent: "a",
			Packed:    directory.Pack(directory.Document{}, &directory.Projection{}),
			ExpiresAt: time.Now().Add(time.Hour).UnixMilli()}
		x := v.Origin(beta)
		x.Put(e)
		served := func() bool {
			_, got := v.Get(beta, e.RID)
			found := len(v.Find("a")) == 1

			listed := len(v.Lookup(index.Query{}, nil).Entries) == 1
			if got != found || got != listed {
				t.Errorf("get %v, find %v, lookup %v", got, found, listed)
			}

			return got
		}
		time.Sleep(59 * time.Minute)

		if !served() {
			t.Error("gone before its deadline")
		}

		time.Sleep(time.Minute - time.Millisecond)

		if !served() {
			t.Error("gone a millisecond before its deadline")
		}

		time.Sleep(time.Millisecond)

		if served() {
			t.Error("served at its deadline")
		}

		e2 := *e
		e2.ExpiresAt = time.Now().Add(time.Hour).UnixMilli()
		x.Put(&e2)
		x.Clock.Advance(time.Now().Add(time.Hour - time.Second))

		if !served() {
			t.Error("gone before the origin's time reached its deadline")
		}

		time.Sleep(time.Second)

		if served() {
			t.Error("served past its deadline by the origin's time")
		}
	})
}

// A lookup of each shape shows a registration until its deadline and not from then on, before
// anything removes it.
//
// Requirement: AD-024
func TestLookupsEndAtTheDeadline(t *testing.T) {
	view := index.NewView(alpha)
	document := mustDocument(t, directory.KindAD, `{"base":"https://a.example","tags":["short"]}`)
	end := time.Now().Add(time.Hour)

	view.Own().Put(&directory.Entry{
		Origin: alpha, RID: rid(1), Agent: "short", Document: document,
		Packed:    directory.Pack(document, mustProject(t, "short", document)),
		ExpiresAt: end.UnixMilli(), Created: 1, Revision: 1, Statement: 1,
	})

	shown := func(want int) {
		t.Helper()

		for _, values := range []url.Values{{}, {"agent": {"short"}}, {"agent": {"sho*"}}, {"tag": {"short"}},
			{"origin": {"alpha.test"}}} {
			query, err := index.ParseQuery(values)
			directorytest.Must(t, err)

			page := view.Lookup(query, func(e *directory.Entry) *directory.Entry { return e })
			if len(page.Entries) != want {
				t.Errorf("%v: %d registrations, want %d", values, len(page.Entries), want)
			}
		}
	}

	shown(1)
	view.Own().Clock.Advance(end)
	shown(0)
}
