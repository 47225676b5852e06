// Package mirror follows the ledgers of other domains, entry by entry.
//
// A mirror holds the entries that the origin's checkpoints commit to: it takes a checkpoint that a key
// of the origin's newest key document signed, asks for the entries that it doesn't have,
// from any node, and keeps them only if they lead to the checkpoint's root. So an entry at
// an index is the origin's own word from whichever node it came, and the ledger that it has
// shown before is the beginning of the one that it shows now.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/durable"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/federation/protocol"
)

// Config configures Mirrors. All fields are required.
type Config struct {
	Dir    string          // made if it is missing
	Panics *contain.Panics // counts panics on foreign bytes
	// Get asks a node for a file of its domain's ledger, which is cut off behind limit bytes.
	Get func(ctx context.Context, node protocol.Node, path string, limit int) (string, error)
	// Keys returns the keys that may sign checkpoints of an origin's present ledger.
	Keys func(origin spiffeid.TrustDomain) []checkpoint.VerifierKey
	// Bytes returns how much of the disk an origin may take, above LeastEntries; 0 is no bound.
	Bytes func(origin spiffeid.TrustDomain) uint64
	// WitnessKeys returns the keys by which nodes of another domain cosign, by its key document; none if this node has
	// none of it.
	WitnessKeys func(domain spiffeid.TrustDomain) []checkpoint.VerifierKey
	// Forked is called with two notes that an origin signed for one size with different roots.
	Forked func(origin spiffeid.TrustDomain, held, other string)
}

// Mirrors are this node's copies of other domains' present ledgers. It is safe for concurrent use.
type Mirrors struct {
	cfg   Config
	write func(file string, data []byte, mode os.FileMode) error // so that it survives a loss of power

	mu  sync.Mutex
	all map[spiffeid.TrustDomain]*copied
}

// copied is the copy of one ledger.
type copied struct {
	following sync.Mutex // held by the one that changes the log and the files; readers don't take it

	mu  sync.Mutex // held by the one that changes the view, and never over I/O
	now atomic.Pointer[view]
}

// A view is a copy at one time. It and what it refers to are replaced and never modified, but for the log, which has a
// lock of its own.
type view struct {
	epoch uint64
	log   *ledger.Log
	note  *checkpoint.Note // nil before the first
	// witnesses have cosigned a checkpoint of covered entries, as the origin's policy asks for.
	witnesses *directory.Witnesses
	covered   uint64
	kept      time.Time       // when a checkpoint was verified that is not behind the one before; or the copy began
	failed    string          // why there was no such checkpoint since
	large     bool            // failed because the ledger is too large, by a node while no other shows another size
	differs   []protocol.Node // nodes that were shown another ledger of this epoch
}

// tree returns the tree that the note commits to.
func (v *view) tree() ledger.Tree {
	if v.note == nil {
		return ledger.Tree{}
	}

	return ledger.Tree{Size: v.note.Size, Root: v.note.Root}
}

// view returns the copy as it is now.
func (c *copied) view() *view { return c.now.Load() }

// change changes what view returns.
func (c *copied) change(change func(*view)) {
	c.mu.Lock()
	defer c.mu.Unlock()

	next := *c.now.Load()
	change(&next)
	c.now.Store(&next)
}

// Open opens the copies in cfg.Dir. They are read when they are first asked for.
func Open(cfg Config) *Mirrors {
	return &Mirrors{cfg: cfg, write: durable.WriteFile, all: map[spiffeid.TrustDomain]*copied{}}
}

// Close closes all copies.
func (m *Mirrors) Close() error {
	var errs []error
	for _, c := range m.list() {
		errs = append(errs, c.close())
	}

	return errors.Join(errs...)
}

func (m *Mirrors) of(origin spiffeid.TrustDomain) *copied {
	m.mu.Lock()
	defer m.mu.Unlock()

	c := m.all[origin]
	if c == nil {
		c = &copied{}
		c.now.Store(&view{kept: time.Now()})
		m.all[origin] = c
	}

	return c
}

