package discovery

import (
	"errors"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery/content"
)

// Config is what a Finder needs. View alone has no default.
type Config struct {
	View *index.View
	// Panics counts those on entries that can't be indexed; nil counts nothing.
	Panics *contain.Panics
	// Class names what decides who sees an entry: a Reader sees all entries of one
	// class or none. By default, its origin, owner, visibility and agent name; a
	// policy that looks at less should say so, since each class is asked for once
	// per reader.
	Class func(*directory.Entry) string
	// Generation counts what Class and each Reader's Sees answer by: the policy's
	// version. It changes after their answers do, at once; what was decided in
	// another generation decides nothing. Nil never changes.
	Generation func() uint64
	// Verification is what is known of where an entry comes from. By default, Local
	// for the view's own domain and Verified for others.
	Verification func(*directory.Entry) Verification
	// Trust is the component policy of an entry, 0 to 1. By default 1.
	Trust func(*directory.Entry) float64
	// Embedder is a source of vectors; nil ranks by words alone. It is told the text
	// of every query and of every registration, hidden ones' too.
	Embedder   Embedder
	Weights    Weights // DefaultWeights where it is zero
	Taxonomies []content.Taxonomy
	// sight is what is indexed of each registration.
	sight directory.Redaction
	// PerOwner is how many candidates of one owner of one origin an answer has before
	// those of others that match about as well. DefaultPerOwner where it is 0.
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

	own := cfg.View.Domain()
	if cfg.Class == nil {
		cfg.Class = func(e *directory.Entry) string {
			return strings.Join([]string{e.Origin.Name(), e.Owner.String(), e.Visibility.String(), e.Agent}, "\x00")
		}
	}

	if cfg.Verification == nil {
		cfg.Verification = func(e *directory.Entry) Verification {
			if e.Origin == own {
				return Local
			}

			return Verified
		}
	}

	if cfg.Trust == nil {
		cfg.Trust = func(*directory.Entry) float64 { return 1 }
	}

	if cfg.Generation == nil {
		cfg.Generation = func() uint64 { return 0 }
	}

	if cfg.PerOwner == 0 {
		cfg.PerOwner = DefaultPerOwner
	}

	return cfg, nil
}
