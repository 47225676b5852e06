package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
)

// Agents register, replace, remove and read a few names at all nodes of a domain at
// once, linearizably. Their requests and responses, in the order of the story's own
// clock, are a history. Porcupine decides whether a directory that does one thing at a
// time could have given the same responses.

// An ask is one request about one name.
type ask struct {
	name    string
	verb    verb
	version string // of register: unique
	rid     string // of remove
}

type verb int

const (
	register verb = iota
	remove
	read
)

// A response answers an ask.
type response struct {
	unknown      bool // of register and remove: it may have happened, now or at any time later
	ok           bool // of remove: it was there; of read: it is there
	created      bool // of register: the name was free
	rid, version string
}

// A place is the state of one name. An empty rid is one that no client has seen.
type place struct {
	taken        bool
	rid, version string
}

// directoryModel is a directory of one name. A write with an unknown outcome is modelled
// as one that happened at some later time, possibly too late to have an effect.
var directoryModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(ask).name
			byName[name] = append(byName[name], op)
		}

		var parts [][]porcupine.Operation
		for _, part := range byName {
			parts = append(parts, part)
		}

		return parts
	},
	Init: func() any { return place{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(place).step(input.(ask), output.(response))
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v: %+v", input, output)
	},
}

// step reports whether a directory may give this response, and returns its next state.
func (p place) step(in ask, out response) (bool, place) {
	same := func(rid string) bool { return p.taken && (p.rid == "" || p.rid == rid) }
	switch in.verb {
	case register:
		next := place{true, out.rid, in.version}
		switch {
		case out.unknown:
			next.rid = p.rid
			return true, next
		case out.created:
			return !p.taken, next
		}

		return same(out.rid), next
	case remove:
		// A client that knows a rid got it in a response, so an unseen rid is a
		// different one.
		hit := p.taken && p.rid == in.rid

		next := p
		if hit {
			next = place{}
		}

		return out.unknown || out.ok == hit, next
	}

	if !out.ok {
		return !p.taken, p
	}

	return same(out.rid) && p.version == out.version, place{true, out.rid, out.version}
}

// A history is the list of requests and responses of all clients. Safe for concurrent
// use.
type history struct {
	clock atomic.Int64 // order, not time: two things at one time have an order too

	mu      sync.Mutex
	ops     []porcupine.Operation
	rids    map[string]string // the latest in a response, by name
	reads   int               // answered
	writes  int               // acknowledged
	unknown int
}

// check fails the test unless the history is linearizable, and unless the same
// history with one stale read in it is not.
func (h *history) check(t *testing.T) {
	t.Helper()
	t.Logf("%d reads and %d writes were answered, %d writes have an unknown outcome", h.reads, h.writes, h.unknown)

	if r := verdict(h.ops); r != porcupine.Ok {
		t.Errorf("the history is not linearizable: %s", r)
	}

	mutant, ok := h.stale()
	if !ok {
		t.Error("the history has no read behind two registrations: it shows too little")
	} else if r := verdict(mutant); r != porcupine.Illegal {
		t.Errorf("a stale read is found %s", r)
	}
}

// verdict is Porcupine's, within a bound that a busy machine keeps.
func verdict(ops []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(directoryModel, ops, 5*time.Minute)
}

// stale returns the history with one read changed: it shows a registration that
// was replaced before it began.
func (h *history) stale() ([]porcupine.Operation, bool) {
	done := map[string][]porcupine.Operation{} // registrations that were acknowledged, by name
	for i, op := range h.ops {
		in, out := op.Input.(ask), op.Output.(response)
		switch {
		case in.verb == register && !out.unknown:
			done[in.name] = append(done[in.name], op)
		case in.verb == read && out.ok:
			for _, last := range done[in.name] {
				for _, first := range done[in.name] {
					if first.Return < last.Call && last.Return < op.Call {
						mutant := slices.Clone(h.ops)
						out.rid = first.Output.(response).rid
						out.version = first.Input.(ask).version
						mutant[i].Output = out

						return mutant, true
					}
				}
			}
		}
	}

	return nil, false
}

