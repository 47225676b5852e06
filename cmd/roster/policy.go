package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/trust/policy"
)

func (a *app) policyCommand() *cobra.Command {
	return group("policy", "Look at the domain's policy, try one out, and put it in force",
		a.policyShowCommand(), a.policyApplyCommand(), a.policyCheckCommand(), a.policyExplainCommand())
}

func (a *app) policyShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the policy that is in force, in Cedar, and its version in the first line",
		Args:  needs(),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			p, reply, err := client.Policy(ctx)
			if err != nil {
				return err
			}
			if a.output.String() != "table" && a.output.String() != "wide" {
				return a.print(answer{body: reply.Body})
			}
			_, err = fmt.Fprintf(a.stdout, "%s%d\n%s\n", versionLine, p.Version, strings.TrimRight(p.Policy, "\n"))
			return err
		}),
	}
}

func (a *app) policyApplyCommand() *cobra.Command {
	var builtIn bool
	var replaces string
	c := &cobra.Command{
		Use:   "apply FILE",
		Short: "Put a policy in force, for the whole domain",
		Long: `Put a policy in force, for the whole domain. Readers are answered by it from their
next request on, and what peers may have is decided anew. With --built-in, and no
FILE, the domain goes back to the set that its nodes are configured with.

A FILE that "roster policy show" printed begins with the version that it is of, and is
refused where another one is in force by now, so that nobody's change is lost; --replaces
says another version, or any.`,
		Args: func(c *cobra.Command, args []string) error {
			if builtIn {
				return needs()(c, args)
			}
			return needs("FILE")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			var text []byte
			if !builtIn {
				var err error
				if text, err = os.ReadFile(args[0]); err != nil {
					return failed(exitFailed, "the file can't be read: %w", err)
				}
				if err := policy.Check(args[0], text); err != nil {
					return failed(exitFormat, "%w", err)
				}
			}
			rest, version, err := replacing(string(text), replaces)
			if err != nil {
				return err
			}
			if rest == "" && !builtIn {
				return failed(exitFormat, "%s is empty", args[0])
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			if err := client.SetPolicy(c.Context(), rest, version); err != nil {
				return err
			}
			a.note("the policy is in force")
			return nil
		},
	}
	c.Flags().StringVar(&replaces, "replaces", "", "the version that must be in force, or any")
	c.Flags().BoolVar(&builtIn, "built-in", false, "go back to the set that the nodes are configured with")
	return c
}

// versionLine begins what "policy show" prints: behind it is the version.
const versionLine = "// version "

// replacing takes the version line off a text and returns which version it is to replace:
// as asked for, else as that line says; nil for any.
func replacing(text, asked string) (rest string, version *uint64, err error) {
	rest = text
	if line, behind, _ := strings.Cut(text, "\n"); strings.HasPrefix(line, versionLine) {
		if n, err := strconv.ParseUint(strings.TrimSpace(line[len(versionLine):]), 10, 64); err == nil {
			rest, version = behind, &n
		}
	}
	switch asked {
	case "":
		return rest, version, nil
	case "any":
		return rest, nil, nil
	}
	n, err := strconv.ParseUint(asked, 10, 64)
	if err != nil {
		return "", nil, usage("--replaces is %q; it is a version, as \"roster policy show\" prints it, or any", asked)
	}
	return rest, &n, nil
}

// offline is the policy that a question is put to without a directory.
type offline struct{ policy, domain string }

func (o *offline) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.policy, "policy", "shipped", "a file in Cedar; or shipped, or development: the sets that are built in")
	c.Flags().StringVar(&o.domain, "domain", "", "the directory's trust domain (needed)")
}

