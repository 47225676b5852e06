package agents

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

func getCommand(session *connect.Session) *cobra.Command {
	var (
		origin     string
		provenance bool
		proof      bool
		staple     bool
		past       bool
		after      string
		recipients bool
		read       apiclient.ReadOptions
	)
	cmd := &cobra.Command{
		Use:   "get NAME|RID",
		Short: "Show one registration of any domain",
		Long: `Show one registration in full. A name is looked up in the directory's own domain first,
then in the domains of its peers. If several peers have the name, choose one with --origin.

The column BY separates facts that the directory checked from claims of the registrant.
With --provenance the table shows the way of the registration from its registrant to this
node: origin, signed page, relay and verification.

The owner of a registration of the directory's own domain, and operators, also see the peers
that it is sent to, and those from which it is withheld, and why. With --audience the table
and -o json have these alone: one row for each peer, with the policies that decided.

With --proof the proof file of the registration is printed: the signed record, the page that
lists it and the origin's key document. "roster verify FILE" verifies it offline.

With --staple it is a proof file of at most 6 KiB that the agent shows to others, and that is
fresh for 30 minutes: "roster verify FILE --staple". Only a node of the domain that registered
the agent can make it. "roster register --keep --staple FILE" keeps one fresh.

With --history the table has all that was stated of the registration: when, by whom, at which
index of the domain's ledger, and which members changed. Of an end the column BY says whether
the registration expired or was removed. -o json has the documents, and the proofs that the
ledger has each statement. One that has ended is named by its RID, and shown to its last owner,
operators and auditors. A long history is shown from its end back, in parts.`,
		Example: "  roster get weather-oslo\n  roster get translator --origin beta.test --provenance\n" +
			"  roster get weather-oslo --proof > proof.json",
		Args: cli.Args("NAME|RID"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := session.Client()
			if err != nil {
				return err
			}

			// The history comes first, because a registration that has ended can't be read any more.
			if past {
				return printHistory(c.Context(), session, client, args[0], origin, after, read)
			}

			found, err := get(c.Context(), session, client, args[0], origin, read)
			if err != nil {
				return err
			}

			if proof {
				return printProof(c.Context(), session, client.Proof, found.Href)
			}

			if staple {
				return printProof(c.Context(), session, client.Staple, found.Href)
			}

			if recipients {
				return printAudience(c.Context(), session, client, &found.Registration)
			}

			if provenance {
				t := provenanceTable(c.Context(), session, client, &found.Registration)
				return session.Print(cli.Answer{Body: found.Body, Table: t})
			}

			sent := audienceOf(c.Context(), session, client, &found.Registration)
			t := describe(session.Console, &found.Registration, sent)

			return session.Print(cli.Answer{Body: found.Body, Table: t})
		},
	}
	cmd.Flags().StringVar(&origin, "origin", "", "`DOMAIN` that registered the agent")
	cmd.Flags().BoolVar(&provenance, "provenance", false, "show origin, signatures and the way to this node")
	cmd.Flags().BoolVar(&proof, "proof", false, "print the proof file, for roster verify")
	cmd.Flags().BoolVar(&staple, "staple", false, "print a small, fresh proof file for the agent to carry")
	cmd.Flags().BoolVar(&past, "history", false, "show all that was stated of it, with its place in the ledger")
	cmd.Flags().StringVar(&after, "after", "", "with --history: show the statements before this `CURSOR`")
	cmd.Flags().BoolVar(&recipients, "audience", false, "show which peers it is sent to, and why not to others")
	cmd.MarkFlagsMutuallyExclusive("proof", "staple", "provenance", "audience", "history")
	addReadFlags(cmd, &read)

	return cmd
}

// A proofReader reads a proof file of the registration at a path.
type proofReader func(ctx context.Context, href string) (*apiclient.Reply, error)

// printProof prints the proof file of a registration as the directory made it.
func printProof(ctx context.Context, session *connect.Session, read proofReader, href string) error {
	reply, err := read(ctx, href)

	// The registration was read before, so only the proof can be missing.
	if errors.Is(err, apiclient.ErrNotFound) {
		reason := strings.TrimSuffix(cli.FailureOf(err).Message, ".")

		return cli.Failed(cli.ExitNotFound, "no proof: %s", reason).
			WithHint("A proof needs the signed page of an export: register it with --visibility mesh.")
	}

	if err != nil {
		return err
	}

	return session.PrintDocument(reply.Body)
}

// printHistory prints the history of a registration, by its name while it lives, and by its rid.
func printHistory(
	ctx context.Context, session *connect.Session, client *apiclient.Client, id, origin, after string,
	read apiclient.ReadOptions,
) error {
	path := id

	// A rid without a domain is used as it is: its registration may have ended, and then no lookup finds it.
	if _, err := directory.ParseRID(id); err != nil || origin != "" {
		found, err := get(ctx, session, client, id, origin, read)
		if err != nil {
			return err
		}

		path = found.Href
	}

	past, reply, err := client.History(ctx, path, after)
	if err != nil {
		return err
	}

	t := cli.Table{Head: []string{"AT", "INDEX", "STATE", "BY", "NODE", "CHANGED"}}
	for _, st := range past.Statements {
		t.Add(session.Console.Time(st.At), strconv.FormatUint(st.Index, 10), st.State,
			cmp.Or(st.RegisteredBy, st.TransferredBy, st.Owner, st.Reason), st.BroughtBy,
			strings.Join(st.Changed, ", "))
	}

	if past.Next != "" {
		session.Console.Note("There are earlier statements: %s",
			session.CommandLine("get", id, "--history", "--after", past.Next))
	}

	if !past.Complete {
		session.Console.Note("This node has not all statements. A node of %s may have more.", past.Origin)
	}

	return session.Print(cli.Answer{Body: reply.Body, Items: "statements", Table: t})
}

