package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Group returns a command that only holds others.
func Group(name, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE:  NeedSubcommand,
	}
	group.AddCommand(commands...)

	return group
}

// NeedSubcommand is the RunE of a command that has only subcommands: it names them.
func NeedSubcommand(c *cobra.Command, args []string) error {
	names := subcommands(c)
	if len(args) > 0 {
		return Usage("unknown subcommand %q of %s; must be one of %s", args[0], c.Name(), names)
	}

	return Usage("%s: missing subcommand (%s)", c.Name(), names)
}

func subcommands(c *cobra.Command) string {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}

	return strings.Join(names, ", ")
}

// Args accepts exactly these arguments, by the names that the usage line gives them.
func Args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > len(names) && len(names) == 0:
			return fmt.Errorf("%s takes no arguments, got %q", verbOf(cmd), args[0])
		case len(args) > len(names):
			return fmt.Errorf("unexpected argument %q: %s takes only %s",
				args[len(names)], verbOf(cmd), strings.Join(names, " and "))
		case len(args) < len(names):
			return fmt.Errorf("%s: missing %s", verbOf(cmd), strings.Join(names[len(args):], " and "))
		}

		return nil
	}
}

// verbOf returns the words of a command without the program's name.
func verbOf(c *cobra.Command) string {
	_, verb, _ := strings.Cut(c.CommandPath(), " ")
	return verb
}

// AtMostOne accepts no argument, or one.
func AtMostOne(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return Args(name)(c, args)
		}

		return nil
	}
}