// Forget removes the copy of a domain that is followed no longer, and what its nodes were shown of others.
func (m *Mirrors) Forget(origin spiffeid.TrustDomain) error {
	c := m.of(origin)

	for _, other := range m.list() {
		other.change(func(now *view) {
			now.differs = without(now.differs, func(node protocol.Node) bool { return node.Domain == origin })
		})
	}

	return c.alone(func() error { return errors.Join(c.close(), os.RemoveAll(m.dir(origin))) })
}

func (m *Mirrors) list() []*copied {
	m.mu.Lock()
	defer m.mu.Unlock()

	return slices.Collect(maps.Values(m.all))
}

func (m *Mirrors) dir(origin spiffeid.TrustDomain) string {
	return filepath.Join(m.cfg.Dir, origin.Name())
}

func (c *copied) close() error {
	log := c.view().log
	c.change(func(now *view) { *now = view{kept: time.Now()} })

	if log == nil {
		return nil
	}

	return log.Close()
}

// noteFile has the note of a copy, beside its entries.
const noteFile = "checkpoint"

// open makes the copy of an epoch's ledger the present one, as far as it is on disk.
func (m *Mirrors) open(c *copied, origin spiffeid.TrustDomain, epoch uint64) error {
	if c.view().epoch == epoch {
		return nil
	}

	if err := c.close(); err != nil {
		return err
	}

	dir := filepath.Join(m.dir(origin), strconv.FormatUint(epoch, 10))
	if err := m.dropOthers(origin, dir); err != nil {
		return err
	}

	log, err := ledger.Open(dir)
	if err != nil {
		return err
	}

	next := view{epoch: epoch, log: log, kept: time.Now()}

	// Without a readable note of this ledger the copy begins anew, and its entries are fetched again.
	text, _ := os.ReadFile(filepath.Join(dir, noteFile))
	if held, err := checkpoint.Parse(string(text)); err == nil && held.Origin == directory.LogName(origin, epoch) {
		next.note = held
	}

	// A stop may have left entries behind the note, to which no stored checkpoint commits, and a loss of power others.
	if err := goBack(log, next.tree()); err != nil {
		return errors.Join(err, log.Close())
	}

	c.change(func(now *view) { *now = next })

	return nil
}

// dropOthers removes the copies of a domain's former ledgers.
func (m *Mirrors) dropOthers(origin spiffeid.TrustDomain, but string) error {
	former, err := filepath.Glob(filepath.Join(m.dir(origin), "*"))
	for _, dir := range former {
		if dir != but {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}

	return err
}

// alone calls change while nothing else changes the copy.
func (c *copied) alone(change func() error) error {
	c.following.Lock()
	defer c.following.Unlock()

	return change()
}

// Follow takes the newest checkpoint of a ledger from one of its origin's nodes, and the
// entries up to it from any. It keeps nothing that the checkpoint doesn't commit to.
func (m *Mirrors) Follow(ctx context.Context, origin spiffeid.TrustDomain, epoch uint64, nodes []protocol.Node) error {
	c := m.of(origin)

	return c.alone(func() error {
		err := m.follow(ctx, c, origin, epoch, nodes)
		if err != nil {
			c.fails(err)
		}

		return err
	})
}

func (c *copied) fails(err error) {
	c.change(func(now *view) { now.failed, now.large = err.Error(), errors.Is(err, errTooLarge) })
}

// Age returns the time since this node verified a checkpoint of a domain's present ledger that is not behind the one
// before, or since it began to follow the ledger, and why there was no newer one; "" if none was expected.
func (m *Mirrors) Age(origin spiffeid.TrustDomain) (age time.Duration, why string) {
	now := m.of(origin).view()

	return time.Since(now.kept), strings.ReplaceAll(now.failed, "\n", "; ")
}

func (m *Mirrors) follow(ctx context.Context, c *copied, origin spiffeid.TrustDomain, epoch uint64,
	nodes []protocol.Node,
) error {
	if err := m.open(c, origin, epoch); err != nil {
		return fmt.Errorf("open the copy of the ledger of %s: %w", origin.Name(), err)
	}

	// The order is random, so that a node that stands still does not hold the copy up.
	nodes = slices.Clone(nodes)
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })

	var (
		errs   []error
		behind bool
	)

	for _, node := range nodes {
		var note *checkpoint.Note

		err := m.cfg.Panics.Run(contain.Ledger, func() (err error) {
			note, err = m.followAt(ctx, c, origin, epoch, node, nodes)
			return err
		})

		if err == nil && note.Size < c.view().tree().Size {
			behind = true
			continue // another one may not be
		}

		if err == nil {
			return nil
		}

		errs = append(errs, fmt.Errorf("follow the ledger of %s at %s: %w", origin.Name(), node.Base, err))
	}

	if behind {
		return nil // take has noted it
	}

	return errors.Join(errs...)
}

