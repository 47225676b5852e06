package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// segmentSize is how much of the log one file holds; it is allocated at once.
const segmentSize = 16 << 20

// keptSnapshots is how many snapshots stay on disk.
const keptSnapshots = 2

// A Disk is a member's durable state: votes and log in one write-ahead log, and
// snapshots. Only the owner may read it, because it has master salts.
type Disk struct {
	Ahead     *AheadLog
	Logs      raft.LogStore // Ahead, with the newest entries in memory
	Votes     raft.StableStore
	Snapshots raft.SnapshotStore
	Clock     *AppendClock
	Trail     *Trail

	dir    string
	recent *recentLog
	failed func(error)
	leads  func() bool
	wal    *wal.WAL
}

// Options say how a Disk is opened.
type Options struct {
	Dir string
	Log hclog.Logger
	// Failed receives the error of a log entry or vote that could not be written, and of a
	// damaged entry. After an entry Raft continues, and must not be believed; see also ForRaft.
	Failed func(error)
	// Slow is from when on an append counts as slow.
	Slow time.Duration
	// Trailing is how many entries may stay behind a snapshot.
	Trailing uint64
	// LargestEntry bounds an entry, in bytes.
	LargestEntry int
	// Leads says whether this member leads.
	Leads func() bool
	// Judge is called when another begins to write a snapshot. It returns the function that reads it to
	// its end and refuses one that must not become the disk's; nil judges nothing. It may be nil.
	Judge func() func(io.Reader) error
	// Wrap, if not nil, wraps the log, so that a test can make writes fail.
	Wrap func(raft.LogStore) raft.LogStore
}

// Open opens the Disk in a directory, and makes it if it is missing. It fails with
// ErrDamaged if the contents can't be read.
func Open(options Options) (*Disk, error) {
	if err := makePrivate(options.Dir); err != nil {
		return nil, err
	}

	logDir := filepath.Join(options.Dir, "log")
	if err := unheld(logDir); err != nil {
		return nil, err
	}

	logger := &walLogger{Logger: options.Log.Named("wal")}

	var log *wal.WAL

	err := Guard(func() (err error) {
		log, err = wal.Open(logDir, wal.WithLogger(logger), wal.WithSegmentSize(segmentSize))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", options.Dir, AsDamage(err))
	}

	if err := unmark(log); err != nil {
		return nil, errors.Join(fmt.Errorf("open the log in %s: %w", options.Dir, AsDamage(err)), log.Close())
	}

	if err := dropUnfinished(options.Dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open the snapshots in %s: %w", options.Dir, err), log.Close())
	}

	snapshots, err := raft.NewFileSnapshotStoreWithLogger(options.Dir, keptSnapshots, options.Log.Named("snapshots"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the snapshots in %s: %w", options.Dir, err), log.Close())
	}

	judged := &judgedLog{
		LogStore: summedLog{log},
		failed:   options.Failed,
		told:     logger,
		clock:    &AppendClock{slow: options.Slow},
		trail:    newTrail(options.Trailing, options.LargestEntry),
	}
	if options.Wrap != nil {
		judged.LogStore = options.Wrap(judged.LogStore)
	}

	ahead, err := newAheadLog(judged, options.Leads)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the log in %s: %w", options.Dir, err), log.Close())
	}

	recent := newRecentLog(ahead)

	return &Disk{
		Ahead:     ahead,
		Logs:      recent,
		Votes:     judgedVotes{log, options.Failed},
		Snapshots: privateSnapshots{snapshots, filepath.Join(options.Dir, "snapshots"), options.Judge},
		Clock:     judged.clock,
		Trail:     judged.trail,
		dir:       options.Dir,
		recent:    recent,
		failed:    options.Failed,
		leads:     options.Leads,
		wal:       log,
	}, nil
}

// dropUnfinished removes the snapshots of a process that ended while it wrote them. The library leaves them: each may
// take a gigabyte, and has contents that are erased since.
func dropUnfinished(dir string) error {
	unfinished, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.tmp"))
	for _, one := range unfinished {
		err = errors.Join(err, os.RemoveAll(one))
	}

	return err
}

// makePrivate makes the directories that only the owner may read.
func makePrivate(dir string) error {
	for _, sub := range []string{"", "log", "snapshots"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w", err)
		}
	}

	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("close the data directory to others: %w", err)
	}

	return nil
}

// heldFor is how long a member that starts waits for another process to let go of its log.
const heldFor = 2 * time.Second

// unheld says that another process has the log in dir, most often this member itself,
// started twice. wal.Open would wait for it without a word and without an end.
func unheld(dir string) error {
	path := filepath.Join(dir, metadb.FileName)
	if _, err := os.Stat(path); err != nil {
		// There is no file yet.
		return nil
	}

	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: heldFor})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("another process has the log in %s open: is this node running already?", dir)
	case err != nil:
		// The log's own opening reports the defect.
		return nil
	}

	return db.Close()
}

// Close returns once all queued entries are written.
func (d *Disk) Close() error {
	d.Ahead.close()
	return d.wal.Close()
}

// Empty reports whether there is neither a log entry nor a snapshot.
func (d *Disk) Empty() (bool, error) {
	last, err := d.wal.LastIndex()
	if err != nil || last > 0 {
		return false, err
	}

	list, err := d.Snapshots.List()

	return len(list) == 0, err
}

// StoreFirst writes the first entry of a log, before Raft runs.
func (d *Disk) StoreFirst(entry *raft.Log) error { return summedLog{d.wal}.StoreLog(entry) }

// A judgedLog times and measures writes, and reports failed writes and unreadable entries.
type judgedLog struct {
	raft.LogStore
	failed func(error)
	told   *walLogger
	clock  *AppendClock
	trail  *Trail
}

