package store

import (
	"errors"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// StallAfter is how long one operation may take before the disk counts as stalled.
// From then on until the last such operation has ended, others are refused at once.
const StallAfter = 5 * time.Second

// waitersAtOnce bounds the operations of within that are under way. While a disk
// hangs, each of them keeps a goroutine and a thread.
const waitersAtOnce = 64

// ErrStalled means that the disk does not answer. A change was not begun; the outcome
// of a read is not known.
var ErrStalled = errors.New("the disk of the federation store does not respond; nothing was changed")

// A Disk passes on operations on one file, and knows whether they end. It is safe
// for concurrent use. Its methods never hold a lock while an operation runs.
type Disk struct {
	changing chan struct{} // has one item while a change is under way
	waiting  chan struct{} // has an item for each operation of within
	began    func()
	ended    func(lasted time.Duration)
	notices  sync.Mutex // orders the calls of began and ended

	mu      sync.Mutex // guards the fields below; never held over an operation
	late    map[*operation]struct{}
	since   time.Time     // when the oldest operation of this stall was begun
	stalled chan struct{} // closed while late has items
	answers chan struct{} // closed while late is empty
}

// An operation is one that is under way.
type operation struct {
	began time.Time
	ended bool // guarded by Disk.mu
	alarm *time.Timer
}

// NewDisk returns a Disk that answers. It calls began when the disk stalls and ended
// when it answers again, one after the other. Neither may start an operation.
func NewDisk(began func(), ended func(lasted time.Duration)) *Disk {
	disk := &Disk{
		changing: make(chan struct{}, 1),
		waiting:  make(chan struct{}, waitersAtOnce),
		began:    began,
		ended:    ended,
		late:     map[*operation]struct{}{},
		stalled:  make(chan struct{}),
		answers:  make(chan struct{}),
	}
	close(disk.answers)

	return disk
}

// Change runs a change once those before it have ended. It returns ErrStalled in
// place of waiting for a disk that does not answer; a change that has begun is
// always waited for.
func (d *Disk) Change(change func() error) error {
	if err := d.Acquire(d.changing); err != nil {
		return err
	}

	defer func() { <-d.changing }()

	return d.run(change)
}

// Acquire puts an item into a semaphore that is held over changes, and returns
// ErrStalled instead when the disk stalls first.
func (d *Disk) Acquire(semaphore chan struct{}) error {
	// The stall is checked alone first: select chooses at random if the semaphore is free as well.
	stalled := d.Stalled()

	select {
	case <-stalled:
		return ErrStalled
	default:
	}

	select {
	case semaphore <- struct{}{}:
		return nil
	case <-stalled:
		return ErrStalled
	}
}

// Read runs a read on the caller's goroutine, unless the disk is stalled.
func (d *Disk) Read(read func() error) error {
	select {
	case <-d.Stalled():
		return ErrStalled
	default:
		return d.run(read)
	}
}

// within runs an operation and returns its result. It returns ErrStalled if the disk is
// stalled, or if the result isn't there after most, whether the operation is slow or too
// many others are under way. The operation may still be running then, so it must share no
// variable with its caller.
func within[T any](disk *Disk, most time.Duration, operate func() (T, error)) (value T, err error) {
	select {
	case <-disk.Stalled():
		return value, ErrStalled
	default:
	}

	timer := time.NewTimer(most)
	defer timer.Stop()

	select {
	case disk.waiting <- struct{}{}:
	case <-timer.C:
		return value, ErrStalled
	}

	type result struct {
		value T
		err   error
	}

	// There is room for the result, so that the goroutine ends even after the caller has given up.
	results := make(chan result, 1)

	go func() {
		defer func() { <-disk.waiting }()

		var found result
		found.err = disk.run(func() (err error) {
			found.value, err = operate()
			return err
		})
		results <- found
	}()

	select {
	case found := <-results:
		return found.value, found.err
	case <-timer.C:
		return value, ErrStalled
	}
}

// run runs an operation and notices when it takes too long.
func (d *Disk) run(f func() error) error {
	op := &operation{began: time.Now()}
	op.alarm = time.AfterFunc(StallAfter, func() { d.note(op) })

	defer func() {
		if !op.alarm.Stop() {
			d.settle(op)
		}
	}()

	return f()
}

// note notes that an operation takes too long.
func (d *Disk) note(op *operation) {
	d.notices.Lock()
	defer d.notices.Unlock()

	if d.add(op) {
		d.began()
	}
}

// add reports whether a stall begins with an operation.
func (d *Disk) add(op *operation) bool {
	d.mu.Lock()
	defer d.mu.Unlock()

	if op.ended {
		return false
	}

	d.late[op] = struct{}{}
	if len(d.late) > 1 {
		return false
	}

	d.since = op.began
	d.answers = make(chan struct{})
	close(d.stalled)

	return true
}

// settle notes that an operation whose alarm went off has ended.
func (d *Disk) settle(op *operation) {
	d.notices.Lock()
	defer d.notices.Unlock()

	if lasted, last := d.remove(op); last {
		d.ended(lasted)
	}
}

// remove reports whether a stall ends with an operation, and how long it lasted.
func (d *Disk) remove(op *operation) (lasted time.Duration, last bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	op.ended = true // its alarm may be on its way still

	if _, late := d.late[op]; !late {
		return 0, false
	}

	delete(d.late, op)

	if len(d.late) > 0 {
		return 0, false
	}

	d.stalled = make(chan struct{})
	close(d.answers)

	return time.Since(d.since), true
}

// Stalled returns a channel that is closed while the disk does not answer.
func (d *Disk) Stalled() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.stalled
}

// Answers returns a channel that is closed unless the disk is stalled.
func (d *Disk) Answers() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.answers
}

// StalledFor returns for how long the disk has not answered, 0 if it does.
func (d *Disk) StalledFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()

	if len(d.late) == 0 {
		return 0
	}

	return time.Since(d.since)
}

// View runs f in a read transaction. f must not begin another view or change.
func (s *Store) View(f func(*bbolt.Tx) error) error {
	return s.Disk.Read(func() error { return s.committed(f) })
}

func (s *Store) committed(f func(*bbolt.Tx) error) error {
	s.readers.RLock()
	defer s.readers.RUnlock()

	return s.db.View(f)
}

// Update runs f in a transaction that is written as a whole or not at all.
func (s *Store) Update(f func(*bbolt.Tx) error) error {
	return s.Disk.Change(func() error { return s.db.Update(f) })
}

// readTime bounds how long a request waits for a read from disk.
const readTime = 2 * time.Second

// ReadFor is Store.Read for requests: it returns ErrStalled if the disk doesn't answer in
// time. f may still be running then, so it must share no variable with its caller.
func ReadFor[T any](s *Store, id StreamID, f func(*Tx) (T, error)) (T, error) {
	return within(s.Disk, readTime, func() (found T, err error) {
		err = s.committed(func(tx *bbolt.Tx) error {
			t, err := s.openStream(tx, id)
			if err != nil || t == nil {
				return err
			}

			found, err = f(t)

			return err
		})

		return found, err
	})
}

// Within runs an operation of a request, and returns ErrStalled if it takes longer than
// readTime. The operation may still be running then, so it must share no variable with its
// caller.
func (s *Store) Within(operate func() error) error {
	_, err := within(s.Disk, readTime, func() (struct{}, error) { return struct{}{}, operate() })
	return err
}