// followAt takes the newest checkpoint of one node, and the entries up to it from any.
func (m *Mirrors) followAt(ctx context.Context, c *copied, origin spiffeid.TrustDomain, epoch uint64,
	node protocol.Node, nodes []protocol.Node,
) (*checkpoint.Note, error) {
	note, err := m.newest(ctx, origin, epoch, node)
	if err != nil {
		return nil, err
	}

	err = m.take(ctx, c, origin, note, nodes)

	// A checkpoint by a key that was revoked meanwhile binds the domain no more: a thief may have made it.
	if isOther(err) && !m.isSigned(origin, c.view().note) {
		if err = c.restart(); err == nil {
			err = m.take(ctx, c, origin, note, nodes)
		}
	}

	if err == nil {
		err = m.judgeWitnesses(ctx, c, epoch, node, note)
	}

	return note, err
}

// Compare compares the copy of a domain's ledger of an epoch with a checkpoint of it that another node was shown, or
// that a domain has cosigned: the origin may show each of them another ledger. Two roots of one size are reported to
// Forked. The error is ErrDiscontinued for these, and for a smaller tree that the copy doesn't begin with, which
// is no evidence; Differs has both. A larger tree is not compared: the other node does that.
func (m *Mirrors) Compare(origin spiffeid.TrustDomain, epoch uint64, by protocol.Node, text string) error {
	note, err := m.verified(origin, epoch, text)
	if err != nil {
		return err
	}

	c := m.of(origin)

	now := c.view()
	if now.epoch != epoch || note.Size > now.tree().Size {
		return nil
	}

	err = begins(now.log, now.tree(), ledger.Tree{Size: note.Size, Root: note.Root})

	// A copy that can't be read says nothing of the origin.
	if err == nil || errors.Is(err, ErrDiscontinued) {
		c.compared(by, err == nil)
	}

	if errors.Is(err, ErrDiscontinued) && now.note.Size == note.Size {
		m.cfg.Forked(origin, now.note.String(), note.String())
	}

	return err
}

// compared notes whether another node was shown the ledger that the copy is of.
func (c *copied) compared(by protocol.Node, same bool) {
	c.change(func(now *view) {
		now.differs = without(now.differs, func(node protocol.Node) bool { return node == by })
		if !same {
			now.differs = append(now.differs, by)
		}
	})
}

// without returns a copy of a list without some nodes.
func without(nodes []protocol.Node, are func(protocol.Node) bool) []protocol.Node {
	return slices.DeleteFunc(slices.Clone(nodes), are)
}

// Differs returns the nodes, by their bases, that were shown another ledger of a domain's present epoch than this node
// has copied, as far as they were compared since the start.
func (m *Mirrors) Differs(origin spiffeid.TrustDomain) (bases []string) {
	for _, node := range m.of(origin).view().differs {
		bases = append(bases, node.Base)
	}

	slices.Sort(bases)

	return bases
}

// newest asks a node of the origin for its checkpoint, and verifies it.
func (m *Mirrors) newest(ctx context.Context, origin spiffeid.TrustDomain, epoch uint64, node protocol.Node) (
	*checkpoint.Note, error,
) {
	text, err := m.cfg.Get(ctx, node, fmt.Sprintf("/log/%d/checkpoint", epoch), checkpoint.MaxNote)
	if err != nil {
		return nil, err
	}

	return m.verified(origin, epoch, text)
}

