package domain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/compact"
)

const verifyHelp = `Verify a proof file, a bare record, or evidence that a domain equivocated (signed
contradictions), and print each step. An argument that exists as a file, begins with /, ./ or
../, or is - (standard input) is a file, and is verified offline. For a URL of a registration,
and for a name or rid, the proof is fetched from the directory first.

The verdict rests on an anchor that you choose, and the result names it:

  bundle     --bundle FILE: the domain's CA certificates (PEM or a SPIFFE bundle). The
             bundle of ROSTER_BUNDLE or the context is used for the domains in it
  keys       --keys FILE: a key document of the domain that you pinned. A verified proof
             file contains one as its member keys. With --bundle, the key document is
             verified too and replaces the one in the file
  directory  without these: the data of the directory that answers over TLS

Without an anchor nothing is authentic (exit code 12): the bundle inside a file shows only
that the file is consistent. A bare record contains no key document and needs --keys; its
registration's proof ("roster get NAME --proof") contains one. Parts of a file that don't
affect the verdict are listed as not checked.

The last line is the verdict in one sentence. With --show the registration itself is printed,
too: who registered it when, and its document; "not verified" beside a member says that no
signature of the origin holds for it.

With --policy, a C2SP tlog-policy, the checkpoint in the file must be signed by one of its logs
and cosigned by its quorum of witnesses; the result has "witnessed" and their times. A policy
is no anchor. With --tlog-proof, a C2SP tlog-proof of the record shows that it is logged, for a
file without an inclusion proof of its own.

With --staple the file is one that travels with its agent: at most 6 KiB, with a page of this
registration alone, and fresh for 30 minutes or until the deadline.

--at sets the time for deadlines and, for a bare record, for the key document, its
attestations and certificates. In a proof file these are valid as of the page's time.

With --agent, this program fetches the agent's own description from its base (A2A card, Web
of Agents document or MCP server) and lists the differences to its registration. The server
is accepted by the gateway's rule: it shows the owner's SVID, or one of the owner's domain for
the host, by the bundle that the directory holds, or a web PKI certificate for the host.

Exit codes: 0 authentic, 10 wrong signature or format, 11 the evidence is valid, 12 wrong
key or identity, or no anchor, 13 not in the ledger, or not witnessed as the policy asks, 14
expired. With --agent:
0 no differences, 1 differences, 6 no description available.`

