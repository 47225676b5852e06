package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
)

// A revocation is what roster revoke prints.
type revocation struct {
	Identity      directory.Identity            `json:"identity"`
	Policy        string                        `json:"policy"` // the policy that forbids it everything
	Ended         bool                          `json:"ended"`
	Registrations []apiclient.OwnedRegistration `json:"registrations"`
}

func (a *app) revokeCommand() *cobra.Command {
	var end bool
	c := &cobra.Command{
		Use:   "revoke IDENTITY",
		Short: "Forbid an identity everything, and list or end what it owns",
		Long: `Forbid an identity everything in this domain, by a policy of its own that is put
behind those in force, and list the registrations that it owns. Without --end they
stay until their lifetimes end, and who has its credentials keeps them alive; with it
they are removed. To let the identity back in, take the policy out again ("roster policy
show", "roster policy apply").`,
		Example: "  roster revoke spiffe://alpha.test/agent/eve --end",
		Args:    needs("IDENTITY"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := directory.ParseIdentity(args[0])
			if err != nil {
				return usage("%q is no identity: a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT", args[0])
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			done := revocation{Identity: id, Policy: "revoked " + id.String(), Ended: end, Registrations: []apiclient.OwnedRegistration{}}
			if err := a.forbid(c.Context(), client, done.Policy, id); err != nil {
				return err
			}
			if done.Registrations, err = a.owned(c.Context(), client, id, end); err != nil {
				return err
			}
			return a.printRevocation(done)
		},
	}
	c.Flags().BoolVar(&end, "end", false, "remove what it owns")
	return c
}

// maxForbidden bounds how often a policy is made anew because another change came first.
const maxForbidden = 16

// forbid puts a policy of that name behind those in force, unless it is there. Of
// changes that others make meanwhile none is lost.
func (a *app) forbid(ctx context.Context, client *apiclient.Client, name string, id directory.Identity) error {
	for tried := 1; ; tried++ {
		now, _, err := client.Policy(ctx)
		if err != nil {
			return err
		}
		text, is := forbidding(now.Policy, name, id)
		if is {
			a.note("%s is forbidden everything already", id)
			return nil
		}
		err = client.SetPolicy(ctx, text, &now.Version)
		switch {
		case err == nil:
			a.note("%s is forbidden everything", id)
			return nil
		case tried == maxForbidden || !errors.Is(err, apiclient.ErrPrecondition):
			return err
		}
		if !pause(ctx, time.Duration(tried)*20*time.Millisecond) { // the node that was asked may not have the other change yet
			return ctx.Err()
		}
	}
}

// forbidding returns policies with one of that name behind them that forbids an identity
// everything, and whether they have it: whole, since one that was made a comment, or says
// something else by now, forbids nothing.
func forbidding(policies, name string, id directory.Identity) (text string, is bool) {
	forbid := fmt.Sprintf("\n@id(%s)\nforbid (principal == Identity::%s, action, resource);\n", strconv.Quote(name), strconv.Quote(id.String()))
	policies = strings.TrimRight(policies, "\n") + "\n"
	if strings.Contains("\n"+policies, forbid) {
		return policies, true
	}
	return policies + forbid, false
}

// owned lists what an identity owns, and has it ended where that is wanted.
func (a *app) owned(ctx context.Context, client *apiclient.Client, id directory.Identity, end bool) ([]apiclient.OwnedRegistration, error) {
	all := []apiclient.OwnedRegistration{}
	for after := ""; ; {
		var page apiclient.Owned
		var err error
		if end {
			page, _, err = client.EndOwned(ctx, id.String())
		} else {
			page, _, err = client.Owned(ctx, id.String(), after)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, page.Registrations...)
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}

func (a *app) printRevocation(done revocation) error {
	if len(done.Registrations) == 0 {
		a.note("It owns nothing here.")
	} else if done.Ended {
		a.note("%d registrations have ended.", len(done.Registrations))
	}
	t := table{head: []string{"AGENT", "RID", "EXPIRES"}}
	for _, r := range done.Registrations {
		t.rows = append(t.rows, []string{r.Agent, r.RID, stamp(r.ExpiresAt)})
	}
	body, err := json.Marshal(done)
	if err != nil {
		return err
	}
	return a.print(answer{body, "registrations", t})
}
