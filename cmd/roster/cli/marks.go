package cli

import (
	"errors"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// Annotations of commands.
const (
	markLocal     = "local"
	markUnbounded = "unbounded"
)

// MarkLocal marks a command, and those below it, that talks to no directory: it does
// without the connection's flags.
func MarkLocal(c *cobra.Command) { mark(c, markLocal) }

// MarkUnbounded marks a command, and those below it, that stays, or transfers as much as it
// finds: it has no timeout unless one is given.
func MarkUnbounded(c *cobra.Command) { mark(c, markUnbounded) }

func mark(c *cobra.Command, name string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}

	c.Annotations[name] = "yes"
}

// TalksToDirectory reports whether a command may talk to a directory.
func TalksToDirectory(c *cobra.Command) bool { return !isMarked(c, markLocal) }

// stayingFlags are the flags by which a command stays, or follows all pages.
var stayingFlags = []string{"keep", "follow", "all"}

// IsUnbounded reports whether a command has no timeout of its own.
func IsUnbounded(c *cobra.Command) bool {
	for _, name := range stayingFlags {
		if flag := c.Flags().Lookup(name); flag != nil && flag.Changed {
			return true
		}
	}

	return isMarked(c, markUnbounded)
}

func isMarked(c *cobra.Command, name string) bool {
	for ; c != nil; c = c.Parent() {
		if c.Annotations[name] != "" {
			return true
		}
	}

	return false
}

// MayHaveChanged reports whether the change that failed may have been made all the same.
func MayHaveChanged(err error) bool { return errors.Is(err, apiclient.ErrOutcomeUnknown) }
