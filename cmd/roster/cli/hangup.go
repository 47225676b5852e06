package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

type hangupKey struct{}

// WithHangup returns a context that SIGHUP ends, as when a terminal is closed, unless the
// process ignores the signal (nohup) or a command takes it by Hangups.
func WithHangup(ctx context.Context) context.Context {
	if signal.Ignored(syscall.SIGHUP) {
		return ctx
	}

	ctx, end := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)

	go func() {
		select {
		case <-hangups:
			end()
		case <-ctx.Done():
		}

		signal.Stop(hangups)
	}()

	return context.WithValue(ctx, hangupKey{}, hangups)
}

// Hangups returns a channel of SIGHUP, which doesn't end the context of WithHangup any more.
// Signals that nothing receives are one.
func Hangups(ctx context.Context) <-chan os.Signal {
	// The new channel comes first, so that no signal in between has its default effect.
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, syscall.SIGHUP)

	if ending, ok := ctx.Value(hangupKey{}).(chan os.Signal); ok {
		signal.Stop(ending)
	}

	return taken
}
