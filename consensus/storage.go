package consensus

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/backup"
	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
)

// storage is the member's disk, and when a snapshot is due.
type storage struct {
	cfg    *Config
	log    *slog.Logger
	life   *lifecycle
	group  *group
	disk   *disk.Disk
	growth logGrowth
	unread atomic.Pointer[error]       // why the last snapshot could not be taken over
	judged atomic.Pointer[state.State] // of the snapshot that is installed; nil unless it was judged

	// entered is closed once this node may take part in Raft. A node that begins with an empty disk
	// may have been a member before, and then neither votes nor acknowledges entries until its
	// domain has let it in: it has forgotten its votes and its entries.
	entered chan struct{}
	enters  sync.Once
	fresh   atomic.Bool                       // has entered since it was opened
	named   atomic.Pointer[transport.History] // the history that this node is in; nil if it is in none
}

// open opens the member's directory, if it is this node's and this release can read it.
func (s *storage) open(log hclog.Logger, judge func() func(io.Reader) error) (err error) {
	if err := disk.CheckOwner(s.cfg.Dir, s.cfg.Node); err != nil {
		return err
	}

	s.disk, err = disk.Open(disk.Options{
		Dir:          s.cfg.Dir,
		Log:          log,
		Failed:       s.life.fail,
		Slow:         s.cfg.Timing.SlowDisk,
		Trailing:     s.cfg.Timing.SnapshotEvery,
		LargestEntry: state.MaxBatchBytes,
		Leads:        s.group.isLeader,
		Judge:        judge,
		Wrap:         s.cfg.faulty,
	})
	if err != nil {
		return err
	}

	if err := s.disk.Claim(s.cfg.Dir, s.cfg.Node); err != nil {
		return fmt.Errorf("note whose data this is: %w", err)
	}

	if err := readableBy(s.disk, s.cfg.reads, s.cfg.Dir); err != nil {
		return fmt.Errorf("read %s: %w", s.cfg.Dir, err)
	}

	empty, err := s.disk.Empty()
	if err != nil {
		return err
	}

	if empty {
		s.log.Info("this node has no state on its disk and begins anew", "dir", s.cfg.Dir)
	}

	// A node without the key, or whose store doesn't know it, was not let in.
	let, _ := s.disk.Votes.GetUint64(enteredKey)
	if !empty || let == 1 {
		data, _ := s.disk.Votes.Get(historyKey)
		name := transport.HistoryOf(data)
		s.named.Store(&name)
		s.enters.Do(func() { close(s.entered) })
	}

	return nil
}

// enteredKey says, beside Raft's term and vote, that this node was let into its domain.
var enteredKey = []byte("Entered")

func (s *storage) hasEntered() bool {
	select {
	case <-s.entered:
		return true
	default:
		return false
	}
}

// historyKey names, beside Raft's term and vote, the history into which this node was let.
var historyKey = []byte("History")

// history returns the name of the history that this node is in; the zero value if it is in none.
func (s *storage) history() (name transport.History) {
	if known := s.named.Load(); known != nil {
		name = *known
	}

	return name
}

// enter has this node take part in Raft in a history from now on, after later starts, too.
func (s *storage) enter(name transport.History) error {
	if s.hasEntered() {
		return nil
	}

	if err := s.disk.Votes.Set(historyKey, name[:]); err != nil {
		return fmt.Errorf("note the history of the domain that has let this node in: %w", err)
	}

	// Behind the name, so that after a crash no node has entered a history without one.
	if err := s.disk.Votes.SetUint64(enteredKey, 1); err != nil {
		return fmt.Errorf("note that the domain has let this node in: %w", err)
	}

	s.named.Store(&name)
	s.fresh.Store(true)
	s.enters.Do(func() { close(s.entered) })

	return nil
}

// bootstrap gives the only member of a domain the log's first entry, if it has no state. Several
// members begin a domain together (see joiner), because one of them may have a history.
// (raft.BootstrapCluster refuses a member that died between writing its term and this entry.)
func (s *storage) bootstrap() error {
	empty, err := s.disk.Empty()
	if err != nil || !empty || len(s.cfg.Join) > 0 || len(s.cfg.Members) > 1 {
		return err
	}

	if err := s.enter(transport.NewHistory()); err != nil {
		return err
	}

	term, err := s.disk.Votes.GetUint64([]byte("CurrentTerm"))
	if err != nil {
		return err
	}

	if term == 0 {
		if err := s.disk.Votes.SetUint64([]byte("CurrentTerm"), 1); err != nil {
			return err
		}
	}

	data := raft.EncodeConfiguration(configurationOf(s.cfg.Members))

	return s.disk.StoreFirst(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: data})
}

// raftFailure is the cause of an error with which Raft did not start. Raft reports an error
// of this member's machine or storage in words of its own, without the cause.
func (s *storage) raftFailure(err error) error {
	failure := s.life.failure()
	unread := s.unread.Load()

	switch {
	case errors.Is(failure, state.ErrNewer):
		return failure
	case failure != nil:
		return disk.AsDamage(failure)
	case unread != nil: // Raft's own checksum of it is right
		return *unread
	default:
		return disk.AsDamage(err)
	}
}