// verified returns a checkpoint of an origin's ledger that the origin has signed.
func (m *Mirrors) verified(origin spiffeid.TrustDomain, epoch uint64, text string) (*checkpoint.Note, error) {
	name := directory.LogName(origin, epoch)

	note, err := checkpoint.Parse(text)
	if err != nil {
		return nil, err
	}

	if note.Origin != name || !m.isSigned(origin, note) {
		return nil, fmt.Errorf("its checkpoint is not of %s, or not signed by a key of the key document", name)
	}

	return note, nil
}

// isSigned reports whether a key of the origin's key document has signed a note.
func (m *Mirrors) isSigned(origin spiffeid.TrustDomain, note *checkpoint.Note) bool {
	return slices.ContainsFunc(m.cfg.Keys(origin), func(key checkpoint.VerifierKey) bool {
		return note != nil && key.Name == note.Origin && note.Signed(key.Name, key.Key)
	})
}

// restart has the copy begin with no entry.
func (c *copied) restart() error {
	c.change(func(now *view) { now.note, now.witnesses, now.covered, now.differs = nil, nil, 0, nil })

	return goBack(c.view().log, ledger.Tree{})
}

// isOther reports whether an error says that a ledger has other entries than its copy.
func isOther(err error) bool {
	return errors.Is(err, ErrDiscontinued) || errors.Is(err, ledger.ErrOther)
}

// goBack has a log end with an earlier tree, also on disk: entries behind it are of another ledger.
func goBack(log *ledger.Log, tree ledger.Tree) error {
	if err := log.Reset(tree); err != nil {
		return err
	}

	return log.Truncate()
}

// maxNames bounds the names of witnesses, in bytes: each registration of the origin is shown with all of them.
const maxNames = 4 << 10

// judgeWitnesses notes the witnesses that have cosigned a checkpoint, if they are the quorum of its
// log's policy.
func (m *Mirrors) judgeWitnesses(ctx context.Context, c *copied, epoch uint64, node protocol.Node,
	note *checkpoint.Note,
) error {
	if len(note.Signatures) == 1 {
		return nil // the log's own
	}

	text, err := m.cfg.Get(ctx, node, fmt.Sprintf("/log/%d/policy", epoch), checkpoint.MaxPolicy)
	if err != nil {
		return err
	}

	policy, err := checkpoint.ParsePolicy(text)
	if err != nil {
		return err
	}

	// The origin has made the policy, and may put a key of its own under another domain's name.
	policy.Witnesses = slices.DeleteFunc(policy.Witnesses, m.isForged)

	found, err := policy.Judge(note)
	if err != nil || !found.Quorum || len(found.Witnesses) == 0 {
		return err
	}

	var (
		witnesses directory.Witnesses
		names     int
	)

	for _, w := range found.Witnesses {
		if names += len(w.Witness.Key.Name); names > maxNames {
			break
		}

		witnesses = append(witnesses, directory.Witnessed{Name: w.Witness.Key.Name, At: w.At.Unix()})
	}

	c.change(func(now *view) {
		// A node that is behind has the cosignatures of fewer entries.
		if note.Size >= now.covered {
			now.witnesses, now.covered = &witnesses, note.Size
		}
	})

	return nil
}

// isForged reports whether a witness has the name of a node of a domain whose keys this node knows, and another key.
func (m *Mirrors) isForged(witness checkpoint.PolicyWitness) bool {
	name, _, _ := strings.Cut(witness.Key.Name, "/")

	domain, err := spiffeid.TrustDomainFromString(name)
	if err != nil {
		return false // an outside witness
	}

	keys := m.cfg.WitnessKeys(domain)

	return len(keys) > 0 && !slices.ContainsFunc(keys, func(key checkpoint.VerifierKey) bool {
		return key.Key.Equal(witness.Key.Key)
	})
}

// ErrDiscontinued says that an origin's ledger doesn't begin with the one that it has shown before.
var ErrDiscontinued = errors.New("it does not continue the ledger that was shown before")

// A copy takes 35 bytes for an entry and 32 for each hash above it, and a ledger never shrinks: without a bound an
// origin could fill the disk. A larger ledger is followed no further.
const (
	entryBytes = 78
	// LeastEntries may be in each copy: about 1.3 GB.
	LeastEntries = 1 << 24
)

