package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/limit"
)

// Under overload a node sheds ranked queries first, then lookups, then registrations,
// and refreshes last: what isn't refreshed ends. Requests of operators and nodes, and
// what anyone may have, are never shed.
//
// A request takes a slot for the time in which the node works on it: from when its body
// has been read, until its answer begins or it waits for others, such as the domain's
// leader. So a client that is slow, and a leader that is away, hold no slots.

// A work is what kind of work a request is. The first that are shed come first.
type work int

const (
	unshed work = iota
	queryWork
	lookupWork
	registrationWork
	refreshWork
)

func (w work) class() limit.Class { return limit.Class(w - queryWork) }

// WorkClasses are the names of the classes of requests that may be shed, the one that is
// shed first first.
var WorkClasses = []string{"queries", "lookups", "registrations", "refreshes"}

func (w work) String() string { return WorkClasses[w.class()] }

// Defaults of Config.Workers, by processor, and of Config.Waiting.
const (
	workersEach    = 4
	leastWorkers   = 8
	defaultWaiting = 4096
)

// workPatience is how long a request waits for a slot.
const workPatience = time.Second

// retryShed is after how many seconds a request that was shed may come again, by class.
var retryShed = []int{5, 2, 1, 1}

// memoryShares are how much of the memory limit may be in use when a request is worked
// on, by class. Refreshes, which need hardly any, are worked on in any case.
var memoryShares = []float64{.85, .90, .95}

// An overload decides which requests are worked on.
type overload struct {
	slots  *limit.Priority
	memory gauge
	shed   func(class string)
	report shedReport
}

func newOverload(cfg *Config) *overload {
	n := cfg.Workers
	if n == 0 {
		n = max(leastWorkers, workersEach*runtime.GOMAXPROCS(0))
	}
	waiting := cfg.Waiting
	if waiting == 0 {
		waiting = defaultWaiting
	}
	slots := limit.PriorityConfig{
		Slots:    []int{max(1, n/2), max(1, n*3/4), max(1, n*7/8), n},
		Waiting:  waiting,
		Patience: workPatience,
	}
	o := &overload{
		slots:  limit.NewPriority(slots),
		memory: gauge{read: cfg.MemoryInUse},
		shed:   cfg.Shed,
		report: shedReport{log: cfg.Logger},
	}
	if o.shed == nil {
		o.shed = func(string) {}
	}
	return o
}

// enter takes a slot for work, or sheds it.
func (o *overload) enter(ctx context.Context, w work) (leave func(), err error) {
	class := w.class()
	if int(class) < len(memoryShares) && o.memory.now() >= memoryShares[class] {
		return nil, o.refuse(w, "This node is short of memory")
	}
	leave, err = o.slots.Enter(ctx, class)
	if errors.Is(err, limit.ErrShed) {
		return nil, o.refuse(w, "This node has more requests than it can work on")
	}
	return leave, err
}

func (o *overload) refuse(w work, why string) error {
	o.shed(w.String())
	o.report.add(w, why)

	return &problem.Refusal{
		Err:   directory.Refuse(directory.Overloaded, "%s: it sheds queries first, then lookups, then registrations, and refreshes last. Nothing was changed; try again later, or at another node.", why),
		Retry: retryShed[w.class()],
	}
}

// shedEvery is the least time between two log lines about requests that were shed.
const shedEvery = 10 * time.Second

// A shedReport logs that requests are shed: the first at once, and those that follow
// by their numbers, so that a flood of requests is no flood of lines.
type shedReport struct {
	log *slog.Logger

	mu    sync.Mutex // guards what follows
	last  time.Time  // of the last line
	count [4]int     // since then, by class
}

func (r *shedReport) add(w work, why string) {
	r.mu.Lock()
	r.count[w.class()]++
	if !r.last.IsZero() && time.Since(r.last) < shedEvery {
		r.mu.Unlock()
		return
	}
	count := r.count
	r.count = [4]int{}
	r.last = time.Now()
	r.mu.Unlock()

	attrs := []slog.Attr{slog.String("reason", why)}
	for i, n := range count {
		attrs = append(attrs, slog.Int(WorkClasses[i], n))
	}
	r.log.LogAttrs(context.Background(), slog.LevelWarn, "overloaded: requests are shed", attrs...)
}

// gaugeAge is how old a gauge's value may be.
const gaugeAge = 100 * time.Millisecond

// A gauge is a value that isn't read for each request.
type gauge struct {
	read func() float64 // nil is always 0

	mu    sync.Mutex // guards what follows
	at    time.Time
	value float64
}

func (g *gauge) now() float64 {
	if g.read == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); g.at.IsZero() || now.Sub(g.at) >= gaugeAge {
		g.at = now
		g.value = g.read()
	}
	return g.value
}

// startWork takes a slot for c's work, unless it has one or is none that may be shed.
func (s *Server) startWork(c *call, w work) error {
	if w == unshed || c.leaveSlot != nil {
		return nil
	}
	leave, err := s.overload.enter(c.Context(), w)
	if err != nil {
		return err
	}
	c.leaveSlot = leave
	return nil
}

// stopWork gives c's slot back, if it has one.
func (c *call) stopWork() {
	if c.leaveSlot != nil {
		c.leaveSlot()
	}
}

// outside runs what waits for another service without c's slot.
func (s *Server) outside(c *call, wait func()) error {
	if c.leaveSlot == nil {
		wait()
		return nil
	}
	c.stopWork()
	wait()
	c.leaveSlot = nil
	return s.startWork(c, c.who.work)
}

// hasNoBody reports whether a request's handler reads no body.
func hasNoBody(r *http.Request) bool {
	return r.Method != http.MethodPost && r.Method != http.MethodPut
}

// stopWorkOf is stopWork of the call that ctx is of.
func stopWorkOf(ctx context.Context) {
	if c, _ := ctx.Value(callKey{}).(*call); c != nil {
		c.stopWork()
	}
}

// A yieldingRegistry gives the slot of a call back before it waits for the domain.
type yieldingRegistry struct{ Registry }

func (r yieldingRegistry) Register(ctx context.Context, ask directory.Registering) (directory.Outcome, error) {
	stopWorkOf(ctx)
	return r.Registry.Register(ctx, ask)
}

func (r yieldingRegistry) Refresh(ctx context.Context, ask directory.Refreshing) (directory.Outcome, error) {
	stopWorkOf(ctx)
	return r.Registry.Refresh(ctx, ask)
}

func (r yieldingRegistry) RefreshMany(ctx context.Context, ask directory.RefreshingMany) (directory.Outcome, error) {
	stopWorkOf(ctx)
	return r.Registry.RefreshMany(ctx, ask)
}

func (r yieldingRegistry) Remove(ctx context.Context, ask directory.Removing) (directory.Outcome, error) {
	stopWorkOf(ctx)
	return r.Registry.Remove(ctx, ask)
}

func (r yieldingRegistry) TransferOwner(ctx context.Context, ask directory.Transferring) (directory.Outcome, error) {
	stopWorkOf(ctx)
	return r.Registry.TransferOwner(ctx, ask)
}

func (r yieldingRegistry) Linearize(ctx context.Context) error {
	stopWorkOf(ctx)
	return r.Registry.Linearize(ctx)
}

// yieldingRecords gives the slot of a call back before it waits for another domain.
type yieldingRecords struct{ Records }

func (r yieldingRecords) Record(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error) {
	stopWorkOf(ctx)
	return r.Records.Record(ctx, origin, rid)
}

func (r yieldingRecords) Proof(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) ([]byte, error) {
	stopWorkOf(ctx)
	return r.Records.Proof(ctx, origin, rid)
}
