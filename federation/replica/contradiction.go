package replica

import (
	"errors"
	"math"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// Contradicted returns the page of the chain that differs from p on the same registration
// and revision (evidence E1), or "". Digests after the stream's watermark can't be compared;
// those are nearly all. It stops without a result when comparePace is exhausted.
func (o *Origin) Contradicted(p *Page) (other string, err error) {
	err = o.Store.Read(p.Stream(), func(t *store.Tx) error {
		var page comparedPage
		for _, digest := range p.Digests {
			if digest.Revision > t.State.Watermark {
				return nil
			}

			// A page that regularly arrives twice doesn't need the chain.
			held, err := t.Get(digest.RID)
			if err != nil {
				return err
			}

			if held != nil && digest.Live() && store.Agree(held.Digest(digest.RID), digest) {
				continue
			}

			if digest.Revision > page.to {
				if !o.comparePace.Allow() {
					return nil
				}

				if page, err = chainedPage(t, o.Cfg.Dialect, digest.Revision); err != nil {
					return err
				}
			}

			if page.Text != p.Text && page.denies(digest) {
				other = page.Text
				return nil
			}
		}

		return nil
	})

	return other, err
}

// A comparedPage is a parsed page of a chain. The zero value lists nothing.
type comparedPage struct {
	Text    string
	to      uint64
	digests map[directory.RID]signed.Digest
}

// chainedPage returns the page of the chain that contains revision r.
func chainedPage(t *store.Tx, dialect signed.Dialect, r uint64) (comparedPage, error) {
	stored, to, err := t.PageOf(r)
	if err != nil || stored == nil {
		return comparedPage{to: math.MaxUint64}, err // nothing later either
	}

	parts, err := protocol.SplitJWS(stored.JWS)
	if err != nil {
		return comparedPage{}, store.ErrStore
	}

	page, err := dialect.ParsePage(parts.Payload)
	if errors.Is(err, signed.ErrUnsupported) { // accepted by a later release that ran here before
		return comparedPage{Text: stored.JWS, to: to}, nil
	}

	if err != nil {
		return comparedPage{}, store.ErrStore
	}

	c := comparedPage{Text: stored.JWS, to: page.To, digests: make(map[directory.RID]signed.Digest, len(page.Digests))}
	for _, d := range page.Digests {
		c.digests[d.RID] = d
	}

	return c, nil
}

// denies reports whether the page lists a different change with the revision of d.
func (c *comparedPage) denies(d signed.Digest) bool {
	mine, ok := c.digests[d.RID]
	return ok && mine.Revision == d.Revision && mine != d
}

const compareRate = 20 // pages of a chain a second

const compareBurst = 100
