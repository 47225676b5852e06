package federation

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
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Court makes evidence of what an origin signed, judges the evidence that others
// send, and has the domain act on it (federation.md, "Evidence"). It is safe for
// concurrent use.
type Court interface {
	// Accuse makes an evidence file of two pages, by those of the key documents, the
	// newest first, that list their keys, or of two key documents where pages is nil.
	Accuse(origin spiffeid.TrustDomain, pages, keys []string) ([]byte, error)
	// Judge returns what evidence shows to this node, by the bundles and key
	// documents that it believes now. An error means that it convicts nobody. News
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

// An EvidenceFile is one that is on disk.
type EvidenceFile struct {
	ID    string
	Found time.Time
}

// maxFiles bounds the evidence that is kept against one origin: one is enough, and
// after a release there may be another, which takes the place of the oldest.
const maxFiles = 16

var (
	errOffence  = errors.New("its origin contradicts itself, and is frozen")
	errNoCase   = errors.New("no evidence against a peer of this domain")
	errManyKept = errors.New("enough evidence against that origin is kept")
)

// cases is the evidence that this node has. A file ends in .pending until the
// domain has frozen the origin, and in .json from then on.
type cases struct {
	dir  string
	news chan struct{} // something is pending

	writing sync.Mutex // orders changes; held over disk I/O, and taken before mu

	mu      sync.Mutex // guards what follows; never held over disk I/O. Changes hold both.
	kept    map[spiffeid.TrustDomain][]EvidenceFile
	pending []*pendingCase
}

// A pendingCase is a conviction that the domain hasn't acted on yet, or that
// others weren't told of.
type pendingCase struct {
	Conviction
	evidence []byte
	told     bool
}

const (
	keptSuffix    = ".json"
	pendingSuffix = ".pending"
)

func (c *cases) file(td spiffeid.TrustDomain, id, suffix string) string {
	return filepath.Join(c.dir, td.Name()+"."+id+suffix)
}

// openCases reads what is in dir. What is pending is for the court to judge again.
func openCases(dir string) (c *cases, pending [][]byte, err error) {
	c = &cases{dir: dir, news: make(chan struct{}, 1), kept: map[spiffeid.TrustDomain][]EvidenceFile{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("federation: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("federation: %w", err)
	}
	for _, f := range files {
		name, isKept := strings.CutSuffix(f.Name(), keptSuffix)
		if strings.HasSuffix(f.Name(), pendingSuffix) {
			b, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return nil, nil, fmt.Errorf("federation: %w", err)
			}
			pending = append(pending, b)
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
		c.kept[td] = append(c.kept[td], EvidenceFile{name[dot+1:], info.ModTime()})
	}
	return c, pending, nil
}

// take writes a conviction's evidence down. It returns false for one that is known.
// Of what is not needed, as news of an origin that is frozen, it takes no more than
// maxFiles. Else the oldest gives way: an operator has released the origin from it, and
// who has much evidence made against them is not to be safe from more.
func (c *cases) take(v Conviction, evidence []byte, needless bool) (bool, error) {
	c.writing.Lock()
	defer c.writing.Unlock()

	known := func(f EvidenceFile) bool { return f.ID == v.ID }
	kept := c.against(v.Origin) // without the new one, which stays also where the clock was set back
	switch {
	case slices.ContainsFunc(kept, known):
		return false, nil
	case needless && len(kept) >= maxFiles:
		return false, errManyKept
	}

	if err := writeWhole(c.file(v.Origin, v.ID, pendingSuffix), evidence); err != nil {
		return false, fmt.Errorf("federation: evidence can't be kept: %w", err)
	}
	for ; len(kept) >= maxFiles; kept = kept[1:] {
		// One that can't be removed is found again by the next start, and is the first to go then.
		_ = os.Remove(c.file(v.Origin, kept[0].ID, keptSuffix))
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.kept[v.Origin] = append(kept, EvidenceFile{v.ID, time.Now()})
	c.pending = append(c.pending, &pendingCase{Conviction: v, evidence: evidence})
	nudge(c.news)

	return true, nil
}

// writeWhole writes a file that is there whole or not at all, also after a crash.
func writeWhole(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// open returns what is pending.
func (c *cases) open() []*pendingCase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pending)
}

// against reports whether one of these is against an origin.
func against(open []*pendingCase, td spiffeid.TrustDomain) bool {
	return slices.ContainsFunc(open, func(p *pendingCase) bool { return p.Origin == td })
}

// settle notes that the domain has acted.
func (c *cases) settle(p *pendingCase) error {
	if err := os.Rename(c.file(p.Origin, p.ID, pendingSuffix), c.file(p.Origin, p.ID, keptSuffix)); err != nil {
		return fmt.Errorf("federation: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = slices.DeleteFunc(c.pending, func(o *pendingCase) bool { return o == p })
	return nil
}

// against lists the evidence against an origin, the oldest first.
func (c *cases) against(td spiffeid.TrustDomain) []EvidenceFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := slices.Clone(c.kept[td])
	slices.SortStableFunc(files, func(a, b EvidenceFile) int { return a.Found.Compare(b.Found) })

	return files
}

// Evidence lists the evidence that this node has against a domain, the oldest
// first.
func (pr *prosecutor) evidenceOf(td spiffeid.TrustDomain) []EvidenceFile {
	return pr.cases.against(td)
}

// EvidenceFile returns a file that Evidence lists, the oldest where id is empty; a
// directory.NotFound for none.
func (pr *prosecutor) file(td spiffeid.TrustDomain, id string) ([]byte, error) {
	all := pr.cases.against(td)
	switch {
	case len(all) == 0:
		return nil, directory.Refuse(directory.NotFound, "this node has no evidence against %s", td.Name())
	case id == "":
		id = all[0].ID
	case !slices.ContainsFunc(all, func(f EvidenceFile) bool { return f.ID == id }):
		return nil, directory.Refuse(directory.NotFound, "this node has no evidence %.40q against %s", id, td.Name())
	}
	b, err := os.ReadFile(pr.cases.file(td, id, keptSuffix))
	if errors.Is(err, os.ErrNotExist) {
		b, err = os.ReadFile(pr.cases.file(td, id, pendingSuffix))
	}
	if err != nil {
		return nil, fmt.Errorf("federation: %w", err)
	}
	return b, nil
}

// accuse has the court look at what an origin signed twice, and reports whether
// that convicts it. What convicts nobody is written down and nothing more.
func (pr *prosecutor) accuse(o *origin, pages, keys []string) bool {
	if pr.cfg.Court == nil {
		return false
	}

	var fresh bool
	var evidence []byte
	err := pr.cfg.Panics.Run(contain.Evidence, func() (err error) {
		evidence, err = pr.cfg.Court.Accuse(o.domain, pages, keys)
		return err
	})
	if err == nil {
		fresh, err = pr.convict(evidence, true)
	}
	if err != nil && pr.refusals.lines.allow(protocol.CodeEquivocation, o.domain) {
		pr.cfg.Logger.Warn("what an origin signed differs, and is no evidence", "origin", o.domain.Name(), "error", err)
	}
	return fresh
}

// convict judges evidence, which is news or is taken up from disk. Where it holds and is
// not known, the origin is frozen at this node at once, and the domain and the mesh are
// told by enforce.
func (pr *prosecutor) convict(evidence []byte, news bool) (fresh bool, err error) {
	err = pr.cfg.Panics.Run(contain.Evidence, func() (err error) {
		fresh, err = pr.judgeEvidence(evidence, news)
		return err
	})

	return fresh, err
}

func (pr *prosecutor) judgeEvidence(evidence []byte, news bool) (fresh bool, err error) {
	v, err := pr.cfg.Court.Judge(evidence, news)
	if err != nil {
		return false, err
	}
	o := pr.origins.get(v.Origin)
	if o == nil {
		return false, errNoCase
	}
	o.mu.Lock()
	state, ended, convicted := o.peering.Load().State, o.streams.hasEnded(), o.convicted
	o.mu.Unlock()
	if ended || state != directory.PeeringActive && state != directory.PeeringFrozen {
		return false, errNoCase
	}
	if fresh, err = pr.cases.take(v, evidence, news && (convicted || state == directory.PeeringFrozen)); !fresh || err != nil {
		return false, err
	}
	o.mu.Lock()
	o.convicted = true
	o.mu.Unlock()
	pr.noteFrozen()
	o.streams.writer.counted(protocol.CodeEquivocation)
	pr.cfg.Logger.Error("a peer contradicts itself and is frozen; its evidence is kept", "peer", o.domain.Name(), "evidence", v.ID)
	return true, nil
}

// Frozen returns the domains that nothing is taken from any more. It is quick, and
// nobody may change what it returns.
func (m *Mesh) Frozen() []spiffeid.TrustDomain { return *m.evidence.frozen.Load() }

// noteFrozen brings what Frozen returns up to date.
func (pr *prosecutor) noteFrozen() {
	pr.freezing.Lock()
	defer pr.freezing.Unlock()
	var all []spiffeid.TrustDomain
	for _, o := range pr.origins.all() {
		o.mu.Lock()
		if o.convicted || o.peering.Load().State == directory.PeeringFrozen {
			all = append(all, o.domain)
		}
		o.mu.Unlock()
	}
	pr.frozen.Store(&all)
}

// resume takes up the cases that the node stopped in the middle of. They were judged, and
// have a file already: one that was left here would freeze the origin again after a release.
func (pr *prosecutor) resume(pending [][]byte) {
	for _, evidence := range pending {
		if _, err := pr.convict(evidence, false); err != nil {
			pr.cfg.Logger.Warn("evidence on disk convicts nobody now", "error", err)
		}
	}
}

// recall freezes a domain that is a peer once more, and that evidence from before convicts
// still: to end a peering, and to begin another, is no way out of it. It needs the key
// document of the domain's now.
func (pr *prosecutor) recall(o *origin) {
	o.mu.Lock()
	again := o.again
	o.again = false
	o.mu.Unlock()
	if !again || pr.cfg.Court == nil {
		return
	}
	for _, f := range pr.evidenceOf(o.domain) {
		evidence, err := pr.file(o.domain, f.ID)
		if err == nil && !pr.judged(evidence) {
			continue
		}
		if err == nil {
			pr.cases.reopen(o.domain, f.ID)
			_, err = pr.convict(evidence, false)
		}
		if err != nil {
			pr.cfg.Logger.Error("can't take up evidence from before", "peer", o.domain.Name(), "evidence", f.ID, "error", err)
		}
	}
}

// reopen lets evidence that is known be taken once more.
func (c *cases) reopen(td spiffeid.TrustDomain, id string) {
	c.writing.Lock()
	defer c.writing.Unlock()

	c.mu.Lock()
	defer c.mu.Unlock()

	c.kept[td] = slices.DeleteFunc(c.kept[td], func(f EvidenceFile) bool { return f.ID == id })
}

// freezeTime bounds one attempt to have the domain act.
const freezeTime = 10 * time.Second

// enforce has the domain act on what was found, and tells the others, until ctx
// ends.
func (pr *prosecutor) enforce(ctx context.Context) {
	var tellers sync.WaitGroup
	defer tellers.Wait()
	b := newBackoff()
	for {
		left := false
		for _, p := range pr.cases.open() {
			if !p.told {
				p.told = true
				for _, n := range pr.toTell(p.Conviction) {
					tellers.Go(func() { pr.tell(ctx, p, n) })
				}
			}
			if err := pr.freeze(ctx, p); err != nil {
				left = true
				pr.cfg.Logger.Warn("the domain hasn't frozen a peer yet; this node has", "peer", p.Origin.Name(), "error", err)
			}
		}
		pause := time.Duration(0)
		if left {
			pause = b.NextBackOff()
		} else {
			b.Reset()
		}
		if !wait(ctx, pr.cases.news, pause) {
			return
		}
	}
}

func (pr *prosecutor) freeze(ctx context.Context, p *pendingCase) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	if err := pr.cfg.Court.Freeze(ctx, p.Origin); err != nil {
		return err
	}
	return pr.cases.settle(p)
}