func (o *offline) load() (*policy.Policy, error) {
	td, err := spiffeid.TrustDomainFromString(o.domain)
	if err != nil {
		return nil, usage("--domain: give the directory's trust domain: %w", err)
	}
	if o.policy == "shipped" || o.policy == "development" {
		return policy.New(o.policy, td)
	}
	text, err := os.ReadFile(o.policy)
	if err != nil {
		return nil, failed(exitFailed, "the policy can't be read: %w", err)
	}
	p, err := policy.Parse(o.policy, text, td)
	if err != nil {
		return nil, failed(exitFormat, "%w", err)
	}
	return p, nil
}

func (a *app) policyCheckCommand() *cobra.Command {
	var o offline
	c := &cobra.Command{
		Use:   "check CASES",
		Short: "Compare a policy's answers with those that a file expects, without a directory",
		Long: `Compare a policy's answers with those that a file expects, without a directory. The
file is a JSON array of cases:

  [{"who": "spiffe://alpha.test/agent/ada", "action": "register", "what": "printer",
    "visibility": "mesh", "capabilities": ["print"], "expect": "allow", "by": ["domain-registers"]}]

action is register, read, invoke, export, operate or commission; who is an identity,
of export a peer's trust domain, and empty for nobody; what is an agent's name, of
operate the operation. name, owner, origin, types, protocols and by may be there.`,
		Args: needs("CASES"),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := o.load()
			if err != nil {
				return err
			}
			b, err := os.ReadFile(args[0])
			if err != nil {
				return failed(exitFailed, "the file can't be read: %w", err)
			}
			var cases []policy.Case
			if err := json.Unmarshal(b, &cases, json.RejectUnknownMembers(true)); err != nil {
				return failed(exitFormat, "%s: %w", args[0], err)
			}
			return a.check(p, cases)
		},
	}
	o.flags(c)
	return c
}

func (a *app) check(p *policy.Policy, cases []policy.Case) error {
	wrong := 0
	for i, c := range cases {
		if err := p.Check(c); err != nil {
			wrong++
			a.note("case %d %s: %s %s %s: %v", i+1, c.Name, c.Who, c.Action, c.What, err)
		}
	}
	if wrong > 0 {
		return failed(exitFailed, "%d of %d cases are answered otherwise", wrong, len(cases))
	}
	a.note("%d cases are answered as expected", len(cases))
	return nil
}

func (a *app) policyExplainCommand() *cobra.Command {
	var o offline
	var q policy.Case
	c := &cobra.Command{
		Use:   "explain WHO ACTION [WHAT]",
		Short: "Say how a policy answers a question, and which of its policies decide",
		Long: `Say how a policy answers a question, and which of its policies decide, without a
directory. WHO, ACTION and WHAT are those of a case: see "roster policy check".`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 3 {
				return nil
			}
			return needs("WHO", "ACTION")(c, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := o.load()
			if err != nil {
				return err
			}
			q.Who, q.Action = args[0], args[1]
			if len(args) == 3 {
				q.What = args[2]
			}
			d, err := p.Ask(q)
			if err != nil {
				return usage("%w", err)
			}
			answered := struct {
				Allow    bool     `json:"allow"`
				Policies []string `json:"policies"`
			}{d.Allow, slices.Sorted(slices.Values(d.Policies))}
			body, err := json.Marshal(answered)
			if err != nil {
				return err
			}
			return a.print(answer{body: body, table: table{head: []string{"ALLOW", "DECIDED BY"},
				rows: [][]string{{strconv.FormatBool(d.Allow), strings.Join(answered.Policies, " ")}}}})
		},
	}
	o.flags(c)
	f := c.Flags()
	f.StringVar(&q.Owner, "owner", "", "who owns the registration")
	f.StringVar(&q.Origin, "origin", "", "whose it is, where that is another domain")
	f.StringVar(&q.Visibility, "visibility", "", "who may see it")
	f.StringSliceVar(&q.Capabilities, "capability", nil, "the name of a capability that it has")
	f.StringSliceVar(&q.Types, "type", nil, "the type of a capability that it has")
	f.StringSliceVar(&q.Protocols, "protocol", nil, "a protocol that it speaks")
	return c
}
