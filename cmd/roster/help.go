package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/roster-mesh/roster/cmd/roster/connect"
)

const connectionHelp = `The address of the directory and your identity come from flags, from the environment,
or from a connection saved with "roster context set". Flags take precedence over the
environment, and the environment over a saved connection. The token file of a saved connection
applies only to the addresses saved with it; for another address, give --token-file.

Give the addresses of several nodes of one domain, repeated or separated by commas: a request
goes to the next if a node is unreachable. With a bundle the program also learns the addresses of
the domain's other nodes. It repeats a request only if that is safe, and waits for an
election until the timeout.

`

// connectionTopic is the help on the connection, which no command's help repeats.
func connectionTopic(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "connection",
		Short: "Explain the flags for the directory, your identity and the timeout",
		Long:  connectionHelp + strings.TrimRight(session.FlagUsages(), "\n"),
	}
}

// ownFlags returns the flags that the help of a command lists: not those of the connection.
func ownFlags(session *connect.Session, flags *pflag.FlagSet) *pflag.FlagSet {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(flag *pflag.Flag) {
		if !session.IsConnectionFlag(flag) {
			own.AddFlag(flag)
		}
	})

	return own
}

// usage prints how to use a command, as cobra does, without the connection's flags.
func (p *program) usage(c *cobra.Command) error {
	var text strings.Builder
	if c.Runnable() && !c.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "Usage:\n  %s\n", c.UseLine())
	} else if c.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "Usage:\n  %s COMMAND\n", c.CommandPath())
	}

	if len(c.Aliases) > 0 {
		fmt.Fprintf(&text, "\nAliases:\n  %s\n", c.NameAndAliases())
	}

	if c.HasExample() {
		fmt.Fprintf(&text, "\nExamples:\n%s\n", c.Example)
	}

	writeCommands(&text, c)

	if own := ownFlags(p.session, c.LocalFlags()); own.HasAvailableFlags() {
		fmt.Fprintf(&text, "\nFlags:\n%s", own.FlagUsages())
	}

	if c.HasAvailableInheritedFlags() {
		fmt.Fprintf(&text, "\nOutput flags:\n%s", c.InheritedFlags().FlagUsages())
	}

	_, err := io.WriteString(c.OutOrStderr(), text.String()+p.references(c))

	return err
}

// references says where the help has more.
func (p *program) references(c *cobra.Command) string {
	var text string

	connects := false
	c.Flags().VisitAll(func(flag *pflag.Flag) { connects = connects || p.session.IsConnectionFlag(flag) })

	if connects {
		text = "\nThe flags for address, identity and timeout: " + p.session.Program + " help connection\n"
	}

	if c.HasAvailableSubCommands() {
		text += "\nMore about a command: " + c.CommandPath() + " COMMAND --help\n"
	}

	return text
}

// writeCommands lists the commands below a command, by their groups.
func writeCommands(text *strings.Builder, c *cobra.Command) {
	section := func(title string, belongs func(*cobra.Command) bool) {
		for _, child := range c.Commands() {
			if !belongs(child) {
				continue
			}

			// The title comes with the first command, so that an empty section has no title.
			if title != "" {
				fmt.Fprintf(text, "\n%s\n", title)
				title = ""
			}

			fmt.Fprintf(text, "  %-*s %s\n", child.NamePadding(), child.Name(), child.Short)
		}
	}

	for _, group := range c.Groups() {
		section(group.Title, func(child *cobra.Command) bool {
			return child.GroupID == group.ID && child.IsAvailableCommand()
		})
	}

	rest := "Commands:"
	if len(c.Groups()) > 0 {
		rest = "Other commands:"
	}

	section(rest, func(child *cobra.Command) bool {
		return child.GroupID == "" && (child.IsAvailableCommand() || child.Name() == "help")
	})
	section("Help topics:", func(child *cobra.Command) bool { return child.IsAdditionalHelpTopicCommand() })
}
