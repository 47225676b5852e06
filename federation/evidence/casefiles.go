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
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Verifier makes evidence of what an origin signed, judges the evidence that others
// send, and has the domain act on it (federation.md, "Evidence"). It is safe for
// concurrent use.
type Verifier interface {
	// Accuse makes an evidence file of two pages, by those of the key documents, the
	// newest first, that list their keys, or of two key documents where pages is nil.
	Accuse(origin spiffeid.TrustDomain, pages, keys []string) ([]byte, error)
	// Judge returns what evidence shows to this node, by the bundles and key
	// documents that it believes now. An error means that it is not valid. News
	// is what this domain didn't judge before: what only an SVID vouches for that
	// ended long ago is none (trust.Keyring.Judge).
	Judge(evidence []byte, news bool) (Conviction, error)
	// Freeze has the own domain take nothing more from an origin. To repeat it is
	// safe.
	Freeze(ctx context.Context, origin spiffeid.TrustDomain) error
}

// A Conviction is what evidence shows.
type Conviction struct {
	Origin   spiffeid.TrustDomain
	ID       string             // the same for all evidence of one contradiction; letters, digits and hyphens
	Audience directory.Audience // of the stream; nobody for key documents
}

// A File is one that is on disk.
type File struct {
	ID    string
	Found time.Time
}

// MaxFiles bounds the evidence that is kept against one origin: one is enough, and
// after a release there may be another, which takes the place of the oldest.
const MaxFiles = 16

var ErrManyKept = errors.New("enough evidence against that origin is stored")

// Store is the evidence that this node has. A file ends in .pending until the
// domain has frozen the origin, and in .json from then on.
type Store struct {
	dir  string
	News chan struct{} // something is pending

	writing sync.Mutex // orders changes; held over disk I/O, and taken before mu

	mu      sync.Mutex // guards what follows; never held over disk I/O. Changes hold both.
	kept    map[spiffeid.TrustDomain][]File
	pending []*Pending
}

// A Pending is a conviction that the domain hasn't acted on yet, or that
// others weren't told of.
type Pending struct {
	Conviction
	Evidence []byte
	Shown    bool
}

func (c *Store) Path(td spiffeid.TrustDomain, id, suffix string) string {
	return filepath.Join(c.dir, td.Name()+"."+id+suffix)
}

// Open reads what is in dir. Pending cases are for the verifier to judge again.
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
			continue // not a file of ours
		}

		store.kept[td] = append(store.kept[td], File{name[dot+1:], info.ModTime()})
	}

	return store, pending, nil
}

// Add writes a conviction's evidence down. It returns false for one that is known.
// Of what is not needed, as news of an origin that is frozen, it takes no more than
// MaxFiles. Else the oldest gives way: an operator has released the origin from it, and
// who has much evidence made against them is not to be safe from more.
func (c *Store) Add(conviction Conviction, evidence []byte, needless bool) (bool, error) {
	c.writing.Lock()
	defer c.writing.Unlock()

	known := func(f File) bool { return f.ID == conviction.ID }

	kept := c.Files(conviction.Origin) // without the new one, which stays also where the clock was set back
	switch {
	case slices.ContainsFunc(kept, known):
		return false, nil
	case needless && len(kept) >= MaxFiles:
		return false, ErrManyKept
	}

	if err := writeWhole(c.Path(conviction.Origin, conviction.ID, PendingSuffix), evidence); err != nil {
		return false, fmt.Errorf("federation: storing evidence: %w", err)
	}

	for ; len(kept) >= MaxFiles; kept = kept[1:] {
		// One that can't be removed is found again by the next start, and is the first to go then.
		_ = os.Remove(c.Path(conviction.Origin, kept[0].ID, KeptSuffix))
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.kept[conviction.Origin] = append(kept, File{conviction.ID, time.Now()})

	c.pending = append(c.pending, &Pending{Conviction: conviction, Evidence: evidence})
	select {
	case c.News <- struct{}{}:
	default: // once is enough
	}

	return true, nil
}

// writeWhole writes a file that is there whole or not at all, also after a crash.
func writeWhole(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return err
	}

	_, err = file.Write(data)

	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}

	if err != nil {
		_ = os.Remove(file.Name())
	}

	return err
}

// Pending returns the pending cases.
func (c *Store) Pending() []*Pending {
	c.mu.Lock()
	defer c.mu.Unlock()

	return slices.Clone(c.pending)
}

// Against reports whether one of these is against an origin.
func Against(open []*Pending, td spiffeid.TrustDomain) bool {
	return slices.ContainsFunc(open, func(p *Pending) bool { return p.Origin == td })
}

// Settle notes that the domain has acted.
func (c *Store) Settle(pending *Pending) error {
	if err := os.Rename(c.Path(pending.Origin, pending.ID, PendingSuffix),
		c.Path(pending.Origin, pending.ID, KeptSuffix)); err != nil {
		return fmt.Errorf("federation: %w", err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = slices.DeleteFunc(c.pending, func(o *Pending) bool { return o == pending })

	return nil
}

// Files lists the evidence against an origin, the oldest first.
func (c *Store) Files(td spiffeid.TrustDomain) []File {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := slices.Clone(c.kept[td])
	slices.SortStableFunc(files, func(a, b File) int { return a.Found.Compare(b.Found) })

	return files
}

// Reopen lets evidence that is known be taken once more.
func (c *Store) Reopen(td spiffeid.TrustDomain, id string) {
	c.writing.Lock()
	defer c.writing.Unlock()

	c.mu.Lock()
	defer c.mu.Unlock()

	c.kept[td] = slices.DeleteFunc(c.kept[td], func(f File) bool { return f.ID == id })
}

const (
	KeptSuffix    = ".json"
	PendingSuffix = ".pending"
)
