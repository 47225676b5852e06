package connect

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
)

const (
	flagTimeout     = "timeout"
	timeoutVariable = "ROSTER_TIMEOUT"
	// defaultTimeout bounds a command that doesn't stay.
	defaultTimeout = 10 * time.Second
)

// A bound is the time that a command may take; 0 for no limit.
type bound time.Duration

// Bound returns a context with the time that a command may take: that of --timeout or
// ROSTER_TIMEOUT, else 10 seconds, and no limit for commands that run until interrupted or transfer a lot.
func (s *Session) Bound(ctx context.Context, c *cobra.Command) (context.Context, context.CancelFunc, error) {
	limit, err := s.timeoutOf(c)
	if err != nil || limit == 0 {
		return ctx, func() {}, err
	}

	s.bound = bound(limit)
	ctx, cancel := context.WithTimeout(ctx, limit)

	return ctx, cancel, nil
}

// timeoutOf returns the time that a command may take; 0 for no bound.
func (s *Session) timeoutOf(c *cobra.Command) (time.Duration, error) {
	if c.Flags().Lookup(flagTimeout) == nil {
		// The command talks to no directory.
		return 0, nil
	}

	name, text := "--"+flagTimeout, s.settings.flags.Lookup(flagTimeout).Value.String()
	if text == "" {
		name, text = timeoutVariable, s.settings.getenv(timeoutVariable)
	}

	if text != "" {
		limit, err := time.ParseDuration(text)
		if err != nil || limit < 0 {
			return 0, cli.Usage("%s must be a duration such as 30s or 2m, or 0 for none, got %q", name, text)
		}

		return limit, nil
	}

	if cli.IsUnbounded(c) {
		return 0, nil
	}

	// The time for which the directory is asked to wait comes on top.
	limit := defaultTimeout
	if wait := c.Flags().Lookup("wait"); wait != nil && wait.Changed {
		if asked, ok := wait.Value.(*cli.Seconds); ok && *asked.Value > 0 {
			limit += *asked.Value
		}
	}

	return limit, nil
}

// attemptTimeout bounds one request. With several addresses it leaves time to ask another
// node, and is longer than a node waits for its leader.
func (d *Directory) attemptTimeout(addresses int) time.Duration {
	if d.bound == 0 || addresses == 1 {
		return max(requestTimeout, time.Duration(d.bound))
	}

	return time.Duration(d.bound) * 3 / 5
}

// ExplainTimeout returns the failure of a command that took too long. Other errors are
// returned as they are.
func (s *Session) ExplainTimeout(ctx context.Context, err error) error {
	if s.bound == 0 || !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}

	failure := cli.Failed(cli.ExitUnavailable, "no answer from %s within %s", s.Address(), time.Duration(s.bound)).
		WithHint("Check that a node runs there and that no firewall drops packets; --timeout waits longer.")
	if cli.MayHaveChanged(err) {
		failure.Hint = "The change may have been made; check before you repeat it. --timeout waits longer."
	}

	return failure
}
