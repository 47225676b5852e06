package domain

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/trust/policy"
)

// Names of built-in policies for --policy.
const (
	policyShipped     = "shipped"
	policyDevelopment = "development"
)

// A policySource names the policy to evaluate without a directory.
type policySource struct {
	policy string // a file or a built-in policy
	domain string
}

func (p *policySource) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.policy, "policy", policyShipped,
		"`POLICY` to evaluate: a Cedar file, or the built-in policy shipped or development")
	cmd.Flags().StringVar(&p.domain, "domain", "",
		"trust `DOMAIN` of the directory (default: that of ROSTER_DOMAIN or the context)")
}

func (p *policySource) load(session *connect.Session) (*policy.Policy, error) {
	name := cmp.Or(p.domain, session.DefaultDomain())
	if name == "" {
		return nil, cli.Usage("missing --domain DOMAIN")
	}

	domain, err := spiffeid.TrustDomainFromString(name)
	if err != nil {
		return nil, cli.Usage("--domain must be a trust domain, got %q: %w", name, err)
	}

	if p.policy == policyShipped || p.policy == policyDevelopment {
		return policy.New(p.policy, domain)
	}

	text, err := os.ReadFile(p.policy)
	if err != nil {
		return nil, cli.Failed(cli.ExitFailed, "cannot read the policy: %w", err)
	}

	parsed, err := policy.Parse(p.policy, text, domain)
	if err != nil {
		return nil, cli.Failed(cli.ExitFormat, "%w", err)
	}

	return parsed, nil
}

func checkPolicyCommand(session *connect.Session) *cobra.Command {
	var source policySource
	cmd := &cobra.Command{
		Use:   "check CASES",
		Short: "Test a policy against a file of expected decisions, offline",
		Long: `Test a policy against the expected decisions in CASES, offline. The file is a JSON array:

  [{"who": "spiffe://alpha.test/agent/ada", "action": "register", "what": "printer",
    "visibility": "mesh", "capabilities": ["print"], "expect": "allow", "by": ["domain-registers"]}]

  who     the identity that asks; for export the peer's trust domain; empty for anonymous
  action  register, on-behalf-of, read, invoke, export, operate or commission
  what    the agent's name; for operate the operation
  expect  allow or deny
  by      the policies that must decide (optional)

The optional members owner, origin, visibility, capabilities, types, tags and protocols
describe the registration, and name describes the case. Two more describe the peering:

  exported  true after "roster peer export" to the peer (false if absent); for export, and
            for read and invoke by an identity of a peer
  streamed  for read and invoke: whether the stream to the identity's domain holds the
            registration; if absent, the policy's own answer to export decides`,
		Example: "  roster policy check cases.json --policy policy.cedar --domain alpha.test",
		Args:    cli.Args("CASES"),
		RunE: func(_ *cobra.Command, args []string) error {
			loaded, err := source.load(session)
			if err != nil {
				return err
			}

			text, err := os.ReadFile(args[0])
			if err != nil {
				return cli.Failed(cli.ExitFailed, "cannot read the cases: %w", err)
			}

			var cases []policy.Case

			// A misspelt member would make the case pass as another question.
			if err := strictjson.Unmarshal(text, &cases, json.RejectUnknownMembers(true)); err != nil {
				return cli.Failed(cli.ExitFormat, "invalid cases in %s: %w", args[0], err)
			}

			return checkCases(session.Console, loaded, cases)
		},
	}
	source.addFlags(cmd)

	return cmd
}

// checkCases notes each case with another decision than expected, and fails if there is
// one.
func checkCases(console *cli.Console, loaded *policy.Policy, cases []policy.Case) error {
	wrong := 0
	for i, c := range cases {
		if err := loaded.Check(c); err != nil {
			wrong++
			question := strings.Join(strings.Fields(strings.Join([]string{c.Name, c.Who, c.Action, c.What}, " ")), " ")
			console.Note("case %d (%s): %v", i+1, question, err)
		}
	}

	if wrong > 0 {
		return cli.Failed(cli.ExitFailed, "cases failed: %d of %d", wrong, len(cases))
	}

	console.Note("cases passed: %d", len(cases))

	return nil
}

func explainPolicyCommand(session *connect.Session) *cobra.Command {
	var (
		source   policySource
		question policy.Case
		streamed bool
	)
	cmd := &cobra.Command{
		Use:   "explain WHO ACTION [WHAT]",
		Short: "Show a policy's decision and the policies that made it, offline",
		Long: `Show a policy's decision and the policies that made it, offline. WHO, ACTION and WHAT are
the members of a case: see "roster policy check --help". The flags describe the
registration.`,
		Example: "  roster policy explain spiffe://alpha.test/agent/ada register printer --domain alpha.test",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 2 {
				return cli.Args("WHO", "ACTION", "WHAT")(c, args)
			}

			return cli.Args("WHO", "ACTION")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			loaded, err := source.load(session)
			if err != nil {
				return err
			}

			// Without the flag, the policy's own answer to export decides.
			if c.Flags().Changed("streamed") {
				question.Streamed = &streamed
			}

			question.Who = args[0]

			question.Action = args[1]
			if len(args) == 3 {
				question.What = args[2]
			}

			return explainDecision(session.Console, loaded, question)
		},
	}
	source.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&question.Owner, "owner", "", "owner of the registration, an `IDENTITY` (default: WHO)")
	flags.StringVar(&question.Origin, "origin", "", "`DOMAIN` that registered it (default: --domain)")
	cli.VisibilityFlag(cmd, &question.Visibility, "`VISIBILITY`: domain, mesh, or peers:DOMAIN,...")
	flags.StringSliceVar(&question.Capabilities, "capability", nil, "`NAME` of a capability; may be repeated")
	flags.StringSliceVar(&question.Types, "type", nil, "`TYPE` of a capability; may be repeated")
	flags.StringSliceVar(&question.Tags, "tag", nil, "`TAG` of the agent; may be repeated")
	flags.StringSliceVar(&question.Protocols, "protocol", nil, "`PROTOCOL` of the agent; may be repeated")
	flags.BoolVar(&question.Exported, "exported", false, "assume that the operator exports to the peer")
	flags.BoolVar(&streamed, "streamed", false, "assume that the stream to WHO's domain holds the registration, or not")

	return cmd
}

func explainDecision(console *cli.Console, loaded *policy.Policy, question policy.Case) error {
	decision, err := loaded.Ask(question)
	if err != nil {
		return cli.Usage("%w", err)
	}

	output := struct {
		Allow    bool     `json:"allow"`
		Policies []string `json:"policies"`
	}{decision.Allow, append([]string{}, slices.Sorted(slices.Values(decision.Policies))...)}

	decidedBy := cmp.Or(strings.Join(output.Policies, " "), "(no policy permits it; the default is deny)")

	t := cli.Table{Head: []string{"ALLOW", "DECIDED BY"}}
	t.Add(strconv.FormatBool(decision.Allow), decidedBy)

	return console.PrintValue(output, "", t)
}