// do runs one operation. Its answer is kept unless it says that nothing was done.
func (h *history) do(t *testing.T, client int, in ask, run func() (response, error)) {
	call := h.clock.Add(1)
	out, err := run()
	end := h.clock.Add(1)

	var refusal *apiclient.Error
	switch {
	case err == nil:
	case in.verb == read:
		return
	case errors.As(err, &refusal) && refusal.Code == string(directory.Unavailable):
		return // and the checker would find out if something was done
	case !errors.As(err, &refusal), refusal.Code == string(directory.OutcomeUnknown),
		refusal.Status == http.StatusGatewayTimeout:
		out, end = response{unknown: true}, math.MaxInt64
	default:
		t.Errorf("%+v: %v", in, err)
		return
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
	switch {
	case out.unknown:
		h.unknown++
	case in.verb == read:
		h.reads++
	default:
		h.writes++
	}

	if out.rid != "" {
		h.rids[in.name] = out.rid
	}
}

// rid returns a present or former rid of a name.
func (h *history) rid(name string) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	rid, ok := h.rids[name]

	return rid, ok
}

// answers returns how many reads and writes were answered so far.
func (h *history) answers() (reads, writes int) {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.reads, h.writes
}

// A linearClient works at one node until stop is closed.
type linearClient struct {
	*history
	id          int
	node        *apiclient.Client
	names       []string
	consistency string
	timeout     time.Duration // of one request
	pause       time.Duration // between two, on average
	rng         *rand.Rand
}

func (c *linearClient) run(t *testing.T, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(c.rng.Int64N(2*int64(c.pause) + 1))):
		}

		name := c.names[c.rng.IntN(len(c.names))]
		switch dice := c.rng.IntN(100); {
		case dice < 55:
			c.read(t, name)
		case dice < 88:
			c.register(t, name, fmt.Sprintf("%d.%d", c.id, i))
		default:
			c.remove(t, name)
		}
	}
}

func (c *linearClient) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.timeout)
}

// read asks for one name by its path or by a lookup.
func (c *linearClient) read(t *testing.T, name string) {
	fresh := apiclient.ReadOptions{Consistency: c.consistency}
	c.do(t, c.id, ask{name: name, verb: read}, func() (response, error) {
		ctx, cancel := c.within()
		defer cancel()

		if c.rng.IntN(3) == 0 {
			list, err := c.node.Lookup(ctx, apiclient.LookupOptions{Agent: name, ReadOptions: fresh})
			if err != nil || len(list.Agents) == 0 {
				return response{}, err
			}

			r := list.Agents[0]

			return response{ok: true, rid: r.RID(), version: r.Description}, nil
		}

		r, err := c.node.GetFresh(ctx, name, fresh)
		if err != nil {
			return response{}, unlessMissing(err)
		}

		return response{ok: true, rid: r.RID(), version: r.Description}, nil
	})
}

func (c *linearClient) register(t *testing.T, name, version string) {
	document := fmt.Appendf(nil, `{"base":"https://agents.example/%s","description":%q}`, name, version)
	c.do(t, c.id, ask{name: name, verb: register, version: version}, func() (response, error) {
		ctx, cancel := c.within()
		defer cancel()

		r, err := c.node.Register(ctx, name, document, apiclient.RegisterOptions{Lifetime: 24 * time.Hour})
		if err != nil {
			return response{}, err
		}

		return response{ok: true, created: r.Created, rid: r.RID, version: version}, nil
	})
}

func (c *linearClient) remove(t *testing.T, name string) {
	rid, ok := c.rid(name)
	if !ok {
		return
	}

	c.do(t, c.id, ask{name: name, verb: remove, rid: rid}, func() (response, error) {
		ctx, cancel := c.within()
		defer cancel()
		_, err := c.node.Deregister(ctx, rid)

		return response{ok: err == nil}, unlessMissing(err)
	})
}