// A walLogger keeps the last error that the log's library logged: why it has no next
// file is nowhere else.
type walLogger struct {
	hclog.Logger
	last atomic.Pointer[error]
}

// Error implements hclog.Logger.
func (l *walLogger) Error(msg string, args ...any) {
	l.Logger.Error(msg, args...)

	for _, arg := range args {
		if err, is := arg.(error); is {
			l.last.Store(&err)
		}
	}
}

func (j *judgedLog) StoreLogs(entries []*raft.Log) error {
	err := j.clock.time(func() error { return j.LogStore.StoreLogs(entries) })
	if err != nil {
		if why := j.told.last.Load(); why != nil && errors.Is(err, wal.ErrSealed) {
			err = fmt.Errorf("begin its next file: %w", *why)
		}

		j.failed(fmt.Errorf("write the log: %w", err))

		return err
	}

	j.trail.note(entries)

	return nil
}

func (j *judgedLog) GetLog(index uint64, entry *raft.Log) error {
	err := j.LogStore.GetLog(index, entry)
	if errors.Is(err, ErrDamaged) {
		j.failed(err)
	}

	return err
}

// judgedVotes reports terms and votes that cannot be written.
type judgedVotes struct {
	raft.StableStore
	failed func(error)
}

func (j judgedVotes) Set(key, value []byte) error { return j.judge(j.StableStore.Set(key, value)) }

func (j judgedVotes) SetUint64(key []byte, value uint64) error {
	return j.judge(j.StableStore.SetUint64(key, value))
}

func (j judgedVotes) judge(err error) error {
	if err != nil {
		j.failed(fmt.Errorf("write a term or a vote: %w", err))
	}

	return err
}

// privateSnapshots makes every snapshot's files the owner's alone.
type privateSnapshots struct {
	raft.SnapshotStore
	dir   string
	judge func() func(io.Reader) error
}

func (p privateSnapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, cIndex uint64,
	t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := p.SnapshotStore.Create(version, index, term, c, cIndex, t)
	if err != nil {
		return nil, err
	}

	// The library's files may be readable by others.
	files, err := filepath.Glob(filepath.Join(p.dir, "*", "*"))
	for _, f := range files {
		err = errors.Join(err, os.Chmod(f, 0o600))
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("close a snapshot to others: %w", err), sink.Cancel())
	}

	file, err := os.Open(filepath.Join(p.dir, sink.ID()+".tmp", "state.bin"))
	if err == nil { // else the library calls it otherwise
		sink = &steadySink{SnapshotSink: sink, file: file}
	}

	if p.judge == nil {
		return sink, nil
	}

	return &JudgedSink{SnapshotSink: sink, begin: p.judge}, nil
}

// A JudgedSink has a snapshot judged, while it is written, before it becomes one of the disk's.
type JudgedSink struct {
	raft.SnapshotSink
	begin func() func(io.Reader) error // nil once the first bytes were written

	pipe    *io.PipeWriter // nil if it is not judged
	verdict chan error
}

// Unjudged says that the snapshot is this member's own.
func (j *JudgedSink) Unjudged() { j.begin = nil }

// Write implements raft.SnapshotSink.
func (j *JudgedSink) Write(data []byte) (int, error) {
	if j.begin != nil {
		judge := j.begin()
		j.begin = nil

		if judge != nil {
			var r *io.PipeReader
			r, j.pipe = io.Pipe()
			j.verdict = make(chan error, 1)

			go func() {
				err := judge(r)
				if err == nil {
					// The judge may stop before the end, and the writer must not wait for it.
					_, err = io.Copy(io.Discard, r)
				}

				// The next write fails with the error, so that no more of the snapshot goes to the disk.
				_ = r.CloseWithError(err)
				j.verdict <- err
			}()
		}
	}

	if j.pipe != nil {
		if _, err := j.pipe.Write(data); err != nil {
			return 0, fmt.Errorf("the snapshot is refused: %w", err)
		}
	}

	return j.SnapshotSink.Write(data)
}

// Close implements raft.SnapshotSink. A snapshot that is refused is gone.
func (j *JudgedSink) Close() error {
	if err := j.end(nil); err != nil {
		return errors.Join(err, j.Cancel())
	}

	return j.SnapshotSink.Close()
}

// Cancel implements raft.SnapshotSink.
func (j *JudgedSink) Cancel() error {
	_ = j.end(ErrCancelled)

	return j.SnapshotSink.Cancel()
}

// ErrCancelled ends the judgement of a snapshot that did not come whole.
var ErrCancelled = errors.New("the snapshot was cancelled")

// end ends the judgement, and returns its verdict.
func (j *JudgedSink) end(why error) error {
	if j.pipe == nil {
		return nil
	}

	_ = j.pipe.CloseWithError(why) // never fails
	j.pipe = nil

	return <-j.verdict
}

// A steadySink has its file's bytes on the disk soon after they are written. All at once
// at the end they are a gigabyte, and the log's next entry would wait behind them.
type steadySink struct {
	raft.SnapshotSink
	file    *os.File
	unsaved int
}

// steadyBytes is how much is written between two waits for the disk.
const steadyBytes = 8 << 20

func (s *steadySink) Write(b []byte) (int, error) {
	n, err := s.SnapshotSink.Write(b)
	if s.unsaved += n; err == nil && s.unsaved >= steadyBytes {
		s.unsaved = 0
		err = s.file.Sync()
	}

	return n, err
}

// Close and Cancel may follow each other, as those of the library.
func (s *steadySink) Close() error {
	_ = s.file.Close() // it was read from alone
	return s.SnapshotSink.Close()
}

func (s *steadySink) Cancel() error {
	_ = s.file.Close()
	return s.SnapshotSink.Cancel()
}