// addReadFlags adds the flags that say how fresh a response must be.
func addReadFlags(c *cobra.Command, options *apiclient.ReadOptions) {
	flags := c.Flags()
	cli.ChoiceFlag(c, &options.Consistency, "consistency",
		"`LEVEL` of consistency: default, stale (the node's own copy, however "+
			"old) or linearizable (includes every write that the domain acknowledged before)",
		"default", "stale", "linearizable")
	flags.StringArrayVar(&options.Min, "min", nil, "wait until the node has this `INDEX` of an earlier write or read, "+
		"DOMAIN=EPOCH.REVISION; may be repeated")
	flags.Var(&cli.Seconds{Value: &options.Wait, Zero: -1}, "wait",
		"longest wait for --min in `SECONDS`, 0 to 60 (default 5)")
}

func get(
	ctx context.Context, session *connect.Session, client *apiclient.Client, id, origin string,
	read apiclient.ReadOptions,
) (*apiclient.Resource, error) {
	path, err := connect.Locate(ctx, client, id, origin, read)
	if err != nil {
		return nil, connect.SuggestLookup(ctx, session, err, id)
	}

	found, err := client.GetFresh(ctx, path, read)
	if err != nil {
		err = suggestPresent(err, session.CommandLine("get", id))

		return nil, connect.ExplainAmbiguity(session, connect.SuggestLookup(ctx, session, err, id), id)
	}

	return found, nil
}

// suggestPresent adds the command that reads without a position to the failure that a restore
// lost that position.
func suggestPresent(err error, command string) error {
	if response := (*apiclient.Error)(nil); errors.As(err, &response) &&
		response.Code == string(directory.PositionLost) {
		return cli.Suggest(err, cli.ExitUnavailable, command)
	}

	return err
}

// The values of the column BY.
const (
	byDirectory = "directory"
	byClaim     = "claimed"
)

// describe returns the members of a registration, with the facts of the directory before
// the claims of the registrant.
func describe(console *cli.Console, r *apiclient.Registration, sent *apiclient.Audience) cli.Table {
	t := cli.Table{Head: []string{"MEMBER", "BY", "VALUE"}}
	add := func(by, member, value string) {
		if value != "" {
			t.Add(member, by, value)
		}
	}

	provenance := r.Provenance
	add(byDirectory, "agent", r.Agent)
	add(byDirectory, "doubts about the name", strings.Join(provenance.Flags, ", "))
	add(byDirectory, "rid", r.RID())
	add(byDirectory, "origin", provenance.Authority)
	addRegistrant(add, provenance)
	add(byDirectory, "verification", verificationState(provenance))
	add(byDirectory, "probe", probeResult(console, provenance.Verification.Probe))
	add(byDirectory, "kind", r.Kind)
	addAudience(add, provenance.Visibility, sent)
	add(byDirectory, "registered", console.Time(r.RegisteredAt))
	add(byDirectory, "updated", console.Time(r.UpdatedAt))
	add(byDirectory, "expires", console.Time(r.ExpiresAt))

	add(byClaim, "name", r.Name)
	add(byClaim, "description", r.Description)
	add(byClaim, "base", r.Base)
	add(byClaim, "protocols", strings.Join(r.Protocols, " "))
	add(byClaim, "status", r.Status)
	add(byClaim, "version", r.Version)
	add(byClaim, "vendor", r.Vendor)

	for _, capability := range r.Capabilities {
		text := capability.Name + " (" + capability.Type + ")"
		if capability.Description != "" {
			text += ": " + capability.Description
		}

		add(byClaim, "capability", text)
	}

	if r.Redacted {
		add(byDirectory, "redacted", "some members are withheld from you")
	}

	return t
}

// addRegistrant adds who registered the contents, and the other identities that take part. The
// identities of another domain's registration are the origin's claim if that domain doesn't
// authenticate them, and a source is the registrant's.
func addRegistrant(add func(by, member, value string), provenance apiclient.Provenance) {
	by := byDirectory
	if provenance.RegistrantState == string(directory.RegistrantClaimed) {
		by = byClaim
	}

	add(by, "registrant", provenance.Registrant)
	add(by, "owner", provenance.Owner)
	add(by, "registered by", provenance.RegisteredBy)
	add(by, "transferred by", provenance.TransferredBy)
	add(byClaim, "imported from", provenance.ImportedFrom)
}

// verificationState returns the state of verification and the doubts about it.
func verificationState(p apiclient.Provenance) string {
	switch verification := p.Verification; {
	case verification.Unconfirmed && verification.State != "local":
		return verification.State + ", unconfirmed: only one node of its origin announces it"
	case verification.Unconfirmed:
		return verification.State + ", unconfirmed: hidden from peers until its owner refreshes it"
	case verification.Disputed:
		return verification.State + ", disputed: there is evidence that its origin equivocated"
	default:
		return verification.State
	}
}

// probeResult returns the result of comparing a registration with the agent's own
// description, if the directory did so.
func probeResult(console *cli.Console, probe *apiclient.Probe) string {
	if probe == nil {
		return ""
	}

	result := probe.State + " at " + console.Time(probe.CheckedAt)
	switch {
	case len(probe.Members) > 0:
		result += ": the agent's own description differs in " + strings.Join(probe.Members, ", ")
	case probe.Reason != "":
		result += ": " + probe.Reason
	}

	return result
}
