package discovery

import (
	"cmp"
	"errors"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery/content"
)

// Config configures a Finder. Only View is required.
type Config struct {
	View *index.View
	// Panics counts those on entries that can't be indexed; nil counts nothing.
	Panics *contain.Panics
	// Class returns the visibility class of an entry: a Reader sees all entries of a class
	// or none. The default is its origin, owner, visibility and agent name. A policy that
	// depends on less should return less, since it is asked once per class and reader.
	Class func(*directory.Entry) string
	// Generation returns the version of the policy that Class and each Reader's Sees depend
	// on. It changes immediately after their answers do; decisions of another generation are
	// discarded. Nil never changes.
	Generation func() uint64
	// Logged returns where a registration's statement is in its origin's ledger; false if that is not
	// known, or was not verified here. Nil knows no ledger.
	Logged func(*directory.Entry) (directory.Inclusion, bool)
	// Embedder is a source of vectors; nil ranks by words alone. It receives the text of every
	// query and of every registration, hidden ones included.
	Embedder   Embedder
	Weights    Weights // DefaultWeights where it is zero
	Taxonomies []content.Taxonomy
	// redaction selects the members of each registration that are indexed.
	redaction directory.Redaction
	// PerOwner is how many candidates of one owner of one origin an answer has before
	// candidates of others that match about as well. 0 is DefaultPerOwner.
	PerOwner int
}

// DefaultPerOwner is the default of Config.PerOwner.
const DefaultPerOwner = 3

// withDefaults returns c with the defaults of all that it leaves out.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Weights == (Weights{}) {
		cfg.Weights = DefaultWeights
	}

	if err := cfg.Weights.Check(); err != nil {
		return cfg, err
	}

	if cfg.View == nil {
		return cfg, errors.New("a finder needs a view")
	}

	if cfg.Class == nil {
		cfg.Class = func(e *directory.Entry) string {
			return strings.Join([]string{e.Origin.Name(), e.Owner.String(), e.Visibility.String(), e.Agent}, "\x00")
		}
	}

	if cfg.Logged == nil {
		cfg.Logged = func(*directory.Entry) (at directory.Inclusion, ok bool) { return at, false }
	}

	if cfg.Generation == nil {
		cfg.Generation = func() uint64 { return 0 }
	}

	cfg.PerOwner = cmp.Or(cfg.PerOwner, DefaultPerOwner)

	return cfg, nil
}
