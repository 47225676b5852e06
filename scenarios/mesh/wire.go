package mesh

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	window  = 1 << 20 // bytes of one direction that are sent and not yet read
	segment = 16 << 10
)

// A wire is one connection with its two ways and its failure, if any. Way i goes from
// end i to the other one; end 0 is the dialler.
type wire struct {
	net  *Network
	path direction // of way 0

	mu       sync.Mutex    // guards the fields below
	changed  chan struct{} // closed and replaced whenever somebody who waits should look again
	ways     [2]way
	closed   [2]bool
	cutSince time.Time // zero while both ways are whole
	failed   error     // error at both ends: reset on the way, timed out
}

// A way is one direction of a connection.
type way struct {
	link    Link
	rng     *rand.Rand
	sent    *atomic.Uint64 // bytes of this flow, of all its connections
	cut     bool
	arrived []byte    // ready for the reader
	flight  []piece   // under way, in order
	size    int       // bytes of arrived and flight
	end     error     // error behind arrived, once it has come
	shut    bool      // the writer has sent its end
	deaf    bool      // the reader reads no more: later bytes are dropped
	last    time.Time // the latest arrival so far: pieces keep their order
	readBy  time.Time // deadlines; zero is none
	writeBy time.Time
}

// A piece is one segment under way, or the end.
type piece struct {
	data []byte
	end  error
	at   time.Time // when it arrives, while the way is whole
}

// wake makes everybody who waits look again. The caller holds mu.
func (w *wire) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// settle advances the connection to now: segments that are due have arrived, and a cut
// that lasts too long has ended it. The caller holds mu.
func (w *wire) settle(now time.Time) {
	for i := range w.ways {
		w.ways[i].settle(now)
	}

	if w.failed == nil && !w.cutSince.IsZero() && now.Sub(w.cutSince) >= GiveUp {
		w.failed = syscall.ETIMEDOUT
	}
}

// turn returns when settle has something to do next for a reader of way i, with
// no deadline of its own; zero is never.
func (w *wire) turn(i int) time.Time {
	var at time.Time
	if !w.cutSince.IsZero() && w.failed == nil {
		at = w.cutSince.Add(GiveUp)
	}

	if y := &w.ways[i]; !y.cut && len(y.flight) > 0 {
		at = sooner(at, y.flight[0].at)
	}

	return at
}

// relink takes over how the two ways behave from now on.
func (w *wire) relink(links [2]Link, cuts [2]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.settle(now)

	for i := range w.ways {
		way := &w.ways[i]

		way.link = links[i]
		if way.cut && !cuts[i] {
			way.cut = false
			way.resend(now)
		}

		way.cut = cuts[i]
	}

	switch {
	case !cuts[0] && !cuts[1]:
		w.cutSince = time.Time{}
	case w.cutSince.IsZero():
		w.cutSince = now
	}

	w.wake()
}

// hangUp closes an end; the other one reads the way's end behind the sent bytes. It
// reports whether both ends are closed now.
func (w *wire) hangUp(side int, end error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	if !w.closed[side] {
		now := time.Now()
		w.settle(now)
		w.closed[side] = true
		w.ways[side].finish(now, end)
		w.ways[1-side].ignore()
		w.wake()
	}

	return w.closed[1-side]
}

// abort ends an end as a killed process ends: the other one is reset. The caller
// holds the network's mu.
func (w *wire) abort(side int) {
	if w.hangUp(side, syscall.ECONNRESET) {
		delete(w.net.wires, w)
	}
}

// settle moves arrived segments to the reader.
func (y *way) settle(now time.Time) {
	for !y.cut && len(y.flight) > 0 && !y.flight[0].at.After(now) {
		piece := y.flight[0]
		y.flight = y.flight[1:]
		y.arrived = append(y.arrived, piece.data...)
		y.end = piece.end
	}
}

// send puts a copy of data on its way.
func (y *way) send(now time.Time, data []byte) {
	if y.deaf {
		return
	}

	y.sent.Add(uint64(len(data)))
	y.size += len(data)
	y.flight = append(y.flight, piece{data: append([]byte(nil), data...)})
	y.schedule(now, &y.flight[len(y.flight)-1])
}

// finish sends the way's end; later bytes are dropped.
func (y *way) finish(now time.Time, end error) {
	if y.shut && errors.Is(end, io.EOF) {
		return
	}

	y.shut = true
	y.flight = append(y.flight, piece{end: end})
	y.schedule(now, &y.flight[len(y.flight)-1])
}

// ignore drops unread and later bytes.
func (y *way) ignore() {
	y.deaf = true
	y.arrived, y.size = nil, 0
	y.flight = slices.DeleteFunc(y.flight, func(p piece) bool { return p.end == nil })
}

// resend schedules the segments that a cut has held back.
func (y *way) resend(now time.Time) {
	for i := range y.flight {
		y.schedule(now, &y.flight[i])
	}
}

func (y *way) schedule(now time.Time, piece *piece) {
	y.last = later(y.last, now.Add(y.link.lag(y.rng)))
	piece.at = y.last
}

// sooner returns the earlier of two times; zero means never.
func sooner(at, b time.Time) time.Time {
	if at.IsZero() || !b.IsZero() && b.Before(at) {
		return b
	}

	return at
}

func later(at, b time.Time) time.Time {
	if at.Before(b) {
		return b
	}

	return at
}