// nextLimit returns how much log makes the next snapshot due. If the newest snapshot is
// large, writing another costs more than applying some more log at a start.
func (s *storage) nextLimit() int64 {
	limit := s.cfg.Timing.SnapshotBytes
	if list, err := s.disk.Snapshots.List(); err == nil && len(list) > 0 {
		limit = max(limit, list[0].Size/snapshotShare)
	}

	return limit
}

// limitTrailingLogs lets Raft keep no more log behind the next snapshot than comes
// between two snapshots.
func (s *storage) limitTrailingLogs() {
	r := s.group.running.Load()
	if r == nil {
		// Raft starts, and writes no snapshot yet.
		return
	}

	c := r.ReloadableConfig()

	c.TrailingLogs = s.disk.Trail.Within(s.growth.limit.Load())
	if err := r.ReloadConfig(c); err != nil {
		s.log.Warn("the log may be longer than it should", "err", err)
	}
}

// snapshotLoop makes a snapshot whenever the log has grown enough.
func (s *storage) snapshotLoop() {
	for {
		s.growth.limit.Store(s.nextLimit())

		select {
		case <-s.growth.due:
		case <-s.life.closing.Done():
			return
		}

		if s.growth.bytes.Load() < s.growth.limit.Load() {
			// Raft has made a snapshot meanwhile.
			continue
		}

		err := s.group.raft.Snapshot().Error()
		if err == nil || s.life.closing.Err() != nil {
			continue
		}

		s.log.Warn("cannot make a snapshot; a start takes longer until there is one", "err", err)

		select {
		case <-time.After(snapshotRetry):
		case <-s.life.closing.Done():
			return
		}
	}
}

// logGrowth counts the log since the newest snapshot, in bytes: a start applies it again.
// Raft counts entries, which differ in size a thousandfold.
type logGrowth struct {
	bytes atomic.Int64
	limit atomic.Int64  // from which on there is a new snapshot
	due   chan struct{} // holds one
}

// grow notes an entry that was applied.
func (g *logGrowth) grow(bytes int) {
	if g.bytes.Add(int64(bytes)) >= g.limit.Load() {
		signal(g.due)
	}
}

// snapshotRetry is how long after a snapshot that failed the next one is tried.
const snapshotRetry = 10 * time.Second

// snapshotShare is by how many parts of the newest snapshot's size the log grows at
// least until there is another.
const snapshotShare = 4

// lookBack bounds how many log entries are read to find the newest with commands.
const lookBack = 1024

// readableBy refuses a disk on which a newer release has written, before Raft reads it:
// Raft would take an older snapshot instead of one that cannot be read, and miss the log
// between them.
func readableBy(disk *disk.Disk, reads Versions, dir string) error {
	snapshots, err := disk.Snapshots.List() // the newest first
	if err != nil {
		return err
	}

	if len(snapshots) > 0 {
		path := filepath.Join(dir, "snapshots", snapshots[0].ID, "state.bin")
		if err := snapshotReadableBy(reads, path); err != nil {
			return err
		}
	}

	return logReadableBy(disk, reads)
}

// snapshotReadableBy is readableBy for one snapshot's file. Damage passes, because Raft
// reports it.
func snapshotReadableBy(reads Versions, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}

	defer func() { _ = file.Close() }()

	var header struct {
		Version uint    `cbor:"1,keyasint"`
		Written Numbers `cbor:"25,keyasint"`
	}
	if err := cbor.NewDecoder(bufio.NewReader(file)).Decode(&header); err != nil {
		return nil
	}

	if header.Version > reads.Snapshot {
		return state.NewerSnapshot(header.Version, reads.Snapshot)
	}

	return reads.Lacks(header.Written)
}

// logReadableBy is readableBy of the newest log entry with commands: versions never
// fall, so those before it are no newer.
func logReadableBy(disk *disk.Disk, reads Versions) error {
	entry, batch, err := newestCommands(disk)
	if err != nil || batch.Version <= reads.Log {
		return err
	}

	return &backup.EntryError{Entry: entry.Index, Term: entry.Term, Err: state.NewerLog(batch.Version, reads.Log)}
}

// A batchHeader is of a log entry with commands, of any version.
type batchHeader struct {
	Version uint  `cbor:"1,keyasint"`
	Time    int64 `cbor:"2,keyasint"`
}

// newestCommands returns the newest log entry with commands; the zero values if it is not among the last
// lookBack entries, or can't be read: Raft reads it again, and reports the defect.
func newestCommands(disk *disk.Disk) (entry raft.Log, batch batchHeader, err error) {
	last, err := disk.Logs.LastIndex()
	if err != nil {
		return entry, batch, err
	}

	first, err := disk.Logs.FirstIndex()
	if err != nil {
		return entry, batch, err
	}

	for index := last; index >= max(first, 1) && index+lookBack > last; index-- {
		if disk.Logs.GetLog(index, &entry) != nil {
			break
		}

		if entry.Type != raft.LogCommand {
			continue
		}

		if cbor.Unmarshal(entry.Data, &batch) != nil {
			break
		}

		return entry, batch, nil
	}

	return raft.Log{}, batchHeader{}, nil
}
