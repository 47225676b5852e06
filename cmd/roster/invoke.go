package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/api"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
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
	judge := func([]byte) []directory.Violation { return nil }
	if !unjudged {
		if judge, err = a.foresee(ctx, client, id, directory.Invocation{Operation: operation, Body: body}, judge); err != nil {
			return err
		}
	}
	reply, err := client.Invoke(ctx, id, operation, body)
	if err != nil {
		return suggest(err, exitNotFound, a.command("get", id))
	}
	if vs := judge(reply.Body); len(vs) > 0 {
		return failed(exitFailed, "the answer doesn't meet the operation's schema at %q: %s", vs[0].Pointer, vs[0].Detail).
			because("The agent has acted. --no-validate prints what it answers.")
	}
	return a.write(reply.Body)
}

// foresee judges the input by the registration (WOA-024), and returns what judges the
// answer: blind where the registration can't be had, which is the gateway's to say.
func (a *app) foresee(ctx context.Context, client *api.Client, id string, in directory.Invocation, blind func([]byte) []directory.Violation) (func([]byte) []directory.Violation, error) {
	var answered *api.Error
	r, err := client.Get(ctx, resource(id, ""))
	if errors.As(err, &answered) {
		return blind, nil
	} else if err != nil {
		return nil, err
	}
	c, err := contents(ctx, client, r.Href)
	if errors.As(err, &answered) {
		return blind, nil
	} else if err != nil {
		return nil, err
	}
	p, err := directory.Reproject(c.Agent, c.Document)
	if err != nil { // of a kind that a newer release knows
		return blind, nil
	}
	e := &directory.Entry{Agent: c.Agent, Document: c.Document, Packed: directory.Pack(c.Document, p)}
	if e.RID, err = directory.ParseRID(r.RID()); err != nil {
		return nil, err
	}
	judge, err := gateway.Check(e, in)
	if err != nil {
		return nil, explain(err).because("Nothing was sent; --no-validate asks the gateway all the same.")
	}
	return judge, nil
}
