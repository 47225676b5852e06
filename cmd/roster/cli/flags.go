package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/directory"
)

// LifetimeFlag adds --lt, which is checked before a request is sent.
func LifetimeFlag(c *cobra.Command, lifetime *Lifetime) {
	c.Flags().Var(lifetime, "lt",
		"lifetime of the registration, in `SECONDS` or such as 10m, a minute or more; the directory may grant less")
}

// VisibilityFlag adds --visibility, which is checked before a request is sent.
func VisibilityFlag(c *cobra.Command, value *string, usage string) {
	c.Flags().Var((*visibility)(value), "visibility", usage)
	Complete(c, "visibility", "domain", "mesh", "peers:")
}

// visibility is the value of --visibility; empty if the flag is not given.
type visibility string

// String returns the value.
func (v *visibility) String() string { return string(*v) }

// Type names the flag's value in the help.
func (v *visibility) Type() string { return "VISIBILITY" }

// Set checks the flag's value.
func (v *visibility) Set(text string) error {
	if _, err := directory.ParseVisibility(text); err != nil && text != "" {
		return errors.New("must be domain, mesh, or peers: and a list of domains")
	}

	*v = visibility(text)

	return nil
}

// A Lifetime is the value of --lt in seconds. It is zero if the flag is not given.
type Lifetime uint32

// String returns the number, or nothing for zero.
func (l *Lifetime) String() string { return NonZero(uint64(*l)) }

// Duration returns the lifetime as a duration.
func (l Lifetime) Duration() time.Duration { return time.Duration(l) * time.Second }

// Type names the flag's value in the help.
func (l *Lifetime) Type() string { return "SECONDS" }

// Set parses the flag's value.
func (l *Lifetime) Set(text string) error {
	n, err := directory.ParseLifetime(secondsOf(text), 0)
	if err != nil || n == 0 {
		return fmt.Errorf("must be a whole number of seconds from 60 to %d, or a duration such as 10m",
			uint32(math.MaxUint32))
	}

	*l = Lifetime(n)

	return nil
}

// secondsOf returns a duration of whole seconds, such as 10m, as their number. Other text is
// returned as it is.
func secondsOf(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d%time.Second != 0 {
		return text
	}

	return strconv.FormatUint(WholeSeconds(d), 10)
}

// Seconds is the value of a flag that takes a whole number of seconds, or a duration. Zero is
// stored for 0 if that has another meaning than a flag that is not given.
type Seconds struct {
	Value *time.Duration
	Zero  time.Duration
}

// String returns nothing, so that the help shows no default.
func (s *Seconds) String() string { return "" }

// Type names the flag's value in the help.
func (s *Seconds) Type() string { return "SECONDS" }

// Set parses the flag's value.
func (s *Seconds) Set(text string) error {
	n, err := strconv.ParseUint(secondsOf(text), 10, 31)
	if err != nil {
		return errors.New("must be a whole number of seconds, or a duration such as 10m")
	}

	*s.Value = time.Duration(n) * time.Second
	if n == 0 {
		*s.Value = s.Zero
	}

	return nil
}
