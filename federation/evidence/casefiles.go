package evidence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/durable"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Verifier makes evidence from an origin's contradictory signed structures, judges evidence
// from other nodes, and freezes convicted origins (federation.md, "Evidence"). It is safe for
// concurrent use.
type Verifier interface {
	// Accuse makes an evidence file of two pages, or two checkpoints, and the key documents that list
	// their keys, or of two key documents if parts is nil. keys is ordered newest first.
	Accuse(origin spiffeid.TrustDomain, parts, keys []string) ([]byte, error)
	// Judge returns the conviction that evidence supports under the bundles and key
	// documents that this node trusts now. An error means that the evidence is not valid.
	// news is true for evidence that this domain has not judged before: it is not valid if
	// only a long expired SVID attests its key (trust.Keyring.Judge).
	Judge(evidence []byte, news bool) (Conviction, error)
	// Freeze makes the own domain accept nothing new from an origin. It is idempotent.
	Freeze(ctx context.Context, origin spiffeid.TrustDomain) error
}

// A Conviction is the result of valid evidence: an origin contradicted itself.
type Conviction struct {
	Origin   spiffeid.TrustDomain
	ID       string             // the same for all evidence of one contradiction; letters, digits and hyphens
	Audience directory.Audience // of the stream; zero for key documents
}

// A File is a stored evidence file.
type File struct {
	ID    string
	Found time.Time
}

// MaxFiles bounds the evidence files of one origin. One file is enough to convict; after a
// release a new one replaces the oldest.
const MaxFiles = 16

var ErrManyKept = errors.New("enough evidence against that origin is stored")

// Store holds this node's evidence. A file ends in .pending until the domain has frozen the
// origin, and in .json from then on.
type Store struct {
	dir  string
	News chan struct{} // capacity 1: a case is pending

	writing sync.Mutex // orders changes; held over disk I/O, and taken before mu

	mu      sync.Mutex // guards the fields below; never held over disk I/O. Changes hold both.
	kept    map[spiffeid.TrustDomain][]File
	pending []*Pending
}

// A Pending is a conviction that the domain has not acted on yet. Shown is true once its
// evidence is being sent to other nodes.
type Pending struct {
	Conviction
	Evidence []byte
	Shown    bool
}

func (c *Store) Path(td spiffeid.TrustDomain, id, suffix string) string {
	return filepath.Join(c.dir, td.Name()+"."+id+suffix)
}

// Open reads the evidence files in dir, and creates dir if needed. It returns the evidence of
// pending cases, which the caller must judge again.
func Open(dir string) (store *Store, pending [][]byte, err error) {
	store = &Store{dir: dir, News: make(chan struct{}, 1), kept: map[spiffeid.TrustDomain][]File{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("federation: %w", err)
	}

	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("federation: %w", err)
	}

	for _, f := range files {
		name, isKept := strings.CutSuffix(f.Name(), KeptSuffix)
		if strings.HasSuffix(f.Name(), PendingSuffix) {
			// A pending case enters the lists only by Add, after the caller has judged it again.
			data, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return nil, nil, fmt.Errorf("federation: %w", err)
			}

			pending = append(pending, data)

			continue
		}

		dot := strings.LastIndexByte(name, '.')
		if !isKept || dot < 0 {
			continue
		}

		td, err := spiffeid.TrustDomainFromString(name[:dot])

		info, err2 := f.Info()
		if err := errors.Join(err, err2); err != nil {
			continue // not an evidence file
		}

		store.kept[td] = append(store.kept[td], File{name[dot+1:], info.ModTime()})
	}

	return store, pending, nil
}

// Add stores a conviction's evidence. It returns false for a known conviction. If needless is
// true, because the origin is frozen already, it returns ErrManyKept once MaxFiles are
// stored. Otherwise the new file replaces the oldest: an operator has released the origin
// since then, and an origin must not become immune to new evidence.
func (c *Store) Add(conviction Conviction, evidence []byte, needless bool) (bool, error) {
	c.writing.Lock()
	defer c.writing.Unlock()

	known := func(f File) bool { return f.ID == conviction.ID }

	// The list lacks the new file, which therefore stays even if the clock was set back.
	kept := c.Files(conviction.Origin)
	switch {
	case slices.ContainsFunc(kept, known):
		return false, nil
	case needless && len(kept) >= MaxFiles:
		return false, ErrManyKept
	}

	if err := durable.WriteFile(c.Path(conviction.Origin, conviction.ID, PendingSuffix), evidence, 0o600); err != nil {
		return false, fmt.Errorf("federation: storing evidence: %w", err)
	}

	for ; len(kept) >= MaxFiles; kept = kept[1:] {
		// The next start finds a file that can't be removed; it is then the first to be replaced.
		_ = os.Remove(c.Path(conviction.Origin, kept[0].ID, KeptSuffix))
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.kept[conviction.Origin] = append(kept, File{conviction.ID, time.Now()})

	c.pending = append(c.pending, &Pending{Conviction: conviction, Evidence: evidence})
	select {
	case c.News <- struct{}{}:
	default: // the reader is woken already
	}

	return true, nil
}

// Pending returns the pending cases.
func (c *Store) Pending() []*Pending {
	c.mu.Lock()
	defer c.mu.Unlock()

	return slices.Clone(c.pending)
}

// Against reports whether any of the cases is against an origin.
func Against(open []*Pending, td spiffeid.TrustDomain) bool {
	return slices.ContainsFunc(open, func(p *Pending) bool { return p.Origin == td })
}

// Settle marks a case as closed, because the domain has acted on it.
func (c *Store) Settle(pending *Pending) error {
	c.writing.Lock()
	defer c.writing.Unlock()

	if err := durable.Rename(c.Path(pending.Origin, pending.ID, PendingSuffix),
		c.Path(pending.Origin, pending.ID, KeptSuffix)); err != nil {
		return fmt.Errorf("federation: %w", err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = slices.DeleteFunc(c.pending, func(o *Pending) bool { return o == pending })

	return nil
}

// Read returns a file that Files lists. No change of its name comes in between.
func (c *Store) Read(td spiffeid.TrustDomain, id string) ([]byte, error) {
	c.writing.Lock()
	defer c.writing.Unlock()

	data, err := os.ReadFile(c.Path(td, id, KeptSuffix))
	if errors.Is(err, os.ErrNotExist) {
		data, err = os.ReadFile(c.Path(td, id, PendingSuffix))
	}

	if err != nil {
		return nil, fmt.Errorf("federation: %w", err)
	}

	return data, nil
}

// Files lists the evidence against an origin, the oldest first.
func (c *Store) Files(td spiffeid.TrustDomain) []File {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := slices.Clone(c.kept[td])
	slices.SortStableFunc(files, func(a, b File) int { return a.Found.Compare(b.Found) })

	return files
}

// Reopen makes Add accept known evidence once more. Its file is that of a pending case again, so
// that the next start judges it if this node stops before the case is settled.
func (c *Store) Reopen(td spiffeid.TrustDomain, id string) error {
	c.writing.Lock()
	defer c.writing.Unlock()

	err := durable.Rename(c.Path(td, id, KeptSuffix), c.Path(td, id, PendingSuffix))
	// The file of a case that is not settled has that name already.
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("federation: %w", err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.kept[td] = slices.DeleteFunc(c.kept[td], func(f File) bool { return f.ID == id })

	return nil
}

const (
	KeptSuffix    = ".json"
	PendingSuffix = ".pending"
)
