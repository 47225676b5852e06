package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("%q is no command of roster %s", args[0], use)
		}
		return usage("roster %s needs a command behind it", use)
	}}
	c.AddCommand(commands...)
	return c
}

// needs is for a command whose arguments are these.
func needs(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > len(names):
			return fmt.Errorf("%s has no place for %q", c.CommandPath(), args[len(names)])
		case len(args) < len(names):
			return fmt.Errorf("%s needs %s", c.CommandPath(), strings.Join(names[len(args):], " and "))
		}
		return nil
	}
}

// anyOf is for a command that takes at most one argument.
func anyOf(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return needs(name)(c, args)
		}
		return nil
	}
}

// asking is what a command does that needs the directory's client for all of it.
func (a *app) asking(do func(ctx context.Context, client *apiclient.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		return do(c.Context(), client, args)
	}
}
