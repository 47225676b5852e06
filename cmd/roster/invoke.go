package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/api"
	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/client/contract"
	"github.com/roster-mesh/roster/directory"
)

func (a *app) invokeCommand() *cobra.Command {
	var operation string
	var unjudged bool
	c := &cobra.Command{
		Use:   "invoke NAME|RID INPUT",
		Short: "Have an agent do something, through the directory's gateway",
		Long: `Have an agent do something, through the gateway of the directory that is asked, and
print what it answers. INPUT is JSON: as it stands, @FILE, or - for standard input.
An array is a batch.

The input is judged by the operation's schema, as the registration has it, before
anything is sent, and so is the answer before it is printed; --no-validate leaves that
to the gateway alone.

The gateway judges both as well, and calls the agent as the node: the agent doesn't
learn the caller's credentials. What an agent answers is not to be trusted more than
the agent.`,
		Example: "  roster invoke translator '{\"text\": \"hello\"}'\n  roster invoke translator --operation detect @input.json",
		Args:    needs("NAME|RID", "INPUT"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.invoke(c.Context(), args[0], operation, args[1], unjudged)
		},
	}
	c.Flags().StringVar(&operation, "operation", "", "which of the agent's operations; needed where it has several")
	c.Flags().BoolVar(&unjudged, "no-validate", false, "judge neither input nor answer here")
	return c
}

// invoke invokes an agent, and validates input and output here unless that is not
// wanted.
func invoke(ctx context.Context, c *apiclient.Client, id, operation string, input []byte, unvalidated bool) (*apiclient.Reply, error) {
	if unvalidated {
		return c.Invoke(ctx, id, operation, input, apiclient.InvokeOptions{})
	}
	return contract.Invoke(ctx, c, id, operation, input, nil, apiclient.InvokeOptions{})
}

func (a *app) invoke(ctx context.Context, id, operation, input string, unjudged bool) error {
	body := []byte(input)
	if file, named := strings.CutPrefix(input, "@"); named || input == "-" {
		var err error
		if body, err = a.readFile(file, api.DefaultMaxInvocation+1); err != nil {
			return err
		}
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	reply, err := invoke(ctx, client, id, operation, body, unjudged)
	var bad *contract.OutputError
	var unfit *directory.Error
	switch {
	case errors.As(err, &bad):
		return failed(exitFailed, "%w", bad).because("The agent has acted. --no-validate prints what it answers.")
	case errors.As(err, &unfit):
		return failureOf(err).because("Nothing was sent; --no-validate asks the gateway all the same.")
	case err != nil:
		return suggest(err, exitNotFound, a.command("get", id))
	}
	return a.write(reply.Body)
}