func verifyCommand(session *connect.Session) *cobra.Command {
	var (
		proof  proofVerification
		agent  agentVerification
		origin string
	)
	cmd := &cobra.Command{
		Use:   "verify FILE | URL | NAME|RID | --agent NAME|RID",
		Short: "Verify a proof offline, or compare an agent with its registration",
		Long:  verifyHelp,
		Example: "  roster get weather-oslo --proof > proof.json\n" +
			"  roster verify proof.json --bundle DIR/alpha.test/bundle.pem\n" +
			"  roster verify weather-oslo\n" +
			"  roster verify staple.json --staple --bundle bundle.pem",
		Args: func(c *cobra.Command, args []string) error {
			if agent.id != "" {
				return cli.Args()(c, args)
			}

			return cli.Args("FILE, URL, NAME or RID")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if agent.id != "" {
				agent.origin = origin
				return agent.run(c.Context(), session)
			}

			proof.source = proofSource{session: session, argument: args[0], origin: origin}

			return proof.run(c.Context(), session)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&agent.id, "agent", "", "`AGENT` to compare with its registration, by name or rid")
	flags.StringVar(&origin, "origin", "", "`DOMAIN` that registered the agent")
	flags.StringVar(&proof.keysFile, "keys", "", "`FILE` with a key document that you pinned (compact JWS)")
	flags.StringVar(&proof.policyFile, "policy", "", "`FILE` with logs and witnesses that you believe (tlog-policy)")
	flags.StringVar(&proof.inclusionFile, "tlog-proof", "", "`FILE` with a proof that it is logged (tlog-proof)")
	flags.BoolVar(&proof.staple, "staple", false, "accept the file only if it is a fresh staple")
	flags.StringVar(&proof.at, "at", "", "verify as of this `TIME`, such as 2026-01-31T12:00:00Z (default: now)")
	flags.BoolVar(&proof.show, "show", false, "also show the registration: its document and when it was registered")
	agent.fetch.AddFlags(cmd)

	return cmd
}

// A proofVerification verifies one file or one registration's proof.
type proofVerification struct {
	source        proofSource
	keysFile      string
	policyFile    string
	inclusionFile string
	staple        bool
	at            string
	show          bool
}

func (v *proofVerification) run(ctx context.Context, session *connect.Session) error {
	options, err := v.options(session)
	if err != nil {
		return err
	}

	input, err := v.source.read(ctx)
	if err != nil {
		return err
	}

	if err := v.checkKind(session, input.text); err != nil {
		return err
	}

	// addBundle needs the directory: a bundle for its connection is an anchor for the domains in it alone.
	options.Directory = input.directory
	if err := addBundle(session, &options); err != nil {
		return err
	}

	report, verdict := trust.Verify(input.text, options)

	// A proof that isn't authentic has a reason of its own.
	if verdict == nil {
		verdict = input.checkSubject(report)
	}

	if bundle, origin, isFlag := session.Bundle(); report.Anchor == trust.AnchorBundle && !isFlag {
		session.Note("Using the bundle %s of the %s.", bundle, origin)
	}

	// The report is printed whatever the verdict is, because it names the step that failed.
	if err := v.print(session, report, verdict); err != nil {
		return err
	}

	return verdictFailure(verdict, v.source.argument, report)
}

// print prints a report, and with --show the registration that was verified.
func (v *proofVerification) print(session *connect.Session, report *trust.Report, verdict error) error {
	if !v.show {
		return session.PrintValue(report, "steps", reportTable(report, verdict))
	}

	shown := struct {
		*trust.Report
		Document json.RawMessage `json:"document,omitempty"`
	}{report, report.Document}

	err := session.PrintValue(shown, "steps", reportTable(report, verdict))
	if err != nil || !session.Format.IsTable() {
		return err
	}

	if _, err := io.WriteString(session.Stdout, "\n"); err != nil {
		return err
	}

	if err := session.PrintValue(nil, "", subjectTable(session.Console, report)); err != nil {
		return err
	}

	document := jsontext.Value(report.Document)
	if len(document) == 0 {
		return nil
	}

	if err := document.Indent(jsontext.WithIndent("  ")); err != nil {
		return err
	}

	_, err = fmt.Fprintf(session.Stdout, "\n%s\n", document)

	return err
}

// subjectTable returns the facts of a record beside its document, and whether a signature of the
// origin was verified for them.
func subjectTable(console *cli.Console, report *trust.Report) cli.Table {
	by := "not verified"
	if report.Signed {
		by = "signed"
	}

	t := cli.Table{Head: []string{"MEMBER", "BY", "VALUE"}}
	add := func(name, value string) {
		if value != "" {
			t.Add(name, by, value)
		}
	}

	subject := &report.Subject
	add("agent", subject.Agent)
	add("rid", subject.RID)
	add("origin", subject.Domain)
	add("kind", subject.Kind)
	add("first registered", console.Time(subject.Registered))
	add("updated", console.Time(subject.Issued))
	add("revision", cli.NonZero(subject.Revision))
	add("listed", console.Time(subject.Checked))
	add("expires", console.Time(subject.Deadline))
	add("registrant", subject.Registrant)
	add("owner", subject.Owner)
	add("registered by", subject.RegisteredBy)
	add("transferred by", subject.TransferredBy)
	add("imported from", subject.ImportedFrom)
	add("key", subject.Key)
	add("node", subject.Node)

	return t
}

// checkKind refuses the output of commands that print a registration: it is signed by no
// one, and looks like a file to verify.
func (v *proofVerification) checkKind(session *connect.Session, text []byte) error {
	var answer struct {
		Agent      string            `json:"agent"`
		Href       string            `json:"href"`
		Provenance json.RawMessage   `json:"provenance"`
		Agents     []json.RawMessage `json:"agents"`
	}
	if json.Unmarshal(text, &answer) != nil {
		// The verification says why the text is no proof.
		return nil
	}

	switch {
	case answer.Provenance != nil:
		name := cmp.Or(path.Base(answer.Href), answer.Agent, "NAME")

		return cli.Failed(cli.ExitFormat, "%s is an answer of roster get, not a proof", v.source.argument).
			WithHint("An answer isn't signed. Get the proof of the registration:").
			WithNext(session.CommandLine("get", name, "--proof"))
	case answer.Agents != nil:
		return cli.Failed(cli.ExitFormat, "%s is an answer of roster lookup, not a proof", v.source.argument).
			WithHint("An answer isn't signed. Get the proof of one registration:").
			WithNext(session.CommandLine("get", "NAME", "--proof"))
	}

	return nil
}

// verdictFailure returns the failure for a verdict on an argument; nil if it is authentic.
func verdictFailure(verdict error, argument string, report *trust.Report) error {
	domain := report.Subject.Domain

	switch {
	case verdict == nil:
		return nil
	case errors.Is(verdict, trust.ErrEquivocation):
		return cli.Failed(trust.ExitCode(verdict), "%s is %s", argument,
			strings.Replace(report.Verdict, "evidence valid", "valid evidence", 1)).
			WithHint("No honest domain signs both; the evidence has the two.")

	// Without a verified signature, the deadline is not known to be the origin's.
	case errors.Is(verdict, trust.ErrExpired) && report.Signed:
		return cli.Failed(trust.ExitCode(verdict), "%s is %s", argument, report.Verdict).
			WithHint("%s vouched for it until then; --at verifies as of another time.", domain)
	case errors.Is(verdict, trust.ErrWitness):
		return cli.Failed(trust.ExitCode(verdict), "%s is signed by %s, and not verified: %w", argument, domain,
			verdict).
			WithHint("Witnesses cosign within seconds; a proof that is fetched later has more of them.")
	case errors.Is(verdict, trust.ErrNoAnchor):
		return cli.Failed(trust.ExitCode(verdict), "cannot verify that %s is authentic: %w", argument, verdict).
			WithHint("Give the CA certificates of %s (--bundle FILE) or a key document of it (--keys FILE), "+
				"from a source that you trust.", domain)
	}

	return cli.Failed(trust.ExitCode(verdict), "%s is not authentic: %w", argument, verdict)
}

// options returns the options of this command's own flags.
func (v *proofVerification) options(session *connect.Session) (options trust.VerifyOptions, err error) {
	if v.at != "" {
		if options.At, err = directory.ParseInstant(v.at); err != nil {
			return options, cli.Usage("--at must be a time such as 2026-01-31T12:00:00Z, got %q", v.at)
		}
	}

	if v.keysFile != "" {
		text, err := session.ReadFile(v.keysFile, compact.MaxSize+1)
		if err != nil {
			return options, err
		}

		options.Keys = strings.TrimSpace(string(text))

		// An empty document would count as a missing flag, and the verdict would rest on another anchor.
		if options.Keys == "" {
			return options, cli.Failed(cli.ExitFormat, "key document %s is empty", v.keysFile)
		}
	}

	if v.policyFile != "" {
		text, err := session.ReadFile(v.policyFile, checkpoint.MaxPolicy+1)
		if err != nil {
			return options, err
		}

		if options.Policy, err = checkpoint.ParsePolicy(string(text)); err != nil {
			return options, cli.Failed(cli.ExitFormat, "cannot use the policy %s: %w", v.policyFile, err)
		}
	}

	if v.inclusionFile != "" {
		text, err := session.ReadFile(v.inclusionFile, checkpoint.MaxProof+1)
		if err != nil {
			return options, err
		}

		options.Inclusion = string(text)

		// An empty file would count as a missing flag.
		if options.Inclusion == "" {
			return options, cli.Failed(cli.ExitFormat, "tlog-proof %s is empty", v.inclusionFile)
		}
	}

	options.Staple = v.staple

	return options, session.UseContext()
}

// addBundle adds the bundle of the flag, the environment or the context. The flag's bundle
// is an anchor for a file of any domain; the others were chosen for connections, so they
// are anchors for their own domains only.
func addBundle(s *connect.Session, options *trust.VerifyOptions) error {
	bundle, _, isFlag := s.Bundle()
	if bundle == "" {
		return nil
	}

	text, err := os.ReadFile(bundle)
	if err != nil {
		return cli.Failed(cli.ExitFailed, "cannot read the bundle: %w", err)
	}

	if options.Bundle, err = trust.ParseBundle(spiffeid.TrustDomain{}, text); err != nil {
		return cli.Failed(cli.ExitFormat, "cannot use the bundle %s: %w", bundle, err)
	}

	options.OfConnection = !isFlag || options.Directory != ""

	return nil
}

// anchorTexts name the anchor of a verdict.
var anchorTexts = map[trust.Anchor]string{
	trust.AnchorNone:      "by nothing: no trust anchor",
	trust.AnchorBundle:    "by the CA certificates that you gave (bundle)",
	trust.AnchorKeys:      "by the key document that you gave (keys)",
	trust.AnchorDirectory: "by the word of the directory that was asked (directory)",
}

func reportTable(report *trust.Report, verdict error) cli.Table {
	t := cli.Table{Head: []string{"RESULT", "STEP", "DETAIL"}}
	for _, step := range report.Steps {
		result := "ok"
		switch {
		case step.Skipped:
			result = "-"
		case !step.OK:
			result = "FAILED"
		}

		t.Add(result, step.Name, step.Detail)
	}

	if len(report.Unchecked) > 0 {
		t.Add("-", "not checked",
			"parts of the file that the verdict doesn't use: "+strings.Join(report.Unchecked, ", "))
	}

	result, fact := cli.YesNo(report.Authentic), "authentic"
	switch {
	case errors.Is(verdict, trust.ErrEquivocation):
		result, fact = "yes", "evidence"
	case errors.Is(verdict, trust.ErrExpired) && report.Signed:
		result = "expired"
	}

	t.Add(result, fact, anchorTexts[report.Anchor])
	t.Add("", "verdict", report.Verdict)

	return t
}
