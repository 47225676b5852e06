package directory

import (
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A View is what one node answers from: its own domain's index and those of the
// other origins. It shows only what is alive by each origin's clock (rule T4).
type View struct{}

// NewView returns the view of a node of that domain.
func NewView(domain spiffeid.TrustDomain) *View { panic("x") }

// Own returns the own domain's index.
func (v *View) Own() *Index { panic("x") }

// Origin returns another domain's index, which is made when it is first asked
// for.
func (v *View) Origin(td spiffeid.TrustDomain) *Index { panic("x") }

// Drop forgets another domain's index whole.
func (v *View) Drop(td spiffeid.TrustDomain) { panic("x") }

// Origins returns the other domains that there is an index of, sorted by name.
func (v *View) Origins() []spiffeid.TrustDomain { panic("x") }

// A Page is one page of a lookup's answer.
type Page struct {
	Entries []*Entry
	More    bool
	Next    Cursor // behind the last entry, where More is set
}

// Lookup answers q with what is alive and visible says yes to; nil lets
// everything be seen.
func (v *View) Lookup(q Query, visible func(*Entry) bool) Page { panic("x") }

// Find returns what a path's id stands for: a rid or a given name, the own
// domain's first, and else those of all other domains.
func (v *View) Find(id string) []*Entry { panic("x") }

// Get returns the living registration of that origin and rid.
func (v *View) Get(origin spiffeid.TrustDomain, rid RID) (*Entry, bool) { panic("x") }
