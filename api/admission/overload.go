package admission

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/limit"
)

// A Work is the kind of work of a request. Kinds that are shed first come first.
type Work int

// The kinds of work.
const (
	Unshed       Work = iota // never shed
	QueryWork                // ranked queries
	LookupWork               // reads
	RegisterWork             // registrations, removals, transfers
	RefreshWork              // refreshes
)

func (w Work) class() limit.Class { return limit.Class(w - QueryWork) }

// String returns the kind's name in WorkClasses.
func (w Work) String() string { return WorkClasses[w.class()] }

// WorkClasses are the names of the classes of requests that may be shed, beginning with
// the class that is shed first.
var WorkClasses = []string{"queries", "lookups", "registrations", "refreshes"}

// Defaults of OverloadConfig.Workers, by processor, and of OverloadConfig.Waiting.
const (
	workersEach    = 4
	minWorkers     = 8
	defaultWaiting = 4096
)

// slotPatience is how long a request waits for a slot.
const slotPatience = time.Second

// retryAfter is the number of seconds after which a request that was shed may be
// repeated, by class.
var retryAfter = []int{5, 2, 1, 1}

// memoryShares are the shares of the memory limit from which on requests are shed, by
// class. Refreshes need hardly any memory and are worked on in any case.
var memoryShares = []float64{.85, .90, .95}

// OverloadConfig configures an Overload. All fields may be zero.
type OverloadConfig struct {
	Workers int // requests that are worked on at once; by default a few for each processor
	Waiting int // requests that wait for a slot; 4096 by default
	// MemoryInUse returns the share of the memory limit that the process needs.
	MemoryInUse func() float64
	Shed        func(class string) // called for each request that is shed
	Logger      *slog.Logger
}

// An Overload decides which requests are worked on. It is safe for concurrent use.
type Overload struct {
	slots  *limit.Priority
	memory cachedGauge
	shed   func(class string)
	report shedReport
}

// NewOverload returns an Overload whose slots are free.
func NewOverload(cfg OverloadConfig) *Overload {
	workers := cfg.Workers
	workers = cmp.Or(workers, max(minWorkers, workersEach*runtime.GOMAXPROCS(0)))

	waiting := cfg.Waiting
	waiting = cmp.Or(waiting, defaultWaiting)

	// Each class may use a part of the slots, so that more important classes find some free.
	overload := &Overload{
		slots: limit.NewPriority(limit.PriorityConfig{
			Slots:    []int{max(1, workers/2), max(1, workers*3/4), max(1, workers*7/8), workers},
			Waiting:  waiting,
			Patience: slotPatience,
		}),
		memory: cachedGauge{read: cfg.MemoryInUse},
		shed:   cfg.Shed,
		report: shedReport{log: cfg.Logger},
	}

	return overload
}

// enter takes a slot for work until leave is called, or sheds it.
func (o *Overload) enter(ctx context.Context, work Work) (leave func(), err error) {
	// Memory is checked before a slot is waited for, since waiting requests hold memory as well.
	class := work.class()
	if int(class) < len(memoryShares) && o.memory.value() >= memoryShares[class] {
		return nil, o.refuse(work, "This node is short of memory")
	}

	leave, err = o.slots.Enter(ctx, class)
	if errors.Is(err, limit.ErrShed) {
		return nil, o.refuse(work, "This node has more requests than it can work on")
	}

	return leave, err
}

func (o *Overload) refuse(work Work, reason string) error {
	o.shed(work.String())
	o.report.add(work, reason)

	return &problem.Refusal{
		Err: directory.Refuse(directory.Overloaded,
			"%s. Nothing was changed; try again later, or at another node", reason),
		Retry: retryAfter[work.class()],
	}
}

// A Slot is a call's part of the capacity of an Overload. The zero slot is never taken
// and refuses nothing. It is for the goroutine of one call.
type Slot struct {
	overload *Overload
	work     Work // of a request
	bare     Work // of a request whose body is empty, if that is other work
	leave    func()
}

// Slot returns a slot, not yet taken, for a call of that kind of work. bare is the kind
// if the request turns out to have no body; Unshed for no difference.
func (o *Overload) Slot(work, bare Work) Slot {
	return Slot{overload: o, work: work, bare: bare}
}

// Take waits until the call may be worked on. A slot that is held stays as it is.
func (s *Slot) Take(ctx context.Context) error { return s.take(ctx, s.work) }

// TakeFor is Take for a call whose body was read; empty reports whether the body was empty.
func (s *Slot) TakeFor(ctx context.Context, empty bool) error {
	if empty && s.bare != Unshed {
		return s.take(ctx, s.bare)
	}

	return s.take(ctx, s.work)
}

func (s *Slot) take(ctx context.Context, work Work) error {
	if work == Unshed || s.leave != nil {
		return nil
	}

	leave, err := s.overload.enter(ctx, work)
	if err != nil {
		return err
	}

	s.leave = leave

	return nil
}

// Release gives the slot back, if it is held. The call doesn't take it again but by
// Outside.
func (s *Slot) Release() {
	if s.leave != nil {
		s.leave()
	}
}

// Outside runs wait, which waits for another service, without the slot.
func (s *Slot) Outside(ctx context.Context, wait func()) error {
	if s.leave == nil {
		wait()
		return nil
	}

	s.Release()
	wait()
	s.leave = nil

	return s.Take(ctx)
}

// shedEvery is the least time between two log lines about requests that were shed.
const shedEvery = 10 * time.Second

// A shedReport logs that requests are shed: the first at once, and those that follow by
// their number, so that a flood of requests is no flood of log lines.
type shedReport struct {
	log *slog.Logger

	mu    sync.Mutex // guards the fields below
	last  time.Time  // of the last line
	count [4]int     // since the last line, by class
}

func (r *shedReport) add(work Work, reason string) {
	r.mu.Lock()

	r.count[work.class()]++
	if time.Since(r.last) < shedEvery {
		r.mu.Unlock()
		return
	}

	count := r.count
	r.count = [4]int{}
	r.last = time.Now()
	r.mu.Unlock()

	attrs := []slog.Attr{slog.String("reason", reason)}
	for i, n := range count {
		attrs = append(attrs, slog.Int(WorkClasses[i], n))
	}

	r.log.LogAttrs(context.Background(), slog.LevelWarn, "overloaded: requests are shed", attrs...)
}

// gaugeAge is how old the value of a cachedGauge may be.
const gaugeAge = 100 * time.Millisecond

// A cachedGauge is a value that is not read for each request.
type cachedGauge struct {
	read func() float64

	mu   sync.Mutex // guards the fields below
	at   time.Time
	last float64
}

func (g *cachedGauge) value() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()

	if now := time.Now(); g.at.IsZero() || now.Sub(g.at) >= gaugeAge {
		g.at = now
		g.last = g.read()
	}

	return g.last
}
