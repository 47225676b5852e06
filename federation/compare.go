package federation

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/roster-mesh/roster/directory"
)

// What comparing may cost: pages of a chain are read at this pace for one origin,
// whoever sends what there is to compare. What isn't compared now may be later, or
// by another.
const (
	compareRate  = 20 // pages of a chain a second
	compareBurst = 100
	crossPages   = 8      // that another domain is asked for in one round
	crossFirst   = 10_000 // digests of a chain that is compared from its beginning
	crossDomains = 2      // with which all that is new is compared
	crossTries   = 16     // domains that are asked for that in one round
)

// contradicted returns the page of the chain that says otherwise than p of the
// same registration and revision (evidence E1); "" for none. What is newer than
// the stream is here can't be compared, and that is nearly all that comes.
func (m *Mesh) contradicted(o *origin, p *verifiedPage) (other string, err error) {
	o.mu.Lock()
	st := o.feedOf(p.Audience).existing(p.Epoch)
	var upTo uint64
	if st != nil {
		upTo = st.state.Watermark
	}
	o.mu.Unlock()
	if st == nil || len(p.Digests) == 0 || p.Digests[0].Revision > upTo {
		return "", nil
	}
	err = m.store.read(st.id, func(t *streamTx) error {
		var page comparedPage
		for _, d := range p.Digests {
			if d.Revision > upTo {
				return nil
			}
			switch same, err := t.agrees(d); {
			case err != nil:
				return err
			case same:
				continue
			}
			if d.Revision > page.to {
				if !o.comparing.Allow() {
					return nil
				}
				if page, err = t.pageOf(d.Revision); err != nil {
					return err
				}
			}
			if page.text != p.text && page.denies(d) {
				other = page.text
				return nil
			}
		}
		return nil
	})
	return other, err
}

// compare refuses a page that contradicts what is here, where that convicts its
// origin.
func (m *Mesh) compare(o *origin, p *verifiedPage) error {
	if m.cfg.Court == nil {
		return nil
	}
	other, err := m.contradicted(o, p)
	if err != nil || other == "" {
		return err
	}
	if m.accuse(o, []string{other, p.text}, o.issued()) {
		return &Refusal{CodeEquivocation, o.domain, errOffence}
	}
	return nil
}

// existing returns the stream of an epoch if there is one.
func (f *feed) existing(epoch uint64) *stream {
	for _, st := range []*stream{f.cur, f.next} {
		if st != nil && st.id.epoch == epoch {
			return st
		}
	}
	return nil
}

// agrees reports whether d is what is held of its registration, which spares
// reading the chain for what comes twice as a matter of course. Whether it was put
// or renewed is not held, and makes no difference to what is shown.
func (t *streamTx) agrees(d directory.Digest) (bool, error) {
	h, err := t.get(d.RID)
	if err != nil || h == nil || !d.Live() {
		return false, err
	}
	mine := h.digest(d.RID)
	mine.Op = d.Op
	return mine == d, nil
}

// A comparedPage is a page of a chain, taken apart. The zero value lists nothing.
type comparedPage struct {
	text    string
	to      uint64
	digests map[directory.RID]directory.Digest
}

// pageOf returns the page of the chain that brought revision r here.
func (t *streamTx) pageOf(r uint64) (comparedPage, error) {
	k, v := t.chain().Cursor().Seek(binary.BigEndian.AppendUint64(nil, r))
	if k == nil {
		return comparedPage{to: math.MaxUint64}, nil // nothing later either
	}
	var stored storedPage
	if err := unmarshal(v, &stored); err != nil {
		return comparedPage{}, err
	}
	parts, err := splitJWS(stored.JWS)
	if err != nil {
		return comparedPage{}, errStore
	}
	page, err := directory.ParsePage(parts.payload)
	if err != nil {
		return comparedPage{}, errStore
	}
	c := comparedPage{text: stored.JWS, to: page.To, digests: make(map[directory.RID]directory.Digest, len(page.Digests))}
	for _, d := range page.Digests {
		c.digests[d.RID] = d
	}
	return c, nil
}

// denies reports whether the page lists another change by the number of d.
func (c *comparedPage) denies(d directory.Digest) bool {
	mine, ok := c.digests[d.RID]
	return ok && mine.Revision == d.Revision && mine != d
}

// crossChecks asks other domains, after there was something new, what the origin
// told them: who is told two things is told them apart. Of a busy stream it
// compares a part.
func (m *Mesh) crossChecks(ctx context.Context, o *origin) {
	var done seen
	for wait(ctx, nil, m.headPause()) {
		now := o.seen()
		if now == done {
			continue
		}
		if now.epoch != done.epoch {
			done = seen{epoch: now.epoch, upTo: now.from}
		}
		others, asked := m.others(o.domain), 0
		for i, n := range others {
			if asked == crossDomains || i == crossTries {
				break
			}
			whole, err := m.crossCheck(ctx, o, n, done.upTo, now.upTo)
			if err != nil {
				m.cfg.Logger.Debug("can't compare with another", "origin", o.domain.Name(), "node", n.base, "error", err)
			} else if whole {
				asked++
			}
		}
		if asked == min(crossDomains, len(others)) { // else somebody is behind, and asked again
			done = now
		}
	}
}

// What is seen of an origin: how far its stream is here, and its key document.
type seen struct {
	epoch, upTo uint64
	keys        string
	from        uint64 // from where on a stream is compared that wasn't yet
}

func (o *origin) seen() seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := seen{keys: o.keysText}
	if st := o.cur; st != nil {
		s.epoch, s.upTo = st.id.epoch, st.state.Watermark
		if st.state.Listed > crossFirst {
			s.from = st.state.Watermark
		}
	}
	return s
}

// crossCheck compares what the node n has of an origin's stream between two
// revisions with what is here, and its key document. It reports whether n has all
// of it, or more than is compared at a time.
func (m *Mesh) crossCheck(ctx context.Context, o *origin, n node, since, upTo uint64) (whole bool, err error) {
	for pages := 0; since < upTo && pages < crossPages; pages++ {
		text, err := m.getPage(ctx, n, o.domain, directory.Mesh, since, 0)
		if err != nil || text == "" {
			return false, err
		}
		to, err := m.crossPage(ctx, o, n, text)
		if err != nil {
			return false, err
		}
		if to <= since {
			return false, errGap
		}
		since = to
	}
	return true, m.askHead(ctx, o, n)
}

// crossPage takes a page that another domain was told, and returns how far it goes.
// One by a key that is listed no longer is shown to nobody, but it may be one half
// of a contradiction; the court checks who signed it.
func (m *Mesh) crossPage(ctx context.Context, o *origin, n node, text string) (to uint64, err error) {
	p, _, err := m.take(ctx, sender{domain: n.domain}, n, text)
	if err == nil {
		return p.To, nil
	}
	old := o.oldPage(text)
	if codeOf(err) != CodeKeyUnknown || old == nil || m.cfg.Court == nil {
		return 0, err
	}
	other, err := m.contradicted(o, old)
	if err == nil && other != "" {
		m.accuse(o, []string{other, text}, o.issued())
	}
	return old.To, err
}