// most returns how many entries the copy of an origin's ledger may have.
func (m *Mirrors) most(origin spiffeid.TrustDomain) uint64 {
	bytes := m.cfg.Bytes(origin)
	if bytes == 0 {
		return math.MaxInt64 // tlog's own
	}

	return max(LeastEntries, bytes/entryBytes)
}

var errTooLarge = errors.New("it has too many entries")

// take brings the copy to a verified checkpoint.
func (m *Mirrors) take(ctx context.Context, c *copied, origin spiffeid.TrustDomain, note *checkpoint.Note,
	nodes []protocol.Node,
) error {
	now := c.view()
	log, tree := now.log, now.tree()
	next := ledger.Tree{Size: note.Size, Root: note.Root}

	switch _, missing := log.Missing(); {
	case next.Size > m.most(origin):
		return fmt.Errorf("%w: it has %d, and a copy at most %d by the peer's quota in bytes", errTooLarge, next.Size,
			m.most(origin))
	case next.Size == tree.Size && next.Root != tree.Root && now.note != nil:
		m.cfg.Forked(origin, now.note.String(), note.String())
		return ErrDiscontinued
	case next.Size < tree.Size: // a node that is behind
		c.fails(fmt.Errorf("its checkpoint has %d entries, and the one before had %d", next.Size, tree.Size))
		return begins(log, tree, next)
	case next.Size == tree.Size && !missing:
		return m.keep(c, origin, note) // with further cosignatures
	}

	if err := log.Reset(next); err != nil {
		return err
	}

	err := m.fill(ctx, log, next, now.epoch, nodes)

	// fill has compared the entries with the new root only. The former tree must also be the beginning of the
	// new one.
	if err == nil {
		err = begins(log, next, tree)
	}

	// The copy returns to its last verified checkpoint. After a break the next attempt goes on behind it.
	switch {
	case isOther(err):
		return errors.Join(err, goBack(log, tree))
	case err != nil:
		return errors.Join(err, log.Reset(tree))
	}

	// The entries are on disk before the note that commits to them.
	if err := log.Sync(); err != nil {
		return err
	}

	return m.keep(c, origin, note)
}

// begins returns an error unless a smaller tree is the beginning of the log's tree. A copy that is damaged is
// ledger.ErrIncomplete, which says nothing of the origin.
func begins(log *ledger.Log, tree, smaller ledger.Tree) error {
	if smaller.Size == 0 {
		return nil
	}

	proof, err := log.Consistency(tree, smaller.Size)
	if err != nil {
		return err
	}

	after := checkpoint.Checkpoint{Size: tree.Size, Root: tree.Root}
	if after.Extends(checkpoint.Checkpoint{Size: smaller.Size, Root: smaller.Root}, proof) != nil {
		return ErrDiscontinued
	}

	return nil
}

// fill gets the entries up to a tree: all from one node, and at a second try from the first one on.
func (m *Mirrors) fill(ctx context.Context, log *ledger.Log, tree ledger.Tree, epoch uint64, nodes []protocol.Node) (
	err error,
) {
	for _, node := range nodes {
		err = m.cfg.Panics.Run(contain.Ledger, func() error {
			return log.Fill(tree, func(index uint64) ([]ledger.Entry, error) {
				return m.entries(ctx, node, epoch, index, tree.Size)
			})
		})
		if err == nil || ctx.Err() != nil {
			return err
		}
	}

	return err
}

// entries asks a node for the entries of a bundle from an index on.
func (m *Mirrors) entries(ctx context.Context, node protocol.Node, epoch, index, size uint64) ([]ledger.Entry, error) {
	n, first := index/ledger.TileWidth, index%ledger.TileWidth
	width := int(min(size-n*ledger.TileWidth, ledger.TileWidth))

	path := fmt.Sprintf("/log/%d/tile/entries/%s", epoch, ledger.TilePath(n, width))

	text, err := m.patiently(ctx, node, path, ledger.BundleSize(width))
	if err != nil {
		return nil, err
	}

	entries, err := ledger.ReadEntries([]byte(text))
	if err != nil {
		return nil, err
	}

	if len(entries) != width {
		return nil, fmt.Errorf("%s has %d entries, want %d", path, len(entries), width)
	}

	return entries[first:], nil
}