// unlessMissing returns nil for the answer that there is no such registration.
func unlessMissing(err error) error {
	var refusal *apiclient.Error
	if errors.As(err, &refusal) && refusal.Status == http.StatusNotFound {
		return nil
	}

	return err
}

// The model accepts the responses that a directory may give, and refuses others.
func TestTheModelOfADirectory(t *testing.T) {
	const name = "weather"

	type step struct {
		in   ask
		out  response
		call int64
		end  int64
	}
	put := func(call, end int64, version, rid string, created bool) step {
		return step{ask{name: name, verb: register, version: version}, response{created: created, rid: rid}, call, end}
	}
	lost := func(call int64, version string) step {
		return step{ask{name: name, verb: register, version: version}, response{unknown: true}, call, math.MaxInt64}
	}
	drop := func(call, end int64, rid string, ok bool) step {
		return step{ask{name: name, verb: remove, rid: rid}, response{ok: ok}, call, end}
	}
	see := func(call, end int64, version, rid string) step {
		return step{ask{name: name, verb: read}, response{ok: true, rid: rid, version: version}, call, end}
	}

	none := func(call, end int64) step { return step{ask{name: name, verb: read}, response{}, call, end} }
	for title, c := range map[string]struct {
		steps []step
		legal bool
	}{
		"one after the other": {[]step{none(1, 2), put(3, 4, "v1", "a", true), see(5, 6, "v1", "a"),
			put(7, 8, "v2", "a", false), see(9, 10, "v2", "a"), drop(11, 12, "a", true), none(13, 14)}, true},
		"a stale read": {[]step{put(1, 2, "v1", "a", true), put(3, 4, "v2", "a", false),
			see(5, 6, "v1", "a")}, false},
		"a read during a write": {[]step{put(1, 2, "v1", "a", true), put(3, 9, "v2", "a", false),
			see(4, 5, "v2", "a"), see(6, 7, "v2", "a")}, true},
		"back again": {[]step{put(1, 2, "v1", "a", true), put(3, 9, "v2", "a", false),
			see(4, 5, "v2", "a"), see(6, 7, "v1", "a")}, false},
		"not seen": {[]step{put(1, 2, "v1", "a", true), none(3, 4)}, false},
		"removed and still seen": {[]step{put(1, 2, "v1", "a", true), drop(3, 4, "a", true),
			see(5, 6, "v1", "a")}, false},
		"removed twice": {[]step{put(1, 2, "v1", "a", true), drop(3, 4, "a", true),
			drop(5, 6, "a", true)}, false},
		"two created it": {[]step{put(1, 2, "v1", "a", true), put(3, 4, "v2", "b", true)}, false},
		"it may have happened": {[]step{put(1, 2, "v1", "a", true), lost(3, "v2"), see(4, 5, "v1", "a"),
			see(6, 7, "v2", "a")}, true},
		"or not": {[]step{put(1, 2, "v1", "a", true), lost(3, "v2"), see(4, 5, "v1", "a")}, true},
		"but not undo itself": {[]step{put(1, 2, "v1", "a", true), lost(3, "v2"), see(4, 5, "v2", "a"),
			see(6, 7, "v1", "a")}, false},
		"it happened under a new rid": {[]step{lost(1, "v1"), see(2, 3, "v1", "a"), drop(4, 5, "a", true),
			none(6, 7)}, true},
		"and keeps that": {[]step{lost(1, "v1"), see(2, 3, "v1", "a"), see(4, 5, "v1", "b")}, false},
		"an older rid is not that one": {[]step{put(1, 2, "v1", "a", true), drop(3, 4, "a", true), lost(5, "v2"),
			drop(6, 7, "a", false), see(8, 9, "v2", "b")}, true},
	} {
		var ops []porcupine.Operation
		for i, s := range c.steps {
			ops = append(ops, porcupine.Operation{ClientId: i, Input: s.in, Call: s.call, Output: s.out, Return: s.end})
		}

		if got := verdict(ops); (got == porcupine.Ok) != c.legal {
			t.Errorf("%s: %s", title, got)
		}
	}
}