// A node bounds how many files strangers get in a second, and a first time may take thousands:
// a file is asked for again a few times, because a break would lose those before it.
const (
	tries    = 8
	tryAgain = time.Second
)

func (m *Mirrors) patiently(ctx context.Context, node protocol.Node, path string, limit int) (text string, err error) {
	for range tries {
		if text, err = m.cfg.Get(ctx, node, path, limit); err == nil {
			return text, nil
		}

		select {
		case <-time.After(tryAgain):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}

	return "", err
}

// keep makes a note the one that the copy holds.
func (m *Mirrors) keep(c *copied, origin spiffeid.TrustDomain, note *checkpoint.Note) error {
	if now, text := c.view(), note.String(); now.note == nil || text != now.note.String() {
		file := filepath.Join(m.dir(origin), strconv.FormatUint(now.epoch, 10), noteFile)
		if err := m.write(file, []byte(text), 0o600); err != nil {
			return err
		}
	}

	c.change(func(now *view) { now.note, now.kept, now.failed, now.large = note, time.Now(), "", false })

	return nil
}

// Includes reports whether a domain's present ledger has a statement at an index, as far as it was
// followed.
func (m *Mirrors) Includes(origin spiffeid.TrustDomain, index uint64, statement directory.Hash) (log string, ok bool) {
	now := m.of(origin).view()
	if index >= now.tree().Size {
		return "", false
	}

	is, err := now.includes(index, statement)

	return directory.LogName(origin, now.epoch), is && err == nil
}

func (v *view) includes(index uint64, statement directory.Hash) (is bool, err error) {
	data, err := v.log.Entries(v.tree(), index, 1)
	want := ledger.EntryOfHash(ledger.Statement, statement)

	return strings.HasSuffix(string(data), string(want[:])), err
}

// Begins reports whether a domain's ledger of an epoch begins with a tree, and whether it was followed so far.
// One that is too large to be followed, by all nodes that answer, is believed: nothing shows what it begins with.
func (m *Mirrors) Begins(origin spiffeid.TrustDomain, epoch, size uint64, root directory.Hash) (begins, followed bool) {
	now := m.of(origin).view()
	if now.epoch != epoch || size == 0 {
		return false, false
	}

	if size > now.tree().Size {
		believed := size > m.most(origin) && now.large
		return believed, believed
	}

	found, err := now.log.Root(now.tree(), size)

	return err == nil && found == root, true
}

// Lacks reports whether a domain's present ledger was followed beyond an index and has no such statement there. It
// fails if the copy can't be read, which says nothing of the domain.
func (m *Mirrors) Lacks(origin spiffeid.TrustDomain, index uint64, statement directory.Hash) (bool, error) {
	now := m.of(origin).view()
	if index >= now.tree().Size {
		return false, nil
	}

	is, err := now.includes(index, statement)

	return !is && err == nil, err
}

// Witnesses returns the witnesses that have cosigned a checkpoint that covers an entry of a domain's
// present ledger. It returns nil unless they are the quorum of its policy.
func (m *Mirrors) Witnesses(origin spiffeid.TrustDomain, index uint64) *directory.Witnesses {
	now := m.of(origin).view()
	if index >= now.covered {
		return nil
	}

	return now.witnesses
}

// Prove returns the checkpoint of a domain's ledger to which this node followed it, and the path
// from an entry to its root. The error is ledger.ErrNoTile where that is not so far, or another epoch.
func (m *Mirrors) Prove(origin spiffeid.TrustDomain, epoch, index uint64) (
	note string, path []directory.Hash, err error,
) {
	now := m.of(origin).view()
	if now.note == nil || now.epoch != epoch {
		return "", nil, ledger.ErrNoTile
	}

	path, err = now.log.Prove(now.tree(), index)

	return now.note.String(), path, err
}

// Note returns the checkpoint of a domain's present ledger to which this node has followed it; nil before the first.
// It must not be modified.
func (m *Mirrors) Note(origin spiffeid.TrustDomain) *checkpoint.Note { return m.of(origin).view().note }
